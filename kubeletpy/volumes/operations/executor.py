"""Carries plans of volume operations out: as soon as anything changes, never by looking again.

Each operation is a task of its own with its volume (or one pod's part of it) to itself: a driver
that hangs holds up its own volumes and nothing else. Must never decide: what is done next is
:mod:`kubeletpy.volumes.operations.plan`. Source: docs/reference/behaviour-storage.md, sd, sg, sn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.attach.attached import Attached
from kubeletpy.volumes.claims.model import VolumeSpec, VolumeWait, Waits
from kubeletpy.volumes.on_disk import Outcome, Published
from kubeletpy.volumes.operation import OperationFailed, StillUnderWay
from kubeletpy.volumes.operations.backoff import Backoffs
from kubeletpy.volumes.operations.in_use import InUse, attachable_as_shown
from kubeletpy.volumes.operations.model import (
    Facts,
    Key,
    Kind,
    Operation,
    Plan,
    PodDemand,
    PodMount,
    Volume,
)
from kubeletpy.volumes.operations.outcome import Done, Left, after
from kubeletpy.volumes.operations.plan import is_there, plan
from kubeletpy.volumes.operations.protocol import CarryOut, Listener, Surroundings
from kubeletpy.volumes.operations.reports import ending_waits
from kubeletpy.volumes.operations.taken_over import recognised, taken_over
from kubeletpy.volumes.operations.waiting import Waiting, WaitTimes, is_busy, words_of
from kubeletpy.volumes.plugin import VolumePlugin

log = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""How long a pod's sync waits for operations under way; it is woken when they end later."""


@dataclass(slots=True)
class _Running:
    operation: Operation
    task: asyncio.Task[None]
    begun: float


