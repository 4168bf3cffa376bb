"""The last lines of containers' logs: of those that failed one, for a page some of each.

Pure: the files are read by whoever is given. For root on this machine only: who may see a pod's
state need not be allowed to see its logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus

ReadEnd = Callable[[ContainerStatus], str]
"""Some text at the end of the log of a run. Blocks on the file; raises OSError."""
MAX_CONTAINERS = 20
MAX_LINES = 10
"""Lines of one container that are returned for a page."""


def log_ends(records: Sequence[ContainerStatus], read: ReadEnd) -> dict[str, str]:
    """Container name -> the last line of its latest run, if that failed. Blocks on the files.

    ``records``: the runtime's, of one pod.
    """
    exited = (each for each in records if each.state is ContainerState.EXITED)
    latest = {each.name: each for each in sorted(exited, key=lambda one: one.finished_at)}
    failed = [one for one in latest.values() if one.exit_code]
    return {name: lines[-1] for name, lines in _read(failed, read).items()}


def log_tails(records: Sequence[ContainerStatus], read: ReadEnd) -> dict[str, list[str]]:
    """Container name -> the last lines of its latest run, at most MAX_LINES. Blocks on the files.

    Containers without a readable log are left out. ``records``: the runtime's, of one pod.
    """
    latest = {each.name: each for each in sorted(records, key=lambda one: one.rank)}
    return {name: lines[-MAX_LINES:] for name, lines in _read(latest.values(), read).items()}


def _read(records: Iterable[ContainerStatus], read: ReadEnd) -> dict[str, list[str]]:
    """Container name -> the lines at the end of its log that are not blank, if there are any."""
    found: dict[str, list[str]] = {}
    for record in [one for one in records if one.log_path][:MAX_CONTAINERS]:
        try:
            text = read(record)
        except OSError:
            continue  # it was removed or rotated, or it is no log
        if lines := [line for line in text.splitlines() if line.strip()]:
            found[record.name] = lines
    return found
