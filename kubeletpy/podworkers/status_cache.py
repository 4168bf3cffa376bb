"""The newest runtime status of each pod, fed by the PLEG and by the workers' own calls. Pure.

The status observed later wins, whatever its source. Must never call the runtime.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from kubeletpy.base.structs import Struct, replace
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus


def essence(status: PodRuntimeStatus) -> tuple[object, ...]:
    """The part of a status that a worker reacts to; the rest may differ."""
    return (
        tuple((s.id, s.ready, s.ips) for s in status.sandboxes),
        tuple((c.id, c.state, c.exit_code) for c in status.containers),
        status.ips,
    )


def with_known_ends(own: PodRuntimeStatus, known: PodRuntimeStatus) -> PodRuntimeStatus:
    """A status that a worker made from its own calls, plus the exits that were reported meanwhile.

    Such a status shows everything that its calls did not touch as it was when the sync began. A
    container that has exited since would seem to run again, and its exit would be lost until the
    next relist. Returns the very same object when there is nothing to add.
    """
    ended = {c.id: c for c in known.containers if c.state is ContainerState.EXITED}
    stopped = {s.id: s for s in known.sandboxes if not s.ready}
    containers = tuple(
        c if c.state is ContainerState.EXITED else ended.get(c.id, c) for c in own.containers
    )
    sandboxes = tuple(stopped.get(s.id, s) if s.ready else s for s in own.sandboxes)
    if containers == own.containers and sandboxes == own.sandboxes:
        return own
    return replace(own, containers=containers, sandboxes=sandboxes)


Subscriber = Callable[[str], None]
"""Called with the uid of a pod whose status has changed."""


class CacheEntry(Struct, frozen=True):
    """The cached facts about one pod."""

    status: PodRuntimeStatus
    error: str = ""
    """Why the runtime's last answer failed; empty when it did not."""
    fresh: bool = True
    """False when the pod has been acted on since."""
    own: bool = False
    """The status comes from the pod's worker, which need not be notified."""


class PodStatusCache:
    """The runtime status of each pod, by uid.

    ``populated``: a relist has been made, so absence means that nothing runs.
    """

    def __init__(self) -> None:
        self._entries: dict[str, CacheEntry] = {}
        self._running: set[str] = set()
        self._doubtful: set[str] = set()
        """Pods without an entry for which something was attempted in the runtime."""
        self._subscribers: list[Subscriber] = []
        self.populated = False

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def get(self, uid: str) -> CacheEntry | None:
        """The entry of a pod."""
        return self._entries.get(uid)

    def status(self, uid: str) -> PodRuntimeStatus | None:
        """The newest status of a pod, fresh or not."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.status

    def usable(self, uid: str) -> PodRuntimeStatus | None:
        """The status if it is safe to decide from; None when the runtime must be queried."""
        entry = self._entries.get(uid)
        if entry is None or not entry.fresh or entry.error:
            return None
        return entry.status

    def known_absent(self, uid: str) -> bool:
        """Whether the runtime is known to have nothing of the pod."""
        return self.populated and uid not in self._entries and uid not in self._doubtful

    def is_doubtful(self, uid: str) -> bool:
        """Whether more of the pod may run than its status shows: it was acted on since, or the
        runtime could not report it."""
        entry = self._entries.get(uid)
        return uid in self._doubtful if entry is None else not entry.fresh or bool(entry.error)

    def confirm_absent(self, uid: str) -> None:
        """The runtime has nothing of the pod, or it no longer matters."""
        self._doubtful.discard(uid)

    def running(self) -> frozenset[str]:
        """The uids of pods with a running container or a ready sandbox, and of pods that the
        runtime lists but that could not be read yet: they may have either."""
        return frozenset(self._running)

    def runs(self, uid: str, container_id: str) -> bool:
        """Whether a container of a pod runs, by the newest status."""
        status = self.status(uid)
        record = status.by_id(container_id) if status is not None else None
        return record is not None and record.running

    def owner(self, runtime_id: str) -> str | None:
        """The uid of the pod that has a container or sandbox, by the newest status."""
        for uid, entry in self._entries.items():
            status = entry.status
            if status.by_id(runtime_id) is not None or any(
                sandbox.id == runtime_id for sandbox in status.sandboxes
            ):
                return uid
        return None

    def counts(self) -> tuple[int, dict[str, int]]:
        """Pods with a ready sandbox, and containers by state: kubelet_running_pods and
        kubelet_running_containers."""
        pods, containers = 0, Counter[str]()
        for entry in self._entries.values():
            pods += entry.status.has_ready_sandbox
            containers.update(container.state.value for container in entry.status.containers)
        return pods, dict(containers)

    def quiet(self, uid: str) -> bool:
        """Whether it is known that no container and no sandbox of the pod runs."""
        entry = self._entries.get(uid)
        if entry is None:
            return self.known_absent(uid)
        return uid not in self._running

    def refuses(self, status: PodRuntimeStatus) -> bool:
        """Whether a status is older than the one kept, and would be dropped."""
        old = self._entries.get(status.uid)
        return old is not None and not old.error and status.observed_at < old.status.observed_at

    def set(self, status: PodRuntimeStatus, *, own: bool = False) -> bool:
        """Keep a status; returns whether a worker has to react to it (by its essence).

        A status older than the one kept is dropped. IPs of a pod that has ended are kept
        (docs/reference/behaviour.md, a9). The worker has seen its ``own`` statuses, unless
        something was reported about the pod that it has not seen yet.
        """
        old = self._entries.get(status.uid)
        if old is not None and own:
            merged = with_known_ends(status, old.status)
            own, status = merged is status, merged
        if old is not None:
            if self.refuses(status):
                return False
            if not status.ips and not status.has_ready_sandbox:
                status = replace(status, ips=old.status.ips)
        same = old if old is not None and essence(old.status) == essence(status) else None
        # what the worker wrote itself stays known to it while the runtime only repeats it
        self._doubtful.discard(status.uid)
        known = own or (same is not None and same.own)
        self._entries[status.uid] = CacheEntry(status, own=known)
        if same is not None and not same.error:
            return False
        if status.running_containers or status.has_ready_sandbox:
            self._running.add(status.uid)
        else:
            self._running.discard(status.uid)
        self._notify(status.uid)
        return True

    def set_error(self, status: PodRuntimeStatus, error: str) -> None:
        """Note that the runtime could not report a pod's status; ``status`` names the pod.

        Until it can, the pod may be running: what it uses must not be taken away.
        """
        old = self._entries.get(status.uid)
        kept = status if old is None else old.status
        self._entries[status.uid] = CacheEntry(kept, error=error)
        self._running.add(status.uid)
        if old is None or old.error != error:
            self._notify(status.uid)

    def invalidate(self, uid: str) -> None:
        """The pod was acted on with unknown result: query the runtime before deciding."""
        if (entry := self._entries.get(uid)) is not None:
            self._entries[uid] = replace(entry, fresh=False)
        else:
            self._doubtful.add(uid)

    def remove(self, uid: str) -> bool:
        """The runtime has nothing of the pod any more; returns whether it had."""
        self._running.discard(uid)
        if self._entries.pop(uid, None) is None:
            return False
        self._notify(uid)
        return True

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call a function on every change; it must not block."""
        self._subscribers.append(subscriber)

    def _notify(self, uid: str) -> None:
        for subscriber in self._subscribers:
            subscriber(uid)
