"""The volumes of claims, CSI drivers and disks of this node's pods, from demand to mount and back.

A pod's volumes are resolved into what it needs (demand). Each change has the API's view of the node
observed and the next operations planned (:mod:`kubeletpy.volumes.operations.plan`), without
polling. Each operation runs as a task of its own, with exclusive use of its volume or of one pod's
part of it: a hanging driver delays only its own volumes. A pod is woken when an object that it
waits for changes, an operation ends or a driver comes. Source: docs/reference/behaviour-storage.md,
sb, sd, sg, sn, se5, ss, st.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from kubeletpy.base.host.errors import exhausted
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.base.tasks import cancel_tasks, wait_until
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.claims.resolve import Attached, ClaimVolume, NodeObservation
from kubeletpy.volumes.operations import model as operations
from kubeletpy.volumes.operations.acts import VolumeActs
from kubeletpy.volumes.operations.claim_objects import ClaimObjects
from kubeletpy.volumes.operations.plan import (
    Left,
    OperationDone,
    after,
    ending_waits,
    is_published,
    plan,
)
from kubeletpy.volumes.operations.reporter import Reporter
from kubeletpy.volumes.operations.waiting import (
    OBJECT_CAUSES,
    Patience,
    VolumesWait,
    VolumeWaiters,
    WaitTimes,
    is_busy,
    waits_by_pod,
)

log = logging.getLogger(__name__)

GID_ANNOTATION = "pv.beta.kubernetes.io/gid"
PATIENCE_S = 5.0
"""How long a pod's sync waits for operations in progress; it is woken when they end later."""


class Running(Struct):
    """An operation in progress."""

    operation: operations.Operation
    task: asyncio.Task[None]
    begun: float
    """Event-loop time."""


class VolumeState(Struct):
    """The node's desired volumes, existing volumes and operations in progress.

    Other threads read it too: nothing in it is changed in place while it is read.
    """

    plugins: Mapping[str, VolumePlugin]
    """Name -> plugin."""
    demands: dict[str, operations.PodDemand] = field(default_factory=dict)
    """Pod uid -> the volumes that it needs; ``pods`` has the same keys."""
    pods: dict[str, Pod] = field(default_factory=dict)
    actual: dict[str, operations.Volume] = field(default_factory=dict)
    """Unique name -> volume."""
    running: dict[operations.Key, Running] = field(default_factory=dict)

    def has(self, uid: str) -> bool:
        """Whether a pod has or may have a volume, or one is being made for it."""
        return any(uid in volume.pods for volume in list(self.actual.values())) or bool(
            self.of_pod(uid)
        )

    def of_pod(self, uid: str) -> list[Running]:
        """A pod's operations in progress."""
        under_way = list(self.running.values())
        return [running for running in under_way if running.operation.pod_uid == uid]

    def specs(self) -> list[claims.VolumeSpec]:
        """All volumes that pods need."""
        return [spec for demand in self.demands.values() for spec in demand.specs]

    def published(self, uid: str, spec: claims.VolumeSpec) -> operations.PodMount | None:
        """A pod's volume, if it exists for certain."""
        volume = self.actual.get(spec.unique_name)
        return volume.pods[uid] if volume is not None and is_published(volume, uid) else None

    def paths(self, uid: str) -> set[str]:
        """Paths where a pod has or may have volumes, or is getting them."""
        there = list(self.actual.values())
        has = {volume.pods[uid].left.path for volume in there if uid in volume.pods}
        gets = {
            self.plugins[operation.plugin].published(operation.spec, uid).path
            for operation in (each.operation for each in self.of_pod(uid))
            if operation.spec is not None
        }
        return has | gets


