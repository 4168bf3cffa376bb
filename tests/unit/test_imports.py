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


LATER = (
    "kubeletpy.explain.gather",
    "kubeletpy.explain.model",
    "kubeletpy.explain.timeline",
    "kubeletpy.images.providers",
    "kubeletpy.kubeapi.kubeconfig_loader",
    "kubeletpy.server.checkpoint",
    "kubeletpy.server.debug.pprof",
    "kubeletpy.server.node_logs",
    "kubeletpy.stats.cadvisor",
    "kubeletpy.stats.resource",
    "kubeletpy.stats.summary",
    "kubeletpy.volumes.service_accounts",
)
"""Modules (and packages) of what a node does seldom or late: loaded by the first who asks."""
BUDGET = 654
"""Modules of ours that may be loaded before an agent starts; each costs about 0.5 ms of CPU and
20 kB. What exceeds it is loaded where it is first used, or argued for here: two are of resource
claims, whose handler waits for drivers from the start; more are of CPUs and memory, whose state
files are read and written under every policy; and 20 of device plugins and the pod resources API,
whose sockets are there from the start.
"""

_START = """
import sys
from kubeletpy.cli.run import _default_agent
_default_agent()
print(*sorted(name for name in sys.modules if name.startswith("kubeletpy")))
"""


def test_an_agent_starts_without_what_it_needs_seldom_or_late() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _START]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    early = [each for each in loaded for late in LATER if f"{each}.".startswith(f"{late}.")]
    assert early == []
    assert len(loaded) <= BUDGET