class VolumeOperations:
    """The operations of this node. Make it inside a running event loop."""

    def __init__(
        self,
        plugins: Sequence[VolumePlugin],
        surroundings: Surroundings,
        carry_out: CarryOut,
        listener: Listener,
        *,
        changed: Callable[[str], None],
        in_use_changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        plugins: each kind of volume.
        surroundings: of the node.
        carry_out: does one operation.
        listener: notified of how each ended.
        changed: called with the uid of a pod whose volumes are there now, or wait for something
            else.
        in_use_changed: called when ``volumes_in_use`` has changed.
        """
        self._plugins = {plugin.name: plugin for plugin in plugins}
        self._surroundings = surroundings
        self._carry_out = carry_out
        self._listener = listener
        self._changed = changed
        self._in_use_changed = in_use_changed
        self._demands: dict[str, PodDemand] = {}
        self._pods: dict[str, Pod] = {}
        self._actual: dict[str, Volume] = {}
        self._running: dict[Key, _Running] = {}
        self._backoffs = Backoffs()
        self._plan = Plan()
        self._reported: dict[str, frozenset[object]] = {}
        self._waiting = Waiting()
        self._times = WaitTimes()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._in_use = InUse()
        self._closed = False
        self.leftovers_judged = False
        self.known = asyncio.Event()
        """Set once what an agent before this one has left is known."""
        for plugin in plugins:
            plugin.on_change(self.driver_changed)

    # -- what is wanted ----------------------------------------------------------------------

    def demand(self, pod: Pod, specs: Sequence[VolumeSpec], waits: Mapping[str, Waits]) -> None:
        """Say what a pod wants; one whose end was asked for wants nothing any more."""
        before = self._demands.get(pod.uid)
        if before is not None and before.ending:
            return
        self._pods[pod.uid] = pod
        self._demands[pod.uid] = PodDemand(pod.uid, tuple(specs), dict(waits))
        self._recognise(pod.uid)
        self.look()

    async def settled(self, uid: str) -> Mapping[str, Waits]:
        """What a pod's volumes wait for once nothing is under way for it, or it takes long."""
        await self.known.wait()
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        with self._waiting.at(uid) as happened, suppress(TimeoutError):
            while True:
                self._look()
                waits = self.waits(uid)
                if not is_busy(waits):
                    return waits
                happened.clear()
                async with asyncio.timeout_at(until):
                    await happened.wait()
        return self.waits(uid)

    async def end(self, uid: str) -> None:
        """Take down all that a pod has.

        Raises:
            OperationFailed: something is still there; it is tried on, and the pod is woken.
        """
        await self.known.wait()
        self.begin_end(uid)
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        with self._waiting.at(uid) as happened:
            while self.has(uid):
                failure = self._backoffs.of_unpublish(uid)
                if failure is not None:
                    raise OperationFailed(Outcome.UNCERTAIN, failure.message, call=failure.call)
                happened.clear()
                try:
                    async with asyncio.timeout_at(until):
                        await happened.wait()
                except TimeoutError:
                    call = next((r.operation.call for r in self._of_pod(uid)), "its turn")
                    raise StillUnderWay(call) from None
        self._demands.pop(uid, None)
        self._pods.pop(uid, None)
        self._reported.pop(uid, None)

    def begin_end(self, uid: str) -> None:
        """Take down what a pod has, without waiting for it."""
        if self.has(uid) or any(self._of_pod(uid)):
            self._demands[uid] = PodDemand(uid, ending=True)
        else:
            self._demands.pop(uid, None)
        self.look()

    # -- what there is -----------------------------------------------------------------------

    def has(self, uid: str) -> bool:
        """Whether a pod has a volume or may have one, or one is being made for it. Also for
        threads."""
        return any(uid in volume.pods for volume in list(self._actual.values())) or bool(
            self._of_pod(uid)
        )

    def spec(self, uid: str, volume: str) -> VolumeSpec | None:
        """A volume that a pod wants, by its name in the pod."""
        demand = self._demands.get(uid)
        found = (spec for spec in demand.specs if spec.pod_volume == volume) if demand else ()
        return next(iter(found), None)

    def published(self, uid: str, spec: VolumeSpec) -> Published | None:
        """A volume as a pod has it; None: it has not."""
        volume = self._actual.get(spec.unique_name)
        if volume is None or not is_there(volume, uid):
            return None
        return volume.pods[uid].published

    def there(self) -> list[tuple[str, VolumeSpec, PodMount]]:
        """All that pods have for certain, each with the uid of its pod."""
        return [
            (demand.uid, spec, volume.pods[demand.uid])
            for demand in self._demands.values()
            for spec in demand.specs
            if (volume := self._actual.get(spec.unique_name)) is not None
            and is_there(volume, demand.uid)
        ]

    def paths(self, uid: str) -> set[str]:
        """Where a pod has volumes, may have them, or gets them just now. Also for threads."""
        there = list(self._actual.values())
        has = {volume.pods[uid].left.path for volume in there if uid in volume.pods}
        gets = {
            self._plugins[operation.plugin].published(operation.spec, uid).path
            for operation in (each.operation for each in self._of_pod(uid))
            if operation.spec is not None
        }
        return has | gets

    def waits(self, uid: str) -> dict[str, Waits]:
        """Name of each volume of a pod that is not there -> what it waits for."""
        return {name: wait for (of, name), wait in self._plan.waits.items() if of == uid}

    def reports(self, uid: str) -> list[VolumeWait]:
        """What each volume of a pod waits for, and since when: to be set up or to be taken down."""
        found = [
            VolumeWait(name, wait, self._times.of((uid, name)))
            for name, wait in self.waits(uid).items()
        ]
        under_way = [(each.operation, each.begun) for each in self._running.values()]
        found += ending_waits(uid, self._actual, under_way, self._backoffs.failures)
        return found

    def volumes_in_use(self) -> list[str] | None:
        """For the node's status, about to be written; None: not known yet, the API's list stays."""
        return self._in_use.report()

    # -- what happens ------------------------------------------------------------------------

    async def take_over(self) -> None:
        """Find what an agent before this one has left. Call it once, at the start."""
        for plugin in self._plugins.values():
            try:
                found = await asyncio.to_thread(plugin.found)
            except OSError as error:
                log.error(
                    "volumes of an earlier agent could not be looked for",
                    extra={"plugin": plugin.name, "why": str(error)},
                )
                continue
            for path, why in found.unreadable.items():
                extra = {"path": path, "why": why}
                log.warning("left by an earlier agent, unreadable", extra=extra)
            self._actual = taken_over(self._actual, plugin.name, found)
        for uid in self._demands:
            self._recognise(uid)
        self.known.set()
        self.look()

    def driver_changed(self, driver: str) -> None:
        """A driver came or went: what failed for it is tried at once, who waits is woken."""
        self._backoffs.driver_changed(driver)
        for uid, demand in self._demands.items():
            if demand.waits:
                self._changed(uid)
        self.look()

    def hold_expansion(self, unique_name: str) -> None:
        """A volume cannot be expanded while it is in use."""
        volume = self._actual.get(unique_name)
        if volume is not None:
            self._actual[unique_name] = replace(volume, expansion_held=True)

    def look(self) -> None:
        """Something has changed: plan anew, soon."""
        if self._soon is None and not self._closed:
            self._soon = asyncio.get_running_loop().call_soon(self._look)

    async def close(self) -> None:
        """Start nothing any more; what is mounted stays."""
        self._closed = True
        for handle in (self._timer, self._soon):
            if handle is not None:
                handle.cancel()
        tasks = [running.task for running in self._running.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _look(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._closed or not self.known.is_set():
            return
        now = asyncio.get_running_loop().time()
        made = plan(self._demands.values(), self._actual, self._facts(), now)
        for name in made.forgotten:
            del self._actual[name]
        for operation in made.operations:
            self._start(operation)
        self._plan = made
        self._times.update(made.waits, now)
        self._wake_at(made.next_at)
        self._tell_in_use()
        self._listener.counted(list(self._demands.values()), self._actual)
        for uid, demand in list(self._demands.items()):
            if demand.ending and not self.has(uid) and uid not in self._waiting:
                self._demands.pop(uid)
                self._pods.pop(uid, None)
                self._reported.pop(uid, None)
        self._tell_pods()

    def _recognise(self, uid: str) -> None:
        for spec in self._demands[uid].specs:
            plugin = self._plugins[spec.plugin]
            mount, staged = plugin.published(spec, uid), plugin.staged(spec)
            self._actual = recognised(self._actual, mount, staged)

    def _facts(self) -> Facts:
        attachments: dict[str, Attached | Waits] = {}
        blocked: dict[str, Waits] = {}
        republished: set[str] = set()
        for demand in self._demands.values():
            for spec in demand.specs:
                plugin = self._plugins[spec.plugin]
                attachments[spec.unique_name] = self._attachment(spec)
                wait = self._surroundings.blocked(spec) or plugin.ready(spec)
                if wait is not None:
                    blocked[spec.unique_name] = wait
                if plugin.republishes(spec):
                    republished.add(spec.unique_name)
        return Facts(
            attachments,
            blocked,
            {key: running.operation for key, running in self._running.items()},
            self._backoffs.failures,
            frozenset(republished),
            self.leftovers_judged,
        )

    def _attachment(self, spec: VolumeSpec) -> Attached | Waits:
        return self._in_use.unreported(spec) or self._surroundings.attachment(spec)

    def _tell_in_use(self) -> None:
        shown = self._surroundings.in_use()
        if shown is None:
            return  # whether what was found on disk is attached is not known
        self._actual |= attachable_as_shown(self._demands.values(), self._actual, shown)
        running = [each.operation for each in self._running.values()]
        if self._in_use.update(self._demands.values(), self._actual, running):
            self._in_use_changed()

    def _tell_pods(self) -> None:
        """Wake the pods whose volumes wait for something else now."""
        for uid, told in words_of(self._plan.waits, set(self._demands)).items():
            if self._reported.get(uid, frozenset()) == told:
                continue
            self._reported[uid] = told
            if not self._waiting.happened(uid) and not is_busy(self.waits(uid)):
                self._changed(uid)

    def _wake_at(self, when: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when is not None:
            self._timer = asyncio.get_running_loop().call_at(when, self._look)

    # -- one operation -----------------------------------------------------------------------

    def _start(self, operation: Operation) -> None:
        log.debug("volume operation", extra={"call": operation.call, "why": operation.reason})
        task = asyncio.get_running_loop().create_task(
            self._run(operation), name=f"{operation.kind} {operation.unique_name}"
        )
        now = asyncio.get_running_loop().time()
        self._running[operation.key] = _Running(operation, task, now)

    async def _run(self, operation: Operation) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        plugin = self._plugins[operation.plugin]
        pod = self._pods.get(operation.pod_uid)
        volume = self._actual.get(operation.unique_name)
        alone = volume is None or not (volume.pods.keys() - {operation.pod_uid})
        failed: OperationFailed | None = None
        result: Done | Outcome
        try:
            attachment = None
            if operation.spec is not None:
                state = self._attachment(operation.spec)
                attachment = None if isinstance(state, Waits) else state
            result = await self._carry_out(operation, plugin, pod, alone, attachment)
        except OperationFailed as error:
            failed, result = error, error.outcome
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a plugin's mistake must not end all other volumes
            log.exception("volume operation broke", extra={"call": operation.call})
            why = f"{type(error).__name__}: {error}"
            failed = OperationFailed(Outcome.UNCERTAIN, why, call=operation.call)
            result = failed.outcome
        finally:
            self._running.pop(operation.key, None)
        now = loop.time()
        self._note(operation, plugin, result, now)
        self._count(operation, failed, now)
        self._listener.ended(operation, pod, now - begun, failed)
        waited = self._waiting.happened(operation.pod_uid)
        if operation.kind is Kind.UNPUBLISH and not waited:
            self._changed(operation.pod_uid)
        self.look()

    def _note(
        self, operation: Operation, plugin: VolumePlugin, result: Done | Outcome, now: float
    ) -> None:
        left = Left(operation.mount, operation.staged)
        if operation.spec is not None and operation.kind is Kind.STAGE:
            left = Left(staged=plugin.staged(operation.spec))
        elif operation.spec is not None:
            left = Left(plugin.published(operation.spec, operation.pod_uid))
        before = self._actual.get(operation.unique_name)
        self._actual[operation.unique_name] = after(before, operation, result, left, now)

    def _count(self, operation: Operation, failed: OperationFailed | None, now: float) -> None:
        if failed is None:
            self._backoffs.ended(operation.kind, operation.key)
            return
        about = operation.spec or operation.mount or operation.staged
        failed.call = failed.call or operation.call
        driver = about.driver if about is not None else ""
        self._backoffs.failed((operation.kind, operation.key), failed, driver, now)

    def _of_pod(self, uid: str) -> list[_Running]:
        under_way = list(self._running.values())
        return [running for running in under_way if running.operation.pod_uid == uid]
