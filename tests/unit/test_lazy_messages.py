"""An agent without plugins does not pay for their messages."""

from __future__ import annotations

import subprocess
import sys

MESSAGES = (
    "kubeletpy.remote.generated.csi_pb2",
    "kubeletpy.remote.generated.deviceplugin_pb2",
    "kubeletpy.remote.generated.pluginregistration_pb2",
    "kubeletpy.remote.generated.podresources_pb2",
    "kubeletpy.remote.generated.podresources_v1alpha1_pb2",
    "kubeletpy.remote.generated.pods_pb2",
)
_CODE = """
import importlib, sys
import kubeletpy.cli.run
for name in {modules!r}:
    importlib.import_module(name)
sys.exit(", ".join(sorted(set({messages!r}) & set(sys.modules))) or 0)
"""
MODULES = (
    "kubeletpy.resources.devices.registration",
    "kubeletpy.resources.plugins.plugin_manager",
    "kubeletpy.resources.plugins.plugin_manager",
    "kubeletpy.server.pod_resources.server",
    "kubeletpy.server.pods_api.server",
    "kubeletpy.volumes.csi.csi_plugin",
    "kubeletpy.volumes.csi.registration",
)


def test_messages_of_plugins_are_loaded_with_the_first_plugin() -> None:
    code = _CODE.format(modules=MODULES, messages=MESSAGES)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
