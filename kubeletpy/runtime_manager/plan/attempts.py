"""Which attempt the next start of a container is, when the runtime has no record of it. Pure.

Source: docs/reference/behaviour.md, c9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeletpy.base.api import types as api

NO_RUN = -1
"""Stands for the last run of a container that has had none."""


def attempt_by_logs(logs: Mapping[str, int], last_run: int | None) -> int:
    """The attempt after those that left logs: the highest ``{n}.log*`` plus one, or 0.

    An older log must not be overwritten, but an empty newest log may be. A runtime may open it
    before it makes the container, and leave it behind when the creation fails or is interrupted by
    the agent's death. Then that attempt is made again, unless the pod's status shows that it, or a
    later one, ran.

    Args:
        logs: names of the files in the container's log directory, with their sizes in bytes.
        last_run: as :func:`last_run_shown` gives it.
    """
    sizes: dict[int, list[tuple[str, int]]] = {}
    for name, size in logs.items():
        number, _, rest = name.partition(".")
        counts = number.isascii() and number.isdigit() and len(number) <= 9
        if counts and (rest == "log" or rest.startswith("log.")):
            sizes.setdefault(int(number), []).append((name, size))
    if not sizes:
        return 0
    newest = max(sizes)
    was_cut_off = last_run is not None and newest > last_run and _is_empty_log(sizes[newest])
    return newest if was_cut_off else newest + 1


def _is_empty_log(files: list[tuple[str, int]]) -> bool:
    """Whether nothing was ever written: what has been rotated (``0.log.*``) had text."""
    return all(name.endswith(".log") and size == 0 for name, size in files)


def last_run_shown(status: api.PodStatus | None, container: str) -> int | None:
    """The restart count of a container's last run that a pod's status shows.

    Returns:
        NO_RUN: none. None: there is no status to go by.
    """
    if status is None:
        return None
    for entry in _statuses(status):
        if entry.get("name") == container:
            return (entry.get("restartCount") or 0) if _has_run(entry) else NO_RUN
    return NO_RUN


def _statuses(status: api.PodStatus) -> Iterable[api.ContainerStatus]:
    yield from status.get("containerStatuses") or ()
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("ephemeralContainerStatuses") or ()


def _has_run(status: api.ContainerStatus) -> bool:
    states = [status.get("state") or {}, status.get("lastState") or {}]
    ran = any(state.get("running") or state.get("terminated") for state in states)
    return ran or bool(status.get("containerID")) or bool(status.get("restartCount"))
