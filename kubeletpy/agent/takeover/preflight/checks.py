"""Checks of a preflight: which kubelet is meant, its runtime, versions and settings. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kubeletpy.agent.takeover.preflight.findings import Area, Finding, KubeletFound, Severity
from kubeletpy.base.structs import Struct, replace
from kubeletpy.config.effects import Notice
from kubeletpy.config.flags import NodeFlags
from kubeletpy.config.settings import KubeletSettings
from kubeletpy.config.version_choice import ResolvedVersion
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.pods.pod import Pod

_unclear = partial(Finding, Area.KUBELET, Severity.UNCLEAR)


class Process(Struct, frozen=True):
    """A running kubelet.

    Attributes:
        command: its program and its arguments.
        directory: its working directory.
        unit: the systemd service that it belongs to; empty: none.
        contained: whether it has another root directory than this process: it is in a container.
    """

    pid: int
    command: tuple[str, ...]
    directory: str = "/"
    unit: str = ""
    contained: bool = False


class KubeletChoice(Struct, frozen=True):
    """The kubelet that was found, if any, and the findings about it."""

    kubelet: KubeletFound | None
    findings: tuple[Finding, ...] = ()


def choose(
    processes: Sequence[Process],
    unit: KubeletFound | None,
    unit_problem: str,
    others: Sequence[str],
) -> KubeletChoice:
    """The kubelet to read the settings of: the running one, else that of the unit.

    Args:
        processes: the running kubelets, or the one that the user named.
        unit: the kubelet of the unit, None if it can't be read.
        unit_problem: why it can't be read; empty: it can, or there is none.
        others: further units that start a kubelet.
    """
    findings = [] if not unit_problem else [_unclear("unit", unit_problem)]
    if others and unit is not None:
        names = ", ".join(others)
        what = f"a kubelet is also started by {names}"
        todo = "two kubelets must not share a node: mask the other unit, or choose with --unit"
        findings.append(Finding(Area.KUBELET, Severity.UNCLEAR, unit.source, what, todo))
    if len(processes) > 1:
        pids = ", ".join(str(each.pid) for each in processes)
        what = f"{len(processes)} kubelets run (processes {pids})"
        return KubeletChoice(None, (*findings, _unclear("kubelet", what, "choose one with --pid")))
    if not processes:
        return _without_process(unit, findings)
    process = processes[0]
    subject = f"process {process.pid}"
    if process.contained:
        what = "the kubelet runs in a container: its paths are not those of this machine"
        todo = "run preflight in that container"
        return KubeletChoice(None, (*findings, _unclear(subject, what, todo)))
    found = KubeletFound(
        f"{subject} of {process.unit}" if process.unit else subject,
        process.command[0],
        process.command[1:],
        process.directory,
        unit.files if unit is not None else (),
        process.pid,
    )
    if unit is not None and unit.arguments != found.arguments:
        files = ", ".join(unit.files)
        what = f"the running kubelet has other flags than its files give ({files})"
        todo = (
            "those of the process are used; systemctl daemon-reload and a restart apply the files"
        )
        findings.append(Finding(Area.KUBELET, Severity.NOTE, unit.source, what, todo))
    return KubeletChoice(found, tuple(findings))


def with_flags(choice: KubeletChoice, flags: Sequence[str]) -> KubeletChoice:
    """The choice with flags of the user, which win over those found."""
    if not flags:
        return choice
    if choice.kubelet is None:
        return KubeletChoice(KubeletFound("flags after --", "", tuple(flags)), choice.findings)
    kubelet = choice.kubelet
    source = f"{kubelet.source} and flags after --"
    return replace(
        choice, kubelet=replace(kubelet, source=source, arguments=(*kubelet.arguments, *flags))
    )


def _without_process(unit: KubeletFound | None, findings: list[Finding]) -> KubeletChoice:
    if unit is None:
        if not findings:
            todo = "name the unit with --unit, or the kubelet's flags after --"
            findings.append(_unclear("kubelet", "none runs, and no unit starts one", todo))
        return KubeletChoice(None, tuple(findings))
    what, then = "its kubelet does not run", "the settings are those of its files"
    findings.append(Finding(Area.KUBELET, Severity.NOTE, unit.source, what, then))
    return KubeletChoice(unit, tuple(findings))


# The container runtime against the settings.

SYSTEMD = "systemd"
_NO_EVENTS = (
    "its CRI has no events",
    "it is relisted every second; of containerd, task events show the ends of containers before",
)
_finding = partial(Finding, Area.RUNTIME)


def runtime_findings(
    info: RuntimeInfo,
    reported: str | None,
    configured: str,
    *,
    systemd_runs: bool,
    events: bool = True,
    pods: Iterable[Pod] = (),
) -> list[Finding]:
    """Findings on the runtime and its capabilities.

    Args:
        reported: its cgroup driver; None: it does not report one.
        configured: setting cgroupDriver.
        systemd_runs: whether systemd is the machine's init.
        events: whether it has an event stream.
        pods: those of the node.
    """
    subject = f"{info.name} {info.version}"
    handlers = ", ".join(each.get("name") or "default" for each in info.handlers) or "not reported"
    features = sorted(info.features)
    if info.supplemental_groups_policy:
        features.append("supplemental_groups_policy")
    what = f"handlers: {handlers}; features: {', '.join(features) or 'none'}"
    return [
        _finding(Severity.NOTE, subject, what),
        *([] if events else [_finding(Severity.NOTE, subject, *_NO_EVENTS)]),
        *_driver(subject, reported, configured, systemd_runs),
        *_user_namespaces(info, pods),
    ]


def _driver(
    subject: str, reported: str | None, configured: str, systemd_runs: bool
) -> Iterable[Finding]:
    driver = reported or configured
    if driver == SYSTEMD and not systemd_runs:
        what = "the cgroup driver is systemd, but systemd does not run here"
        yield _finding(Severity.BLOCKS, subject, what, "set it to cgroupfs, in the runtime too")
    elif reported is None:
        what = f"it does not report its cgroup driver; cgroupDriver is {configured}"
        then = "pods do not start if the runtime has another one: upgrade the runtime"
        yield _finding(Severity.NOTE, subject, what, then)
    elif reported != configured:
        what = f"its cgroup driver is {reported}, cgroupDriver is {configured}"
        yield _finding(Severity.NOTE, subject, what, "that of the runtime is used")


def _user_namespaces(info: RuntimeInfo, pods: Iterable[Pod]) -> Iterable[Finding]:
    if info.handlers_with("userNamespaces"):
        return
    for pod in pods:
        if pod.spec.get("hostUsers") is False:
            what = "it has hostUsers: false, and no handler of the runtime supports user namespaces"
            yield _finding(Severity.UNCLEAR, pod.key, what, "it can't start again on this node")


# Settings of containerd with which pods start and end faster. Source: docs/runtime-speed.md.

MOST_ADVICE = 2
_RUNC = "io.containerd.runc.v2"
_SAVINGS = {
    "runc": ("it starts the containers", "crun saves 26 % of the CPU"),
    "ipMasq": (
        "a CNI plugin makes iptables rules for each pod",
        "one for the subnet saves 11 % of the CPU",
    ),
    "loopback": (
        "a CNI plugin sets it up for each pod",
        "use_internal_loopback = true saves 4 % of the CPU",
    ),
    "portmap": (
        "it is called for each pod, and none has a host port",
        "a list without it saves 3 % of the CPU",
    ),
}
"""Subject -> what applies, and what saves how much; the largest first."""


def speed_findings(
    info: Mapping[str, str], *, cgroup_v2: bool, pods: Iterable[Pod] = ()
) -> list[Finding]:
    """Advice on the largest savings that apply; empty if the runtime shows no such settings.

    Args:
        info: of the CRI's verbose Status; containerd's has JSON in ``config`` and ``cniconfig``.
        cgroup_v2: whether that is the machine's only version: crun refuses both at once.
        pods: those of the node.
    """
    config = _parsed(info.get("config", ""))
    plugins = {str(each.get("type")): each for each in _plugins(info.get("cniconfig", ""))}
    applies = {
        "runc": cgroup_v2 and _runs_runc(config),
        "ipMasq": any(each.get("ipMasq") is True for each in plugins.values()),
        "loopback": _at(config, "cni").get("useInternalLoopback") is False,
        "portmap": "portmap" in plugins and not any(map(_has_host_port, pods)),
    }
    return [
        Finding(Area.SPEED, Severity.NOTE, subject, what, f"{instead} of a pod's start and end")
        for subject, (what, instead) in _SAVINGS.items()
        if applies[subject]
    ][:MOST_ADVICE]


def _runs_runc(config: Mapping[str, Any]) -> bool:
    containerd = _at(config, "containerd")
    default = _at(containerd, "runtimes", str(containerd.get("defaultRuntimeName")))
    program = str(_at(default, "options").get("BinaryName") or "runc")
    return default.get("runtimeType") == _RUNC and program.rpartition("/")[2] == "runc"


def _plugins(text: str) -> Iterable[Mapping[str, Any]]:
    """The CNI plugins that are called for each pod, as their configuration has them."""
    networks = _parsed(text).get("Networks")
    for network in networks if isinstance(networks, list) else ():
        listed = _parsed(_at(network, "Config").get("Source")).get("plugins")
        yield from (each for each in (listed if isinstance(listed, list) else ()) if _at(each))


def _parsed(text: object) -> Mapping[str, Any]:
    try:
        return _at(json.loads(str(text)))
    except ValueError:
        return {}


def _at(value: object, *path: str) -> Mapping[str, Any]:
    """The object at a path, or an empty one."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _has_host_port(pod: Pod) -> bool:
    containers = [*pod.containers, *(pod.spec.get("initContainers") or ())]
    return any(port.get("hostPort") for each in containers for port in each.get("ports") or ())


