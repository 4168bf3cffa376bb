"""Lists what the termination of a pod waits for, volume by volume. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kubeletpy.volumes.claims.model import VolumeWait, WaitCause, Waits
from kubeletpy.volumes.operations.backoff import Tried
from kubeletpy.volumes.operations.model import Failure, Operation, OperationKind, Volume
from kubeletpy.volumes.operations.plan import backs_off


def ending_waits(
    uid: str,
    actual: Mapping[str, Volume],
    under_way: Iterable[tuple[Operation, float]],
    failures: Mapping[Tried, Failure],
) -> Iterator[VolumeWait]:
    """The volumes that are being torn down for a pod, or could not be.

    ``under_way``: each operation, and when it began in event-loop time.
    """
    begun = {each.key: (each, at) for each, at in under_way if each.kind is OperationKind.UNPUBLISH}
    for volume in actual.values():
        mount, key = volume.pods.get(uid), (volume.unique_name, uid)
        if mount is None:
            continue
        about, failure = (
            f'volume "{volume.unique_name}"',
            failures.get((OperationKind.UNPUBLISH, key)),
        )
        if key in begun:
            operation, at = begun[key]
            wait = Waits(WaitCause.BUSY, about, f"{operation.call} is under way", operation.call)
            yield VolumeWait(mount.left.spec_name, wait, at)
        elif failure is not None:
            yield VolumeWait(mount.left.spec_name, backs_off(about, failure), failure.at)
