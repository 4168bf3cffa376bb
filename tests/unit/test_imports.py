"""Modules and libraries that a process may load before it needs them."""

from __future__ import annotations

import os
import subprocess
import sys

LAZY = {
    "cryptography": {
        "kubeletpy.base.host.x509",
        "kubeletpy.base.host.x509",
        "kubeletpy.volumes.projected.pod_certificates.certificates",
    },
    "h2": {
        "kubeletpy.kubeapi.http2.connection",
        "kubeletpy.base.wire.http2_exchange",
        "kubeletpy.remote.unary_call",
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
    "aiohttp",
    "argparse",
    "statistics",
    "kubeletpy.observe.explain.gather",
    "kubeletpy.observe.explain.model",
    "kubeletpy.observe.explain.model",
    "kubeletpy.images.providers",
    "kubeletpy.kubeapi.http1",
    "kubeletpy.kubeapi.http2",
    "kubeletpy.kubeapi.kubeconfig_loader",
    "kubeletpy.kubeapi.protobuf_format",
    "kubeletpy.kubeapi.reflector",
    "kubeletpy.server.pods_api",
    "kubeletpy.agent.takeover.adopt",
    "kubeletpy.agent.takeover.preflight",
    "kubeletpy.runtime_manager.act.left_out",
    "kubeletpy.server.answers",
    "kubeletpy.server.app",
    "kubeletpy.server.checkpoint",
    "kubeletpy.server.debug.pprof",
    "kubeletpy.server.node_logs",
    "kubeletpy.node.stats.scrapes",
    "kubeletpy.node.stats.cadvisor",
    "kubeletpy.node.stats.scrapes",
    "kubeletpy.node.stats.summary",
    "kubeletpy.syncloop.sources.http",
    "kubeletpy.volumes.claims.secrets",
    "kubeletpy.volumes.claims.translated",
    "kubeletpy.volumes.intree.attached_disk",
    "kubeletpy.volumes.intree.fc",
    "kubeletpy.volumes.intree.iscsi",
    "kubeletpy.volumes.intree.scsi",
    "kubeletpy.volumes.projected.pod_certificates",
    "kubeletpy.volumes.projected.tokens",
    "kubeletpy.volumes.projected.trust_anchors",
    "kubeletpy.volumes.projected.trust_bundles",
    "kubeletpy.base.wire.api_messages",
    "kubeletpy.base.wire.api_objects",
)
"""Modules (and packages) for rare or late work of a node.

They are loaded with the first request, and those that serve requests when the node is Ready.
"""
BUDGET = 680
"""Modules of ours that may be loaded before an agent starts; each costs about 0.6 ms of CPU and
35 kB. A module above the budget is loaded where it is first used, or has its reason here or in
``MORE``:

- Two are of resource claims, whose handler waits for drivers from the start.
- Some are of CPUs and memory, whose state files are read and written under every policy.
- 21 are of device plugins and the pod resources API, whose sockets exist from the start.
- Four are of eviction, which may be needed at once.
- Two keep runtime and addresses of the node up to date.
- Two record since when pods fail, over restarts, and one records removed pods.
- Two hold the settings without effect and the known gates.
- Four of volumes, two of watched objects, five of the composition root, two of resource claims and
  two of device plugins were split off longer ones without more code. So were the booking of memory
  and the file with the times of a shutdown.
- One sets the allocator up before there are threads.
- One reports the resource that the machine has run out of when no file can be opened any more.
- One shows the states of pod certificates, and one names the requests to the node's port as spans.
- One is the interface of the sender of spans, and one that of the HTTP/1.1 or HTTP/2 client.
- Six are of the flight recorder, which records from the start.
- One collects the lists that come over a watch, one reads objects by name, and one keeps each pod's
  latest events.
- One decides whether a node's first status waits, and one which volumes only wait for a first
  answer.
- One has the fields of pods, which were classes of another, and one loads the HTTP client.
- One keeps a canceled call out of a cycle with its task.
- One has the formats of requests and answers, of which only JSON is loaded.
- One has the base classes of values, each of which costs a twentieth of a dataclass.
"""

MORE = {
    "kubeletpy.resources.admission.at_start": "the order in which a start admits pods, and who would end",
    "kubeletpy.images.uses": "keeps images that starts use from being removed",
    "kubeletpy.pods.shape": "refuses pods that an unknown value weakens",
    "kubeletpy.base.host.disk_errors": "names the path and the disk in errors of files",
    "kubeletpy.base.tasks": "ends tasks together with the call that started them",
    "kubeletpy.base.tasks": "lets bursts of pods go before events and removals",
    "kubeletpy.base.api.object_text": "decodes equal parts of objects once",
    "kubeletpy.kubeapi.kubeconfig": "reads a plain kubeconfig without the official client",
    "kubeletpy.pods.resources": "which sizes of volumes a resize may change",
    "kubeletpy.runtime_manager.plan.resize": "which volumes a sync would remount",
    "kubeletpy.metrics.trace.watched_loop": "samples the event loop's stack without a garbage collection",
    "kubeletpy.resources.placement.hints": "which pods are placed as one, and how they are divided",
    "kubeletpy.resources.placement.hints": "what memory is booked, apart from where",
    "kubeletpy.resources.placement.static_manager": "what the managers of CPUs and memory share",
    "kubeletpy.resources.placement.options": "the CPUs of the system, apart from those of containers",
    "kubeletpy.pods.shape": "which values of 1.37's fields are refused",
    "kubeletpy.status.generate": "what a status shows of the health of volumes",
    "kubeletpy.syncloop.sources.manifest": "warns of static pods as they are added",
    "kubeletpy.base.host.mount_table": "the Node object shows whether it runs in one",
    "kubeletpy.metrics.versions": "which metrics a version has, before any is made",
    "kubeletpy.base.kubernetes_version": "differences between versions that no gate describes",
    "kubeletpy.config.version_choice": "decides which version the agent runs as",
    "kubeletpy.node.server_version": "notices that the API server was upgraded",
    "kubeletpy.agent.launch.runtime": "requests the version of the API server at the start",
    "kubeletpy.base.kubernetes_version": "the version whose gates and fields a configuration has",
    "kubeletpy.base.api.quantity": "quantities with their format, in statuses and the Node object",
    "kubeletpy.resources.cgroups.driver_check": "sees from sandboxes which cgroup driver the runtime has",
    "kubeletpy.resources.cgroups.driver_mismatch": "its decisions and its message",
    "kubeletpy.base.host.errors": "the error of D-Bus calls, which shutdown and slices share",
    "kubeletpy.base.wire.listener": "bounds what a TLS handshake costs",
    "kubeletpy.kubeapi.watch_state": "which watches keep failing, why and since when",
    "kubeletpy.metrics.node": "calls of the pods API by status, served from the start",
    "kubeletpy.node.build": "what of the Node object is written",
    "kubeletpy.pods.defaults": "quantities of static pods",
    "kubeletpy.pods.runtime_status": "the order of observations when the wall clock steps",
    "kubeletpy.pods.pod": "how a critical pod exceeds a limit of its local storage",
    "kubeletpy.server.pods_api": "the pods API, on by default from 1.37",
    "kubeletpy.server.pods_api.server": "its socket, which is there from the start",
    "kubeletpy.server.pods_api.watch": "what its watchers receive next",
    "kubeletpy.podworkers.syncer": "keeps what terminating pods read up to date",
    "kubeletpy.probes.prober": "keeps the deadline of exec probes",
    "kubeletpy.remote.errors": "the message about a runtime that does not answer",
    "kubeletpy.runtime_manager.protocol": "notifies the driver check of each sandbox",
    "kubeletpy.runtime_manager.act.container_files": "stops in progress, over restarts",
    "kubeletpy.runtime_manager.plan.shown_ends": "what a sync would do, for plan and preflight",
    "kubeletpy.runtime_manager.plan.grace": "how a stop goes on after a restart",
    "kubeletpy.runtime_manager.plan.shown_ends": "ends that only the API's status shows",
    "kubeletpy.runtime_manager.read.status_reader": "starts that an agent's death canceled",
    "kubeletpy.runtime_manager.read.status_reader": "which starts are this agent's",
    "kubeletpy.base.api.json_patch": "merges the drop-ins of a configuration",
    "kubeletpy.agent.context": "what every part of the composition root is built with",
    "kubeletpy.agent.core": "what runs pods, apart from what observes them",
    "kubeletpy.agent.pod_state": "records events; split off the core without more code",
    "kubeletpy.agent.pod_state": "what all components share about pods; the same",
    "kubeletpy.agent.runtime": "finds changes of containers; the same",
    "kubeletpy.agent.resources": "the ranges of user namespaces; the same",
    "kubeletpy.base.wire.listener": "bounds the connections of a source",
    "kubeletpy.base.wire.listener": "accepts connections without keeping failed ones",
    "kubeletpy.volumes.claim_volumes": "a package of the layers in kubeletpy.volumes: no code",
    "kubeletpy.volumes.containers": "the same",
    "kubeletpy.volumes.files": "the same",
    "kubeletpy.volumes.node": "the same",
    "kubeletpy.volumes.pod_volumes": "the same",
    "kubeletpy.volumes.projected": "the same",
    "kubeletpy.volumes.usage": "the same",
    "kubeletpy.volumes.files.paths": "values that four of these packages use",
}
"""Modules added since, each with the reason why it is loaded before an agent starts."""

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


def test_an_agent_starts_without_what_it_needs_seldom_or_late() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _START]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    modules, compiling = done.stdout.splitlines()
    loaded = modules.split()
    assert set(compiling.split()) == COMPILING
    early = [each for each in loaded for late in LATER if f"{each}.".startswith(f"{late}.")]
    assert early == []
    assert len([each for each in loaded if each.partition(".")[0] == "kubeletpy"]) <= BUDGET + len(
        MORE
    )
