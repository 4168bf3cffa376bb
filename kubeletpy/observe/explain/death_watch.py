"""Follows the containers of the node, and has the cause of each end decided and reported.

Facts come from the runtime's status, the agent's own stops, the kernel's log, its process events
and the counters of cgroups. The decision is in :mod:`kubeletpy.observe.explain.deaths`. Must never
touch a container; everything kept is bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.text import number
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.node.guards.oom_watch import Kill
from kubeletpy.node.stats.cgroup_text import table
from kubeletpy.node.stats.group_files import GroupFiles, container_id, read_text
from kubeletpy.pods.pod import TERMINAL_PHASES, Pod, field_path
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    Decision,
    PodRuntimeStatus,
    StopNote,
)
from kubeletpy.podworkers.state_machine import WorkerQueries
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.status.status_manager import ApiStatusManager

if TYPE_CHECKING:  # loaded with the first death
    from kubeletpy.observe.explain.deaths import DeathCause, Limit, MemoryKill, PodEnd

SETTLE_S = 0.2
"""Seconds from an end to its decision: the kernel's reports may arrive after the runtime's."""
REPORT_S = 60.0
"""Seconds between two events about killed processes of one container."""
POLL_S = 20.0
"""Seconds between two polls of the counters, for kills that the kernel did not log."""
MAX_PODS, MAX_CAUSES, MAX_STOPS = 500, 20, 2000
"""Pods and, of one, ends that are kept after the runtime has removed them; stops."""
MAX_PROCESSES = 100
"""Processes among which the main one of a container is searched for."""


class CgroupCounters(Component):
    """Reads what the kernel counts about a container, and which process is its main one."""

    groups: GroupFiles | None
    pod_path: Callable[[str], str | None]
    """A pod's cgroup by uid; None when it has none of its own."""
    proc: Path = Path("/proc")

    def find(self, uid: str, container: str) -> str:
        """Return the path of a container's cgroup, or "" if there is none."""
        pod = self.pod_path(uid) if self.groups is not None else None
        if pod is None or self.groups is None:
            return ""
        return self.groups.containers(pod).get(container, "")

    def alive(self, pid: int | None) -> bool:
        """Return whether a process exists that has not ended."""
        return pid is not None and self._stat(pid)[:1] not in ([], ["Z"], ["X"])

    def oom_kills(self, path: str) -> int | None:
        """Return how many processes were killed in a cgroup, or None if it can't be read."""
        if self.groups is None or self.groups.memory is None or not path:
            return None
        name = "memory.oom_control" if self.groups.version == 1 else "memory.events"
        return table(read_text(f"{self.groups.memory}{path}/{name}")).get("oom_kill")

    def main_process(self, path: str) -> int | None:
        """Return the first process that others outside the cgroup started, or None if unknown."""
        if self.groups is None or not path:
            return None
        pids = self.groups.processes(path)[:MAX_PROCESSES]
        found = []
        for pid in pids:
            fields = self._stat(pid)
            if len(fields) < 20 or number(fields[1]) in pids:
                continue
            found.append((number(fields[19]) or 0, pid))
        return min(found)[1] if found else None

    def _stat(self, pid: int) -> list[str]:
        """Return the fields behind the name of a process, which may contain anything."""
        return read_text(f"{self.proc}/{pid}/stat").rpartition(") ")[2].split()


class _Followed(Struct):
    """A container that runs, or whose end is about to be decided."""

    uid: str
    name: str
    id: str
    path: str
    pid: int | None
    own_pids: bool
    counted: int | None
    """Killed processes, by the counter, that are known not to have ended it."""
    pod_counted: int | None = None
    from_api: bool = False
    """The pod came from the API, as far as is known."""
    sandbox_pid: int | None = None
    """The process of a sandbox whose PID namespace the container shares."""
    sandbox_killed: bool = False
    signal: int | None = None
    main_oom: MemoryKill | None = None
    other_oom: MemoryKill | None = None
    lines: int = 0
    """Kills of other processes in the kernel's log that have not been counted."""
    unreported: int = 0
    quiet_until: float = 0.0
    """Event-loop seconds."""
    pending: bool = False
    """A report is scheduled."""
    ended: bool = False
    outlived: bool = False
    """Its main process still ran when the runtime reported its end."""