class VolumeManager(Component):
    """The claim-backed volumes of this node. Make it inside a running event loop."""

    # Follow the plugins and objects; nothing runs before ``run``.
    plugins: Sequence[VolumePlugin]
    # the claims of pods, and what the API shows of this node.
    objects: ClaimObjects
    # does single operations.
    acts: VolumeActs
    # reports the result of each.
    reporter: Reporter
    # called with the uid of a pod that may proceed, or waits for something else.
    changed: Callable[[str], None]
    # called when ``volumes_in_use`` has changed: node status is due.
    in_use_changed: Callable[[], None] = lambda: None
    # called with a driver that attaches no more volumes here; returns whether the driver keeps the
    # cluster informed of its limit.
    full: Callable[[str], bool] = lambda driver: False

    def __post_init__(self) -> None:
        self.state = VolumeState({plugin.name: plugin for plugin in self.plugins})
        self.known = asyncio.Event()
        """Set once the volumes left by a previous agent are known."""
        self._loop = asyncio.get_running_loop()
        self._backoffs = operations.Backoffs()
        self._plan = operations.OperationsPlan()
        self._reported: dict[str, frozenset[object]] = {}
        self._waiting = VolumeWaiters()
        self._times = WaitTimes()
        self._patience = Patience()
        self._in_use = operations.InUse()
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._planned = asyncio.Event()
        """Set by each plan."""
        self._leftovers_judged = False
        self._closed = False
        self.objects.on_change(self._object_changed)
        for plugin in self.plugins:
            plugin.on_change(self._driver_changed)

    # -- what pod workers call ---------------------------------------------------------------

    async def set_up(self, pod: Pod, volumes: Sequence[ClaimVolume]) -> Mapping[str, claims.SetUp]:
        """Set up a pod's volumes; returns them by name.

        Raises:
            VolumesWait: one is not ready; the pod is woken when that changes.
        """
        uid = pod.uid
        specs, unresolved = await self.objects.resolve(pod, volumes)
        self.demand(pod, specs, unresolved)
        waits = {**unresolved, **await self.settled(uid)}
        waiting = any(wait.cause in OBJECT_CAUSES for wait in waits.values())
        self.objects.press(uid, waiting=waiting)
        there = {
            spec.pod_volume: _set_up(spec, mount.published)
            for spec in specs
            if (mount := self.state.published(uid, spec)) is not None
            and mount.published is not None
        }
        missing = {v.name: waits[v.name] for v in volumes if v.name in waits}
        for volume in volumes:
            if volume.name not in there and volume.name not in missing:
                about, why = f'volume "{volume.name}"', "its set up has only begun"
                missing[volume.name] = claims.Waits(claims.WaitCause.BUSY, about, why)
        now = self._loop.time()
        patient = self._patience.has(uid, missing, now)
        full = self._patience.ends(uid, now, full=self._is_full(specs, missing))
        if missing:
            raise VolumesWait(missing, patient=patient, node_is_full=full)
        return there

    async def tear_down(self, uid: str) -> None:
        """Tear down the volumes of a pod whose containers have exited.

        Raises:
            OperationFailed: something remains; retries go on, and the pod is woken.
        """
        await self.known.wait()
        self._end(uid)
        until = self._loop.time() + PATIENCE_S
        with self._waiting.at(uid) as happened:
            while self.state.has(uid):
                failure = self._backoffs.of_unpublish(uid)
                if failure is not None:
                    raise claims.maybe_done(failure.message, call=failure.call)
                happened.clear()
                if not await wait_until(happened, until):
                    call = next((r.operation.call for r in self.state.of_pod(uid)), "its turn")
                    raise claims.StillUnderWay(call)
        self._forget(uid)

    def orphan_paths(self, uid: str) -> set[str] | None:
        """Paths of the volumes of a terminated pod; None: it has none. For threads: never waits.

        Raises OSError: what a previous agent has left is not known yet.
        """
        if not self.known.is_set():
            raise OSError(errno.EAGAIN, "volumes left by an earlier agent are not known yet", uid)
        return self.state.paths(uid) if self.state.has(uid) else None

    def end_orphan(self, uid: str) -> None:
        """Have the leftovers of a terminated pod torn down, without waiting. For threads."""
        self._loop.call_soon_threadsafe(self._end, uid)

    def _end(self, uid: str) -> None:
        if self.state.has(uid):
            self.state.demands[uid] = operations.PodDemand(uid, ending=True)
        else:
            self.state.demands.pop(uid, None)
        self._patience.forget(uid)
        self.objects.release(uid)
        self.replan_soon()

    def _forget(self, uid: str) -> None:
        """Forget a pod that needs nothing any more and has nothing."""
        self.state.demands.pop(uid, None)
        self.state.pods.pop(uid, None)
        self._reported.pop(uid, None)

    def _is_full(
        self, specs: Sequence[claims.VolumeSpec], missing: Mapping[str, claims.Waits]
    ) -> bool:
        """Whether a driver of one of the volumes reports that the node has reached its limit."""
        drivers = {
            spec.driver
            for spec in specs
            if (wait := missing.get(spec.pod_volume)) is not None
            and wait.cause is claims.WaitCause.ATTACH_LIMIT
        }
        found = [self.full(driver) for driver in sorted(drivers)]
        return any(found)

    # -- what there is -----------------------------------------------------------------------

    def waits(self, uid: str) -> dict[str, claims.Waits]:
        """The volumes of a pod that are not ready -> what they wait for."""
        return {name: wait for (of, name), wait in self._plan.waits.items() if of == uid}

    def reports(self, uid: str) -> list[claims.VolumeWait]:
        """The wait of each volume of a pod, for setup or teardown, and when it began."""
        demand = self.state.demands.get(uid)
        specs = {spec.pod_volume: spec for spec in demand.specs} if demand is not None else {}
        found = []
        for name, wait in self.waits(uid).items():
            began, spec = self._times.began_at((uid, name)), specs.get(name)
            of = ("", "") if spec is None else (spec.driver, spec.export)
            found.append(claims.VolumeWait(name, wait, began, *of))
        under_way = [(each.operation, each.begun) for each in self.state.running.values()]
        found += ending_waits(uid, self.state.actual, under_way, self._backoffs.failures)
        return [replace(each, wait=_named(specs.get(each.volume), each.wait)) for each in found]

    def mounted(self) -> list[claims.MountedVolume]:
        """All volumes that pods have for certain."""
        return [
            claims.MountedVolume(
                demand.uid, spec.pod_volume, _claim_of(spec), _source(mount.left), mount.left
            )
            for demand in self.state.demands.values()
            for spec in demand.specs
            if (mount := self.state.published(demand.uid, spec)) is not None
        ]

    async def measure(self, left: claims.PublishedOnDisk) -> claims.VolumeStats | None:
        """The usage of a volume; None: its plugin cannot measure it. Raises OperationFailed."""
        return await self.state.plugins[left.plugin].stats(left)

    def volumes_in_use(self) -> list[str] | None:
        """For the next status update of the node; None: not known yet, the API's list stays."""
        return self._in_use.report()

    def unused(self) -> frozenset[str]:
        """The volumes of which something is left here although no pod needs them (unique names)."""
        needed = {spec.unique_name for spec in self.state.specs()}
        return frozenset(self.state.actual.keys() - needed)

    async def torn_down(self, but: Collection[str] = ()) -> None:
        """Wait until no volume is left unused, except some."""
        while not self.unused() <= set(but):
            self._planned.clear()
            await self._planned.wait()

    def volumes_in_use_written(self) -> None:
        """The API has the node's status with the volumes that were reported last."""
        if self._in_use.written():
            self.replan_soon()

    # -- what happens ------------------------------------------------------------------------

    async def run(self) -> None:
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
            self.reporter.leftovers_found(found)
            self.state.actual = operations.reconstructed(self.state.actual, plugin.name, found)
        for uid in self.state.demands:
            self._recognize(uid)
        self.known.set()
        self.replan_soon()

    def pods_known(self) -> None:
        """All pods of this node are known: leftovers belong to one of them or to none."""
        if not self._leftovers_judged:
            self._leftovers_judged = True
            self.replan_soon()

    async def close(self) -> None:
        """Start nothing more; what is mounted stays."""
        self._closed = True
        for handle in (self._timer, self._soon):
            if handle is not None:
                handle.cancel()
        await cancel_tasks(running.task for running in self.state.running.values())
        await self.objects.close()

    def _driver_changed(self, driver: str) -> None:
        """A driver came or went: retry its failures at once and wake waiting pods."""
        self._backoffs.driver_changed(driver)
        for uid, demand in self.state.demands.items():
            if demand.waits:
                self.changed(uid)
        self.replan_soon()

    def _object_changed(self, uid: str) -> None:
        self.changed(uid)
        self.replan_soon()

    # -- demand ------------------------------------------------------------------------------

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
        until = self._loop.time() + PATIENCE_S
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

    def _recognize(self, uid: str) -> None:
        self._spell([spec.unique_name for spec in self.state.demands[uid].specs])
        for spec in self.state.demands[uid].specs:
            plugin = self.state.plugins[spec.plugin]
            mount, staged = plugin.published(spec, uid), plugin.staged(spec)
            self.state.actual = operations.recognized(self.state.actual, mount, staged)

    def _spell(self, names: Collection[str]) -> None:
        busy = {each.operation.unique_name for each in self.state.running.values()}
        self.state.actual = operations.spelled(self.state.actual, names, busy)

    # -- observe, plan -----------------------------------------------------------------------

    def replan_soon(self) -> None:
        """Plan again in the next turn of the event loop."""
        if self._soon is None and not self._closed:
            self._soon = self._loop.call_soon(self._replan)

    def _replan(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._closed or not self.known.is_set():
            return
        now = self._loop.time()
        observed = self.objects.observe(self.state.specs())
        made = plan(self.state.demands.values(), self.state.actual, self._facts(observed), now)
        for name in made.forgotten:
            del self.state.actual[name]
        for operation in made.operations:
            self._start(operation)
        self._plan = made
        self._times.update(made.waits, now)
        if self._timer is not None:
            self._timer.cancel()
        later = made.next_at
        self._timer = None if later is None else self._loop.call_at(later, self._replan)
        self._update_in_use(observed.in_use)
        self.reporter.counted(list(self.state.demands.values()), self.state.actual)
        for uid, demand in list(self.state.demands.items()):
            if demand.ending and not self.state.has(uid) and uid not in self._waiting:
                self._forget(uid)
        self._wake_pods()
        self._planned.set()

    def _facts(self, observed: NodeObservation) -> operations.Facts:
        attachments: dict[str, Attached | claims.Waits] = {}
        blocked: dict[str, claims.Waits] = {}
        republished: set[str] = set()
        for spec in self.state.specs():
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
            self._leftovers_judged,
        )

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
            self.in_use_changed()

    def _wake_pods(self) -> None:
        """Wake the pods whose volumes now wait for something else."""
        for uid, waits in waits_by_pod(self._plan.waits, set(self.state.demands)).items():
            if self._reported.get(uid, frozenset()) == waits:
                continue
            self._reported[uid] = waits
            if not self._waiting.happened(uid) and not is_busy(self.waits(uid)):
                self.changed(uid)

    # -- run ---------------------------------------------------------------------------------

    def _start(self, operation: operations.Operation) -> None:
        """Start an operation with exclusive use of its volume, or of its pod's part of it."""
        log.debug("volume operation", extra={"call": operation.call, "why": operation.reason})
        name = f"{operation.kind} {operation.unique_name}"
        task = self._loop.create_task(self._operate(operation), name=name)
        self.state.running[operation.key] = Running(operation, task, self._loop.time())

    async def _operate(self, operation: operations.Operation) -> None:
        """Do an operation, and record what its result implies for the volume."""
        begun, state, uid = self._loop.time(), self.state, operation.pod_uid
        plugin, pod = state.plugins[operation.plugin], state.pods.get(uid)
        volume, spec = state.actual.get(operation.unique_name), operation.spec
        alone = volume is None or not (volume.pods.keys() - {uid})
        failed: claims.OperationFailed | None = None
        result: OperationDone | claims.FailureOutcome
        try:
            found = self._attachment(spec, self.objects.observe([spec])) if spec else None
            attached = None if isinstance(found, claims.Waits) else found
            result = await self.acts.carry_out(operation, plugin, pod, alone, attached)
        except claims.OperationFailed as error:
            failed = error
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a plugin's bug must not stop all other volumes
            log.exception("volume operation broke", extra={"call": operation.call})
            why = str(exhausted(error) or f"{type(error).__name__}: {error}")
            failed = claims.maybe_done(why)
        finally:
            state.running.pop(operation.key, None)
        now = self._loop.time()
        if failed is None:
            self._backoffs.ended(operation.kind, operation.key)
        else:
            result = failed.outcome
            failed.call = failed.call or operation.call
            tried = (operation.kind, operation.key)
            self._backoffs.failed(tried, failed, operation.driver, now)
        left = Left(operation.mount, operation.staged)
        if spec is not None and operation.kind is operations.OperationKind.STAGE:
            left = Left(staged=plugin.staged(spec))
        elif spec is not None:
            left = Left(plugin.published(spec, uid))
        name = operation.unique_name
        state.actual[name] = after(state.actual.get(name), operation, result, left, now)
        self.reporter.ended(operation, plugin, pod, now - begun, failed)
        waited = self._waiting.happened(uid)
        if operation.kind is operations.OperationKind.UNPUBLISH and not waited:
            self.changed(uid)
        self.replan_soon()


