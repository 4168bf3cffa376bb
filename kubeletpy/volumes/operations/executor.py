"""Carries out plans of volume operations: as soon as anything changes, without polling.

Each operation is a task of its own with exclusive use of its volume (or one pod's part of it): a
hanging driver delays only its own volumes. :mod:`kubeletpy.volumes.operations.plan` decides which
operation is next. Source: docs/reference/behaviour-storage.md, sd, sg, sn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.claims.resolve import Attached, NodeObservation, Observe
from kubeletpy.volumes.operations import model as operations
from kubeletpy.volumes.operations.plan import ending_waits, plan
from kubeletpy.volumes.operations.runner import (
    CarryOut,
    OperationListener,
    OperationRunner,
    VolumeState,
)

log = logging.getLogger(__name__)

WaitKey = tuple[str, str]
"""Pod uid, name of its volume."""
PATIENCE_S = 5.0
"""How long a pod's sync waits for operations in progress; it is woken when they end later."""


class VolumeOperations:
    """The volume operations of this node. Make it inside a running event loop."""

    def __init__(
        self,
        state: VolumeState,
        observe: Observe,
        carry_out: CarryOut,
        listener: OperationListener,
        *,
        changed: Callable[[str], None],
        in_use_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Follow the plugins of ``state``; nothing runs before ``reconstruct``.

        Args:
            state: this node's volumes; nothing else replaces what is in it.
            observe: returns what the API shows of this node, for the volumes passed to it.
            carry_out: does one operation.
            listener: notified of the result of each.
            changed: called with the uid of a pod whose volumes are ready, or wait for something
                else.
            in_use_changed: called when ``volumes_in_use`` has changed.
        """
        self.state = state
        self._observe = observe
        self._listener = listener
        self._changed = changed
        self._in_use_changed = in_use_changed
        self._backoffs = operations.Backoffs()
        self._runner = OperationRunner(
            self.state,
            self._backoffs,
            carry_out,
            listener,
            attachment=self._attachment_now,
            ended=self._ended,
        )
        self._plan = operations.OperationsPlan()
        self._reported: dict[str, frozenset[object]] = {}
        self._waiting = VolumeWaiters()
        self._times = WaitTimes()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._in_use = operations.InUse()
        self._closed = False
        self.leftovers_judged = False
        self.known = asyncio.Event()
        """Set once the volumes left by a previous agent are known."""
        for plugin in state.plugins.values():
            plugin.on_change(self.driver_changed)

    # -- what pods need ----------------------------------------------------------------------

    def demand(
        self, pod: Pod, specs: Sequence[claims.VolumeSpec], waits: Mapping[str, claims.Waits]
    ) -> None:
        """Record what a pod needs; a pod whose end was requested needs nothing any more."""
        before = self.state.demands.get(pod.uid)
        if before is not None and before.ending:
            return
        self.state.pods[pod.uid] = pod
        self.state.demands[pod.uid] = operations.PodDemand(pod.uid, tuple(specs), dict(waits))
        self._recognize(pod.uid)
        self.replan_soon()

    async def settled(self, uid: str) -> Mapping[str, claims.Waits]:
        """The waits of a pod's volumes, once its operations have ended or take long."""
        await self.known.wait()
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        with self._waiting.at(uid) as happened, suppress(TimeoutError):
            while True:
                self._replan()
                waits = self.waits(uid)
                if not is_busy(waits):
                    return waits
                happened.clear()
                async with asyncio.timeout_at(until):
                    await happened.wait()
        return self.waits(uid)

    async def end(self, uid: str) -> None:
        """Tear down all volumes of a pod.

        Raises:
            OperationFailed: something remains; retries go on, and the pod is woken.
        """
        await self.known.wait()
        self.begin_end(uid)
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        with self._waiting.at(uid) as happened:
            while self.state.has(uid):
                failure = self._backoffs.of_unpublish(uid)
                if failure is not None:
                    raise claims.OperationFailed(
                        claims.FailureOutcome.UNCERTAIN, failure.message, call=failure.call
                    )
                happened.clear()
                try:
                    async with asyncio.timeout_at(until):
                        await happened.wait()
                except TimeoutError:
                    call = next((r.operation.call for r in self.state.of_pod(uid)), "its turn")
                    raise claims.StillUnderWay(call) from None
        self.state.forget(uid)
        self._reported.pop(uid, None)

    def begin_end(self, uid: str) -> None:
        """Tear down the volumes of a pod, without waiting for it."""
        if self.state.has(uid) or any(self.state.of_pod(uid)):
            self.state.demands[uid] = operations.PodDemand(uid, ending=True)
        else:
            self.state.demands.pop(uid, None)
        self.replan_soon()

    # -- what there is -----------------------------------------------------------------------

    def waits(self, uid: str) -> dict[str, claims.Waits]:
        """The volumes of a pod that are not ready -> what they wait for."""
        return {name: wait for (of, name), wait in self._plan.waits.items() if of == uid}

    def reports(self, uid: str) -> list[claims.VolumeWait]:
        """The wait of each volume of a pod, for setup or teardown, and when it began."""
        found = []
        for name, wait in self.waits(uid).items():
            began, spec = self._times.began_at((uid, name)), self.state.spec(uid, name)
            of = ("", "") if spec is None else (spec.driver, spec.export)
            found.append(claims.VolumeWait(name, wait, began, *of))
        under_way = [(each.operation, each.begun) for each in self.state.running.values()]
        found += ending_waits(uid, self.state.actual, under_way, self._backoffs.failures)
        return found

    def volumes_in_use(self) -> list[str] | None:
        """For the next status update of the node; None: not known yet, the API's list stays."""
        return self._in_use.report()

    def volumes_in_use_written(self) -> None:
        """The API has the node's status with the volumes that were reported last."""
        if self._in_use.written():
            self.replan_soon()

    # -- what happens ------------------------------------------------------------------------

    async def reconstruct(self) -> None:
        """Find the volumes left by a previous agent. Call it once, at the start."""
        for plugin in self.state.plugins.values():
            try:
                found = await asyncio.to_thread(plugin.find_on_disk)
            except OSError as error:
                log.error(
                    "volumes of an earlier agent could not be searched for",
                    extra={"plugin": plugin.name, "why": str(error)},
                )
                continue
            self._listener.leftovers_found(found)
            self.state.actual = operations.reconstructed(self.state.actual, plugin.name, found)
        for uid in self.state.demands:
            self._recognize(uid)
        self.known.set()
        self.replan_soon()

    def driver_changed(self, driver: str) -> None:
        """A driver came or went: retry its failures at once and wake waiting pods."""
        self._backoffs.driver_changed(driver)
        for uid, demand in self.state.demands.items():
            if demand.waits:
                self._changed(uid)
        self.replan_soon()

    def replan_soon(self) -> None:
        """Plan again in the next turn of the event loop."""
        if self._soon is None and not self._closed:
            self._soon = asyncio.get_running_loop().call_soon(self._replan)

    async def close(self) -> None:
        """Start nothing more; what is mounted stays."""
        self._closed = True
        for handle in (self._timer, self._soon):
            if handle is not None:
                handle.cancel()
        await cancel_tasks(running.task for running in self.state.running.values())

    def _replan(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._closed or not self.known.is_set():
            return
        now = asyncio.get_running_loop().time()
        observed = self._observe(
            [spec for demand in self.state.demands.values() for spec in demand.specs]
        )
        facts = self._facts(observed)
        made = plan(self.state.demands.values(), self.state.actual, facts, now)
        for name in made.forgotten:
            del self.state.actual[name]
        for operation in made.operations:
            self._runner.start(operation)
        self._plan = made
        self._times.update(made.waits, now)
        self._wake_at(made.next_at)
        self._update_in_use(observed.in_use)
        self._listener.counted(list(self.state.demands.values()), self.state.actual)
        for uid, demand in list(self.state.demands.items()):
            if demand.ending and not self.state.has(uid) and uid not in self._waiting:
                self.state.forget(uid)
                self._reported.pop(uid, None)
        self._wake_pods()

    def _recognize(self, uid: str) -> None:
        self._spell([spec.unique_name for spec in self.state.demands[uid].specs])
        for spec in self.state.demands[uid].specs:
            plugin = self.state.plugins[spec.plugin]
            mount, staged = plugin.published(spec, uid), plugin.staged(spec)
            self.state.actual = operations.recognized(self.state.actual, mount, staged)

    def _spell(self, names: Collection[str]) -> None:
        busy = {each.operation.unique_name for each in self.state.running.values()}
        self.state.actual = operations.spelled(self.state.actual, names, busy)

    def _facts(self, observed: NodeObservation) -> operations.Facts:
        attachments: dict[str, Attached | claims.Waits] = {}
        blocked: dict[str, claims.Waits] = {}
        republished: set[str] = set()
        for demand in self.state.demands.values():
            for spec in demand.specs:
                plugin = self.state.plugins[spec.plugin]
                attachments[spec.unique_name] = self._attachment(spec, observed)
                wait = observed.blocked.get(spec.unique_name) or plugin.ready(spec)
                if wait is not None:
                    blocked[spec.unique_name] = wait
                if plugin.republishes(spec):
                    republished.add(spec.unique_name)
        return operations.Facts(
            attachments,
            blocked,
            {key: running.operation for key, running in self.state.running.items()},
            self._backoffs.failures,
            frozenset(republished),
            self.leftovers_judged,
        )

    def _attachment_now(self, spec: claims.VolumeSpec) -> Attached | claims.Waits:
        return self._attachment(spec, self._observe([spec]))

    def _attachment(
        self, spec: claims.VolumeSpec, observed: NodeObservation
    ) -> Attached | claims.Waits:
        return self._in_use.unreported(spec) or observed.attachments[spec.unique_name]

    def _update_in_use(self, reported: frozenset[str] | None) -> None:
        if reported is None:
            return  # whether volumes found on disk are attached is not known
        self._spell(reported)
        self.state.actual |= operations.attachable_as_reported(
            self.state.demands.values(), self.state.actual, reported
        )
        running = [each.operation for each in self.state.running.values()]
        if self._in_use.update(self.state.demands.values(), self.state.actual, running):
            self._in_use_changed()

    def _wake_pods(self) -> None:
        """Wake the pods whose volumes now wait for something else."""
        for uid, waits in waits_by_pod(self._plan.waits, set(self.state.demands)).items():
            if self._reported.get(uid, frozenset()) == waits:
                continue
            self._reported[uid] = waits
            if not self._waiting.happened(uid) and not is_busy(self.waits(uid)):
                self._changed(uid)

    def _wake_at(self, when: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when is not None:
            self._timer = asyncio.get_running_loop().call_at(when, self._replan)

    def _ended(self, operation: operations.Operation) -> None:
        waited = self._waiting.happened(operation.pod_uid)
        if operation.kind is operations.OperationKind.UNPUBLISH and not waited:
            self._changed(operation.pod_uid)
        self.replan_soon()


# Which tasks wait for the volumes of a pod, for what, and since when.


class VolumeWaiters:
    """Tasks that wait for a change of a pod's volumes."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._waiting

    @contextmanager
    def at(self, uid: str) -> Iterator[asyncio.Event]:
        """An event that is set on the next change."""
        happened = asyncio.Event()
        self._waiting.setdefault(uid, set()).add(happened)
        try:
            yield happened
        finally:
            self._waiting[uid].discard(happened)
            if not self._waiting[uid]:
                del self._waiting[uid]

    def happened(self, uid: str) -> bool:
        """Wake a pod's waiting tasks; whether there were any."""
        for each in self._waiting.get(uid, ()):
            each.set()
        return uid in self._waiting


class WaitTimes:
    """Since when each volume has been waiting for its current cause."""

    def __init__(self) -> None:
        self._since: dict[WaitKey, tuple[object, float]] = {}

    def update(self, waits: Mapping[WaitKey, claims.Waits], now: float) -> None:
        """Replace all waits by these."""
        since = {}
        for key, wait in waits.items():
            # the attempts of one call, and the times between them, are one wait
            about = wait.call or (wait.cause, wait.object)
            known = self._since.get(key)
            since[key] = known if known is not None and known[0] == about else (about, now)
        self._since = since

    def began_at(self, key: WaitKey) -> float | None:
        """When a wait began, in event-loop time; None: the volume does not wait."""
        found = self._since.get(key)
        return None if found is None else found[1]


def waits_by_pod(
    waits: Mapping[WaitKey, claims.Waits], uids: set[str]
) -> dict[str, frozenset[object]]:
    """The waits of each pod's volumes, for comparison."""
    by_pod: dict[str, set[object]] = {uid: set() for uid in uids}
    for (uid, name), wait in waits.items():
        by_pod[uid].add((name, wait.cause, wait.message))
    return {uid: frozenset(each) for uid, each in by_pod.items()}


def is_busy(waits: Mapping[str, claims.Waits]) -> bool:
    """Whether an operation is in progress."""
    return any(wait.cause is claims.WaitCause.BUSY for wait in waits.values())
