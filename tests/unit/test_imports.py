"""What a process loads before it needs it."""

from __future__ import annotations

import os
import subprocess
import sys

LAZY = {
    "cryptography": {"kubeletpy.host.x509", "kubeletpy.host.signing"},
    "dbus_fast": {"kubeletpy.shutdown.dbus"},
}
"""Libraries that cost much, and the modules that load them: each is imported where it is used."""

_CODE = """
import importlib, pkgutil, sys, kubeletpy, kubeletpy_up
for package in (kubeletpy, kubeletpy_up):
    for each in pkgutil.walk_packages(package.__path__, f"{{package.__name__}}."):
        if each.name not in {skipped!r} and not each.name.endswith("__main__"):
            importlib.import_module(each.name)
sys.exit(", ".join(sorted({libraries!r} & set(sys.modules))) or 0)
"""


def test_libraries_that_cost_much_are_loaded_where_they_are_used() -> None:
    skipped = {module for modules in LAZY.values() for module in modules}
    code = _CODE.format(skipped=skipped, libraries=set(LAZY))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