class DeathWatch(Component):
    """Make it inside a running event loop. The callables that take a text take a pod's uid."""

    cache: PodStatusCache
    pods: PodManager
    queries: WorkerQueries
    statuses: ApiStatusManager
    counters: CgroupCounters
    traces: Traces
    recorder: EventRecorder
    clock: Clock
    decided: Callable[[str, Iterable[Decision]], None]
    """Keeps what the kernel did for explain."""
    signals_since: Callable[[], float | None] = lambda: None
    """Event-loop seconds since when no death by a signal was missed; None: all are."""
    log_followed: Callable[[], bool] = lambda: False
    """Whether the kernel's log is followed."""
    read_reports: Callable[[], None] = lambda: None
    """Passes on the reports of the kernel that have arrived; a busy loop may not have yet."""

    def __post_init__(self) -> None:
        self._followed: dict[str, _Followed] = {}
        self._causes: OrderedDict[str, dict[str, DeathCause | None]] = OrderedDict()
        self._stops: OrderedDict[str, tuple[StopNote, float]] = OrderedDict()
        self._loop = asyncio.get_running_loop()
        self._began = self.clock.now()
        self._handles: set[asyncio.TimerHandle] = set()

    def causes(self, uid: str) -> Mapping[str, DeathCause]:
        """Return container id -> why it ended."""
        known = self._causes.get(uid, {})
        return {each: cause for each, cause in known.items() if cause is not None}

    async def run(self) -> None:
        """Poll the counters until canceled."""
        while True:
            await asyncio.sleep(POLL_S)
            for followed in list(self._followed.values()):
                if not followed.ended:
                    self._count(followed)

    async def close(self) -> None:
        """Decide nothing any more."""
        for handle in self._handles:
            handle.cancel()
        self._handles.clear()

    # -- the sources -------------------------------------------------------------------------

    def changed(self, uid: str) -> None:
        """The cache has a new status of a pod, or none any more."""
        status = self.cache.status(uid)
        if status is None:
            self._followed = {key: each for key, each in self._followed.items() if each.uid != uid}
            return
        for container in status.containers:
            if container.running:
                if container.id not in self._followed:
                    self._follow(uid, container)
            elif container.state is ContainerState.EXITED:
                self._ended(uid, container, status)

    def stopping(self, note: StopNote) -> None:
        """The agent stops a container."""
        known = self._stops.get(note.container_id)
        began = self.clock.now() if known is None or not note.hook_late else known[1]
        self._stops[note.container_id] = note, began
        while len(self._stops) > MAX_STOPS:
            self._stops.popitem(last=False)

    def signaled(self, pid: int, signal: int) -> None:
        """A signal has ended a process."""
        for followed in self._followed.values():
            if followed.pid == pid:
                followed.signal = signal
            elif followed.sandbox_pid == pid and not followed.ended:
                followed.sandbox_killed = True  # afterwards the agent stops it

    def killed(self, kill: Kill) -> None:
        """The kernel has killed a process for lack of memory."""
        from kubeletpy.observe.explain.deaths import MemoryKill

        ids = {container_id(part) for part in kill.group.split("/")}
        for followed in self._followed.values():
            if followed.id not in ids and followed.pid != kill.pid:
                continue
            found = MemoryKill(kill.process, kill.pid, _limit(kill, followed), self.clock.now())
            if followed.pid == kill.pid:
                followed.main_oom = found
                continue
            followed.other_oom = found
            followed.lines += 1
            self._later(2 * SETTLE_S, lambda each=followed: self._count(each))  # type: ignore[misc]

    # -- the end of a container --------------------------------------------------------------

    def _follow(self, uid: str, container: ContainerStatus) -> None:
        path = self.counters.find(uid, container.id)
        pod = self.pods.get(uid)
        shares = pod is not None and bool(pod.spec.get("shareProcessNamespace"))
        sandbox = self.counters.find(uid, container.sandbox_id) if shares else ""
        self._followed[container.id] = _Followed(
            uid,
            container.name,
            container.id,
            path,
            self.counters.main_process(path),
            own_pids=pod is not None and _has_own_pids(pod, container.name),
            from_api=pod is not None and not pod.is_static,
            counted=self.counters.oom_kills(path),
            pod_counted=self._pod_kills(path),
            sandbox_pid=self.counters.main_process(sandbox),
        )

    def _ended(self, uid: str, container: ContainerStatus, status: PodRuntimeStatus) -> None:
        causes = self._causes.setdefault(uid, {})
        if container.id in causes:
            return
        self._causes.move_to_end(uid)
        causes[container.id] = None
        # what is still there keeps its cause: it would be decided and reported anew
        removed_pods = (each for each in self._causes if self.cache.status(each) is None)
        for old in list(islice(removed_pods, max(len(self._causes) - MAX_PODS, 0))):
            del self._causes[old]
        present = {each.id for each in status.containers}
        removed = (each for each in causes if each not in present)
        for old in list(islice(removed, max(len(causes) - MAX_CAUSES, 0))):
            del causes[old]
        followed = self._followed.get(container.id) or _Followed(
            uid, container.name, container.id, "", None, own_pids=False, counted=None
        )
        if (pod := self.pods.get(uid)) is not None:
            followed.own_pids = _has_own_pids(pod, container.name)
            followed.from_api = not pod.is_static
        followed.ended, followed.outlived = True, self.counters.alive(followed.pid)
        kills = self._last_kills(followed)
        self._later(SETTLE_S, lambda: self._decide(followed, container, status, kills))

    def _decide(
        self,
        followed: _Followed,
        container: ContainerStatus,
        status: PodRuntimeStatus,
        kills: int | None,
    ) -> None:
        from kubeletpy.observe.explain.deaths import Ending, decide

        alive = followed.outlived or self.counters.alive(followed.pid)
        self.read_reports()  # on a process that did not live any more
        self._followed.pop(container.id, None)
        at = container.finished_at / 1e9 or self.clock.now()
        stop, began = self._stops.pop(container.id, (None, 0.0))
        if stop is not None and at < began - SETTLE_S:
            stop = None  # it had ended before
        signal = self._signal(followed, at)
        cause = decide(
            Ending(
                container.exit_code,
                container.reason,
                ran=container.started_at > 0,
                at=at,
                stop=stop,
                stopped_for=max(at - began, 0.0),
                pod_end=self._pod_end(followed) if stop is not None else None,
                own_pids=followed.own_pids,
                signal=signal,
                main_oom=followed.main_oom,
                other_oom=followed.other_oom,
                oom_kills=kills,
                log_followed=self.log_followed(),
                sandbox_ready=self._sandbox_ready(followed, container, status, signal),
                alive=alive,
            )
        )
        self._causes.setdefault(followed.uid, {})[container.id] = cause
        if at < self._began - SETTLE_S:
            return  # an earlier agent has reported it
        error = cause.text if cause.alarming else ""
        detail = followed.name if error else f"{followed.name}: {cause.text}"
        self.traces.happened(followed.uid, TraceCall.ENDED, detail, error=error)
        if cause.alarming:
            message = f"Container {followed.name} ended: {cause.text}"
            self._event(followed, Reason.CONTAINER_DIED, message)

    def _sandbox_ready(
        self,
        followed: _Followed,
        container: ContainerStatus,
        status: PodRuntimeStatus,
        signal: int | None,
    ) -> bool:
        """Return whether the sandbox was ready when a container ended with this status."""
        if followed.sandbox_killed:
            return False
        if followed.sandbox_pid is not None and signal is not None:
            return True  # the kernel would have reported its end
        if self._pod_end(followed) is None:  # else the agent may have stopped it since
            status = self.cache.status(followed.uid) or status
        return any(each.ready for each in status.sandboxes if container.sandbox_id in ("", each.id))

    def _signal(self, followed: _Followed, at: float) -> int | None:
        if followed.signal is not None:
            return followed.signal
        since = self.signals_since()
        if followed.pid is None or since is None:
            return None
        ended = self._loop.time() - (self.clock.now() - at)
        return 0 if since < ended else None

    def _pod_end(self, followed: _Followed) -> PodEnd | None:
        from kubeletpy.observe.explain.deaths import pod_end

        uid = followed.uid
        record = self.queries.record(uid)
        status = self.statuses.get_status(uid) or {}
        goes_on = record is not None and not record.termination_requested
        if goes_on and status.get("phase") not in TERMINAL_PHASES:
            return None
        pod = self.pods.get(uid) or (record.pod if record is not None else None)
        return pod_end(
            status.get("reason") or "",
            status.get("message") or "",
            deleted=pod is not None and pod.being_deleted,
            removed=pod is None or (record is not None and record.deleted),
            from_api=followed.from_api,
        )

    # -- killed processes of containers that live on -----------------------------------------

    def _pod_kills(self, path: str) -> int | None:
        return self.counters.oom_kills(path.rpartition("/")[0])

    def _last_kills(self, followed: _Followed) -> int | None:
        """Return the killed processes that may have ended a container, by its counters."""
        now = self.counters.oom_kills(followed.path)
        if now is not None:
            return max(now - (followed.counted or 0), 0)
        others = [each for each in self._followed.values() if each.uid == followed.uid]
        pod = self._pod_kills(followed.path)
        if pod is None or followed.pod_counted is None or len(others) > 1:
            return None
        return max(pod - followed.pod_counted, 0)

    def _count(self, followed: _Followed) -> None:
        """Count the processes that were killed although the container lives on."""
        if followed.id not in self._followed or self._main_has_ended(followed):
            return
        lines, followed.lines = followed.lines, 0
        followed.pod_counted = self._pod_kills(followed.path)
        now = self.counters.oom_kills(followed.path)
        if now is None:
            followed.unreported += lines
        else:  # the counter is believed, whatever the log has
            followed.unreported += max(now - (followed.counted or 0), 0)
            followed.counted = now
        if followed.unreported and not followed.pending:
            followed.pending = True
            wait = max(followed.quiet_until - self._loop.time(), 0.0)
            self._later(wait, lambda: self._report(followed))

    def _main_has_ended(self, followed: _Followed) -> bool:
        """Return whether the main process has ended, which the runtime may report later."""
        if followed.ended or followed.main_oom is not None or followed.signal is not None:
            return True
        return followed.pid is not None and not self.counters.alive(followed.pid)

    def _report(self, followed: _Followed) -> None:
        count, followed.unreported, followed.pending = followed.unreported, 0, False
        followed.quiet_until = self._loop.time() + REPORT_S
        kill = followed.other_oom
        named = f": {kill.text}" if kill is not None else ""
        limit = f" of the {kill.limit}" if kill is not None and kill.limit else ""
        what = "A process was" if count == 1 else f"{count} processes were"
        main = "lived on" if self._main_has_ended(followed) else "lives on"
        message = (
            f"{what} killed in container {followed.name} at the memory limit{limit}, "
            f"and its main process {main}{named}"
        )
        self._event(followed, Reason.PROCESS_OOM_KILLED, message)
        decision = Decision(f"out of memory in container {followed.name}", message, failed=True)
        self.decided(followed.uid, (decision,))
        self.traces.happened(followed.uid, TraceCall.OOM_KILL, followed.name, error=message)

    def _event(self, followed: _Followed, reason: Reason, message: str) -> None:
        record = self.queries.record(followed.uid)
        pod = self.pods.get(followed.uid) or (record.pod if record is not None else None)
        if pod is None:
            return
        found = pod.find_container(followed.name)
        path = field_path(found[0], followed.name) if found is not None else ""
        self.recorder.event(pod_reference(pod, path), WARNING, reason, message[:1024])

    def _later(self, delay: float, act: Callable[[], None]) -> None:
        def run() -> None:
            self._handles.discard(handle)
            act()

        handle = self._loop.call_later(delay, run)
        self._handles.add(handle)


def _limit(kill: Kill, followed: _Followed) -> Limit:
    """Return whose limit was reached, by the kernel's path of the cgroup."""
    from kubeletpy.observe.explain.deaths import Limit

    if not kill.in_group:
        return Limit.NODE
    if not kill.limit:
        return Limit.UNKNOWN
    if followed.id in kill.limit:
        return Limit.CONTAINER
    return Limit.POD if followed.uid in kill.limit.replace("_", "-") else Limit.NODE


def _has_own_pids(pod: Pod, name: str) -> bool:
    """Return whether a container's main process is process 1 of a namespace of its own."""
    spec = pod.spec
    found = pod.find_container(name)
    target = found is not None and bool(found[1].get("targetContainerName"))
    return not (spec.get("hostPID") or spec.get("shareProcessNamespace") or target)
