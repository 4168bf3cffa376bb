"""Which cgroup driver `./up.sh` uses, and how trial sandboxes show a runtime's (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kubeletpy.resources.cgroups.values import SLICE, CgroupDriver, PodCgroupNames, to_systemd

CGROUPFS, SYSTEMD = "cgroupfs", "systemd"
TRIAL_PARENT = {CGROUPFS: "", SYSTEMD: "system.slice"}
"""The cgroup parent of a trial sandbox: it exists, or the runtime has its own; nothing is left."""
MAX_WHY = 400
_NO_IMAGE = re.compile(r'failed to get sandbox image "([^"]+)"')
_WANTS_A_SLICE = (
    "expected cgroupsPath to be of format",  # runc
    "did not receive slice as parent",  # CRI-O
)


@dataclass(frozen=True)
class Trial:
    """One attempt to run a sandbox: with which driver, and which image to import before it."""

    driver: str
    image: str = ""


def own_driver(systemd_runs: bool) -> str:
    """The driver of our own containerd: where systemd runs, every cgroup is systemd's."""
    return SYSTEMD if systemd_runs else CGROUPFS


def first_trial(reported: str | None) -> Trial:
    """The first trial: the driver that the runtime reports.

    If it reports none (containerd before 2.0), the trial uses cgroupfs, whose form a runtime on
    systemd refuses. A runtime with either driver would accept the form for systemd.
    """
    return Trial(reported or CGROUPFS)


def next_trial(tried: Trial, imported: bool, reported: str | None, error: str) -> Trial | None:
    """The next trial after a refusal; None: nothing would help.

    Args:
        imported: an image was imported already.
        reported: the driver that the runtime reports; None: it reports none.
        error: the text of the refusal.
    """
    missing = _NO_IMAGE.search(error)
    if missing is not None:
        return None if imported else Trial(tried.driver, missing[1])
    wants_systemd = any(text in error for text in _WANTS_A_SLICE)
    if wants_systemd and tried.driver == CGROUPFS and reported is None:
        return Trial(SYSTEMD)
    return None


def one_line(text: str) -> str:
    """A runtime's error as part of a line for a person."""
    folded = " ".join(text.split())
    return folded if len(folded) <= MAX_WHY else f"{folded[:MAX_WHY]} …"


def cgroup_directory(cgroups_path: str) -> str:
    """The path below a hierarchy of `linux.cgroupsPath` of a container's OCI configuration.

    `a-b.slice:cri-containerd:ID` is `/a.slice/a-b.slice/cri-containerd-ID.scope` for systemd.
    """
    parts = cgroups_path.split(":")
    if len(parts) != 3 or not parts[0].endswith(SLICE):
        return cgroups_path
    levels = parts[0].removesuffix(SLICE).split("-")
    return f"{to_systemd(tuple(levels))}/{parts[1]}-{parts[2]}.scope"


def pod_slices(uids: set[str], names: list[str]) -> list[str]:
    """Those of the names that are slices of these pods."""
    slices = PodCgroupNames(CgroupDriver.SYSTEMD)
    return [name for name in names if slices.pod_uid(name) in uids]
