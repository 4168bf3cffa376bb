"""The order of a preflight: finds the kubelet, loads its settings, collects the findings."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.config.load import Check
from kubeletpy.preflight.choice import Choice, choose, with_flags
from kubeletpy.preflight.findings import KubeletFound, Report
from kubeletpy.preflight.processes import find_kubelets
from kubeletpy.preflight.settings import load_settings
from kubeletpy.preflight.unit_file import UnitError
from kubeletpy.preflight.unit_paths import UnitMissing, kubelet_units, read_unit
from kubeletpy.structs import Struct

DEFAULT_UNIT = "kubelet.service"


class Options(Struct, frozen=True):
    """What the user asked for.

    Attributes:
        unit: the unit of the kubelet; empty: kubelet.service, and others are looked for.
        pid: the process of the kubelet; 0: the one that runs.
        flags: of the kubelet; they win over those found.
        only_flags: use these flags alone.
    """

    unit: str = ""
    pid: int = 0
    flags: tuple[str, ...] = ()
    only_flags: bool = False


def gather(options: Options, check: Check | None = None) -> Report:
    """The report about this node. ``check``: finds settings that do not fit the machine."""
    choice = find_kubelet(options)
    if choice.kubelet is None:
        return Report(None, choice.findings)
    loaded = load_settings(choice.kubelet, check)
    return Report(choice.kubelet, (*choice.findings, *loaded.findings))


def find_kubelet(options: Options, root: Path = Path("/"), proc: Path = Path("/proc")) -> Choice:
    """The kubelet of this node. ``root``, ``proc``: where the machine's files are."""
    if options.only_flags:
        return with_flags(Choice(None), options.flags)
    processes = find_kubelets(proc)
    if options.pid:
        processes = [each for each in processes if each.pid == options.pid]
    name = options.unit or DEFAULT_UNIT
    unit, problem = _unit(name, root, wanted=bool(options.unit))
    if options.unit:
        processes = [each for each in processes if each.unit in ("", name)]
    units = [] if options.unit or options.pid else kubelet_units(root)
    others = [each for each in units if each != name]
    if unit is None and not problem and len(others) == 1 and not options.pid:
        unit, problem = _unit(others.pop(), root, wanted=True)
    return with_flags(choose(processes, unit, problem, others), options.flags)


def _unit(name: str, root: Path, *, wanted: bool) -> tuple[KubeletFound | None, str]:
    try:
        return read_unit(name, root), ""
    except UnitMissing as error:
        return None, str(error) if wanted else ""
    except UnitError as error:
        return None, str(error)
