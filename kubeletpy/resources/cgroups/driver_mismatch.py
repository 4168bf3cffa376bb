"""Concludes which cgroup driver a runtime used for a sandbox, and how to fix a mismatch. Pure.

Only evidence with no other cause counts: a name that has the sandbox's id in the form of a driver,
or an error that quotes the pod's own cgroup. The absence of a cgroup proves nothing: a sandbox may
have ended, and some runtimes have no cgroups.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kubeletpy.base.structs import replace
from kubeletpy.resources.cgroups.values import SLICE, CgroupDriver, PodCgroupNames

SCOPE = ".scope"
MAX_NAMED = 3
"""The most pods that a message names."""
_RUNC_REFUSES = (
    'expected cgroupsPath to be of format "slice:prefix:name" for systemd cgroups, got "'
)
_CRIO_NEEDS_A_SLICE = (
    "configured with systemd cgroup manager, but did not receive slice as parent: "
)
_CRIO_NEEDS_A_PATH = (
    "configured with cgroupfs cgroup manager, but received systemd slice as parent: "
)


def is_placed(sandbox_id: str, children: Collection[str]) -> bool:
    """Whether one of the children of a pod's cgroup is the sandbox's.

    Runtimes name it ``ID``, ``RUNTIME-ID`` or ``RUNTIME-ID.scope``.
    """
    return bool(sandbox_id) and any(
        child.removesuffix(SCOPE).rpartition("-")[2] == sandbox_id for child in children
    )


def used_elsewhere(
    expected: CgroupDriver, sandbox_id: str, pod_cgroup: str, name: str
) -> CgroupDriver | None:
    """The driver that made a cgroup of this name, if it is the sandbox's in another driver's form.

    A runtime on cgroupfs takes ``SLICE:PREFIX:ID``, which is meant for systemd, for a directory's
    name. A runtime on systemd puts the sandbox into ``PREFIX-ID.scope``.

    Args:
        expected: the driver that the agent uses.
        pod_cgroup: the path that the runtime was passed as the sandbox's parent.
        name: the last component of some cgroup's path.
    """
    if not sandbox_id:
        return None
    if expected is CgroupDriver.SYSTEMD:
        parts = name.split(":")
        slice_name = pod_cgroup.rpartition("/")[2]
        wrong = len(parts) == 3 and (parts[0], parts[2]) == (slice_name, sandbox_id)
        return CgroupDriver.CGROUPFS if wrong and slice_name.endswith(SLICE) else None
    prefix, dash, rest = name.removesuffix(SCOPE).rpartition("-")
    scope = name.endswith(SCOPE) and bool(prefix and dash) and rest == sandbox_id
    return CgroupDriver.SYSTEMD if scope else None


def left_outside(names: PodCgroupNames, name: str) -> str | None:
    """The uid of the pod of which a runtime on cgroupfs made a cgroup of this name, else None.

    Its name is that of the pod's slice, ``PREFIX`` and ``ID``, with colons between them.
    """
    slice_name, _, rest = name.partition(":")
    if len(rest.split(":")) != 2:
        return None
    in_slices = replace(names, driver=CgroupDriver.SYSTEMD)
    kubepods = in_slices.kubepods.rpartition("/")[2].removesuffix(SLICE)
    return in_slices.pod_uid(slice_name) if slice_name.startswith(f"{kubepods}-") else None


def used_by_error(expected: CgroupDriver, pod_cgroup: str, error: str) -> CgroupDriver | None:
    """The driver of a runtime that refused a sandbox because its parent has the other's form.

    The error has to quote the pod's cgroup. It has the pod's uid in it, which the API server chose
    after somebody wrote the pod's spec: no text in a spec can imitate such an error.
    """
    text = error.replace("\\", "")
    if expected is CgroupDriver.CGROUPFS:
        refused = (
            f"{_RUNC_REFUSES}{pod_cgroup}/" in text or f"{_CRIO_NEEDS_A_SLICE}{pod_cgroup}" in text
        )
        return CgroupDriver.SYSTEMD if refused else None
    return CgroupDriver.CGROUPFS if f"{_CRIO_NEEDS_A_PATH}{pod_cgroup}" in text else None


def mismatch(agent: CgroupDriver, used: CgroupDriver, runtime: str, *, reported: bool) -> str:
    """One sentence that names both settings and the line to change.

    Args:
        agent: the driver that the agent uses.
        used: the one that the runtime uses.
        runtime: the runtime's name, as it reports it.
        reported: the agent has its driver from the runtime and not from its configuration.
    """
    line = runtime_line(agent, runtime)
    if reported:
        return (
            f"cgroup driver mismatch: the container runtime uses {used}, but the agent uses "
            f"{agent}, which the runtime reported when the agent started: restart the agent, or "
            f"set {line}"
        )
    return (
        f"cgroup driver mismatch: the container runtime uses {used}, but the agent's configuration "
        f'has cgroupDriver {agent}: set "cgroupDriver: {used}" there, or {line}'
    )


def left_running(pods: Sequence[str], kubepods: str) -> str:
    """One sentence about pods whose containers outlived a mismatch; empty when there are none.

    Args:
        pods: their names, or uids where the name is not known.
        kubepods: the path of the cgroup of all pods.
    """
    if not pods:
        return ""
    more = f" and {len(pods) - MAX_NAMED} more" if len(pods) > MAX_NAMED else ""
    return (
        f"cgroup driver mismatch: containers of {', '.join(pods[:MAX_NAMED])}{more} run outside "
        f"{kubepods}, where a container runtime with another cgroup driver put them, so the limits "
        "of their pods do not hold: delete these pods"
    )


def runtime_line(driver: CgroupDriver, runtime: str) -> str:
    """The line of a runtime's configuration that sets a driver, for a person."""
    if runtime == "containerd":
        value = "true" if driver is CgroupDriver.SYSTEMD else "false"
        return f'"SystemdCgroup = {value}" in containerd\'s configuration (options of runtime runc)'
    if runtime == "cri-o":
        return f"\"cgroup_manager = '{driver}'\" in CRI-O's configuration"
    return f"the cgroup driver {driver} in the runtime's configuration"