def _set_up(spec: claims.VolumeSpec, published: claims.Published) -> claims.SetUp:
    """A pod's volume, with the supplemental group that its PersistentVolume requests."""
    notes = ((spec.pv or {}).get("metadata") or {}).get("annotations") or {}
    text = str(notes.get(GID_ANNOTATION) or "")
    group = int(text) if text.isascii() and text.isdigit() and int(text) < 1 << 32 else None
    return claims.SetUp(
        published.path,
        spec.spec_name,
        spec.read_only,
        published.selinux_relabel,
        spec.mode is claims.Mode.BLOCK,
        group,
    )


def _named(spec: claims.VolumeSpec | None, wait: claims.Waits) -> claims.Waits:
    """The wait, with the claim and the volume in place of our internal names."""
    if spec is None or spec.pv is None or spec.claim is None:
        return wait
    if wait.cause not in (claims.WaitCause.BUSY, claims.WaitCause.BACKOFF):
        return wait
    claim = spec.claim["metadata"]
    about = f'persistentvolumeclaim "{claim.get("namespace")}/{claim.get("name")}"'
    return replace(wait, object=f'{about}, persistentvolume "{spec.spec_name}"')


def _claim_of(spec: claims.VolumeSpec) -> tuple[str, str] | None:
    if spec.claim is None:
        return None
    return spec.claim["metadata"]["namespace"], spec.claim["metadata"]["name"]


def _source(left: claims.PublishedOnDisk) -> str:
    """The name in metrics of what measures a volume: its driver, ``block`` or ``statfs``."""
    return left.driver or ("block" if left.mode is claims.Mode.BLOCK else "statfs")