# Versions of the API server, of the node's kubelet, and the one that the agent runs as.

_VERSION = re.compile(r"v?(\d+)\.(\d+)")


def version_findings(resolved: ResolvedVersion, kubelet: str) -> list[Finding]:
    """Findings on the versions of agent and kubelet.

    ``kubelet``: the node's kubeletVersion as the API shows it, such as ``v1.36.3``; empty: unknown.
    """
    severity = Severity.UNCLEAR if resolved.warning else Severity.NOTE
    text = f"the agent runs as Kubernetes {resolved.version}"
    found = [Finding(Area.VERSION, severity, text, resolved.why)]
    match = _VERSION.match(kubelet)
    if match is None:
        return found
    minor, subject = int(match[2]), f"kubelet {kubelet}"
    if int(match[1]) != 1 or minor > resolved.version.minor:
        what = "it is newer than the version that the agent runs as"
        then = "state and pods that need its newer features are not understood"
        found.append(Finding(Area.VERSION, Severity.UNCLEAR, subject, what, then))
    elif minor < resolved.version.minor:
        what = f"the node's version changes to {resolved.version}"
        then = "defaults and feature gates are those of that version: as an upgrade of the kubelet"
        found.append(Finding(Area.VERSION, Severity.DIFFERS, subject, what, then))
    return found


# Settings with another effect than in the kubelet. Source: docs/reference/differences.csv:
# config.csv. Settings without any effect are in :mod:`kubeletpy.config.effects`.

FIELDS = ("enableServer", "tracing")
"""The fields of :func:`other_effects`, as rows of the table have them."""


def other_effects(settings: KubeletSettings, flags: NodeFlags) -> list[Notice]:
    """The settings that have another effect here, each with that effect."""
    found = []
    if not settings.enable_server:
        text = "the Node object shows no port; the kubelet publishes the port that is not served"
        found.append(Notice("enableServer", "false", text))
    if settings.tracing.endpoint is not None and settings.tracing.sampling_rate_per_million:
        text = (
            "spans are sent only if kubeletpy[tracing] is installed; steps of a sync are spans too"
        )
        found.append(Notice("tracing", "on", text))
    default = NodeFlags()
    if flags.root_dir != default.root_dir and flags.cert_dir == default.cert_dir:
        text = f"certificates are in {flags.root_dir}/pki; the kubelet has them in {flags.cert_dir}"
        found.append(Notice("--root-dir", flags.root_dir, f"{text}: give the agent --cert-dir"))
    return found
