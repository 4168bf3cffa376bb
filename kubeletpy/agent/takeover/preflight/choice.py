"""Which kubelet is meant, of the running ones and those of units. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kubeletpy.agent.takeover.preflight.findings import Area, Finding, KubeletFound, Severity
from kubeletpy.base.structs import Struct, replace

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
