"""The last line that each container wrote before it failed, from its log.

Pure: the files are read by whoever is given. For root on this machine only: who may see a pod's
state need not be allowed to see its logs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus

ReadEnd = Callable[[ContainerStatus], str]
"""Some text at the end of the log of a run. Blocks on the file; raises OSError."""
MAX_CONTAINERS = 20


def log_ends(records: Sequence[ContainerStatus], read: ReadEnd) -> dict[str, str]:
    """Container name -> the last line of its latest run, if that failed. Blocks on the files.

    ``records``: the runtime's, of one pod.
    """
    latest: dict[str, ContainerStatus] = {}
    for record in sorted(records, key=lambda one: one.finished_at):
        if record.state is ContainerState.EXITED:
            latest[record.name] = record
    failed = [one for one in latest.values() if one.exit_code and one.log_path]
    found: dict[str, str] = {}
    for record in failed[:MAX_CONTAINERS]:
        try:
            text = read(record)
        except OSError:
            continue  # it was removed or rotated, or it is no log
        lines = [line for line in text.splitlines() if line.strip()]
        if lines:
            found[record.name] = lines[-1]
    return found
