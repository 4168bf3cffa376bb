"""Modules and libraries that a process may load before it needs them.

When the start of an agent loads too much, import the module in the function that first needs it,
and add its name to ``LATER``. Where every node needs the module at its start, set ``BUDGET`` to the
number in the failure plus five. Lower it likewise when modules are merged.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LAZY = {
    "cryptography": {
        "kubeletpy.base.host.x509",
        "kubeletpy.volumes.projected.pod_certificates.keys",
    },
    "h2": {
        "kubeletpy.kubeapi.http2",
        "kubeletpy.base.wire.http2",
        "kubeletpy.remote.unary_call",
        "kubeletpy.probes.handlers.grpc_health",
        "kubeletpy.probes.handlers.http2",
    },
    "dbus_fast": {"kubeletpy.base.host.dbus"},
    "opentelemetry": {"kubeletpy.metrics.trace.otlp"},
}
"""Expensive libraries and the modules that load them; each is imported where it is used."""

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
    "kubeletpy.observe.explain.deaths",
    "kubeletpy.observe.explain.texts",
    "aiohttp.hdrs",
    "argparse",
    "difflib",
    "google.protobuf.text_format",
    "http.server",
    "prometheus_client.exposition",
    "statistics",
    "kubeletpy.kubeapi.http1",
    "kubeletpy.kubeapi.http2",
    "kubeletpy.kubeapi.kubeconfig_loader",
    "kubeletpy.kubeapi.protobuf_format",
    "kubeletpy.server.pods_api",
    "kubeletpy.agent.takeover.adopt",
    "kubeletpy.images.pull_meter",
    "kubeletpy.agent.takeover.preflight",
    "kubeletpy.resources.dra.client",
    "kubeletpy.runtime_manager.act.ignored_fields",
    "kubeletpy.server.answers",
    "kubeletpy.server.app",
    "kubeletpy.server.checkpoint",
    "kubeletpy.server.debug.pprof",
    "kubeletpy.server.node_logs",
    "kubeletpy.node.stats.scrapes",
    "kubeletpy.node.stats.cadvisor",
    "kubeletpy.node.stats.summary",
    "kubeletpy.syncloop.sources.http",
    "kubeletpy.volumes.claims.translated",
    "kubeletpy.volumes.intree.disks",
    "kubeletpy.volumes.intree.fc",
    "kubeletpy.volumes.intree.iscsi",
    "kubeletpy.volumes.intree.scsi",
    "kubeletpy.volumes.projected.pod_certificates",
    "kubeletpy.volumes.projected.trust_anchors",
    "kubeletpy.volumes.projected.trust_bundles",
    "kubeletpy.base.wire.api_messages",
    "kubeletpy.base.wire.api_objects",
)
"""Modules (and packages) for rare or late work of a node.

They are loaded with the first request, and those that serve requests when the node is Ready.
"""
BUDGET = 375
"""Modules of ours that may be loaded before an agent starts: those of today plus five. Each costs
about 0.6 ms of CPU."""

COMPILING = {"kubeletpy.images.credentials", "kubeletpy.volumes.pod_volumes.payload"}
"""Modules of ours with a dataclass, whose six methods are compiled at each start (0.4 ms). One of
its fields takes no part in comparisons; a Struct cannot have such a field."""

_START = """
import dataclasses, sys
compiling = set()
process = dataclasses._process_class
def noted(kind, *options):
    compiling.add(kind.__module__)
    return process(kind, *options)
dataclasses._process_class = noted
from kubeletpy.cli import main
from kubeletpy.cli.run import _default_agent
_default_agent()
print(*sorted(sys.modules))
print(*sorted(each for each in compiling if each.startswith("kubeletpy.")))
"""


def added(modules: list[str]) -> list[str]:
    """Those of the modules that the repository did not have when BUDGET was last set."""

    def git(*arguments: str) -> list[str]:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    set_in = git("log", "-1", "--format=%H", "-G^BUDGET = ", "--", "tests/unit/test_imports.py")
    files = git(
        "diff", "--no-renames", "--name-only", "--diff-filter=A", *set_in, "--", "kubeletpy"
    )
    files += git("ls-files", "--others", "--exclude-standard", "kubeletpy")
    new = {file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files}
    return sorted(new & set(modules))


def test_an_agent_starts_without_what_it_needs_seldom_or_late() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _START]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    modules, compiling = done.stdout.splitlines()
    loaded = modules.split()
    assert set(compiling.split()) == COMPILING
    early = [each for each in loaded for late in LATER if f"{each}.".startswith(f"{late}.")]
    assert early == []
    ours = [each for each in loaded if each.partition(".")[0] == "kubeletpy"]
    assert len(ours) <= BUDGET, (
        f"an agent loads {len(ours)} modules at its start, {len(ours) - BUDGET} above BUDGET. New "
        f"since BUDGET was set: {', '.join(added(ours)) or 'none'}. Import each in the function "
        "that first needs it and add it to LATER, or set BUDGET if every node needs it at its start"
    )
