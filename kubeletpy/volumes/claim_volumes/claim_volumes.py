"""The claim-backed volumes of this node's pods: reads their objects, resolves, runs operations.

A pod is woken when an object that it waits for changes, an operation ends or a driver comes. Must
never take a volume from a pod because something could not be read. Source:
docs/reference/behaviour-storage.md, sb, st.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.events.recorder import EventRecorder
from kubeletpy.kubeapi.objects import WatchedObjects
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.volumes import VolumeMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claim_volumes.claim_objects import ClaimObjects
from kubeletpy.volumes.claim_volumes.waiting import OBJECT_CAUSES, Patience, VolumesWait
from kubeletpy.volumes.claims.model import Mode, VolumeSpec, VolumeWait, WaitCause, Waits
from kubeletpy.volumes.claims.observation import NodeObservation, observe_node
from kubeletpy.volumes.claims.on_disk import MountedVolume, PublishedOnDisk, SetUp, VolumeStats
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.claims.resolve import ClaimVolume
from kubeletpy.volumes.claims.selinux import SELinux, SELinuxConflict, mount_context
from kubeletpy.volumes.operations.acts import VolumeActs
from kubeletpy.volumes.operations.executor import VolumeOperations
from kubeletpy.volumes.operations.expander import Expander
from kubeletpy.volumes.operations.notices import VolumeNotices
from kubeletpy.volumes.operations.reporter import Reporter

log = logging.getLogger(__name__)

GID_ANNOTATION = "pv.beta.kubernetes.io/gid"


class ClaimVolumes:
    """The claim-backed volumes of this node. Make it inside a running event loop."""

    def __init__(
        self,
        api: KubeApi | None,
        plugins: Sequence[VolumePlugin],
        recorder: EventRecorder,
        clock: Clock,
        *,
        node_name: str,
        node: Callable[[], Mapping[str, Any]],
        controller_attaches: bool = True,
        objects: WatchedObjects,
        metrics: VolumeMetrics,
        selinux: SELinux | None = None,
        changed: Callable[[str], None],
        in_use_changed: Callable[[], None],
        full: Callable[[str], bool] = lambda driver: False,
    ) -> None:
        """Args:
        api: None: standalone.
        node: the Node object as the API shows it.
        controller_attaches: whether a controller attaches volumes to this node.
        objects: claims, volumes and attachments; for exclusive use.
        selinux: the node's SELinux; None: it has none.
        changed: called with the uid of a pod that may proceed, or waits for something else.
        in_use_changed: called when ``volumes_in_use`` has changed: node status is due.
        full: called with a driver that attaches no more volumes here; whether it keeps the
            cluster informed of how many it can.
        """
        self._plugins = tuple(plugins)
        self._selinux = selinux or SELinux()
        self._objects = objects
        self._loop = asyncio.get_running_loop()
        self._reader = ClaimObjects(objects, plugins, node_name, self._labelled)
        self._patience = Patience()
        self._full = full
        reporter = self._reporter = Reporter(recorder, metrics, plugins)
        expander = Expander(api, recorder, clock, node_name)
        acts = VolumeActs(expander, VolumeNotices(recorder), reporter.owned)
        self._changed = changed
        objects.on_change(self._object_changed)

        def observe(specs: Collection[VolumeSpec]) -> NodeObservation:
            return observe_node(
                node(),
                specs,
                node_name=node_name,
                controller_attaches=controller_attaches,
                attachment=self._reader.attachment,
            )

        self.operations = VolumeOperations(
            plugins,
            observe,
            acts.carry_out,
            reporter,
            changed=changed,
            in_use_changed=in_use_changed,
        )
        expander.hold = self.operations.hold_expansion

    def on_counted(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called when pods gain or lose volumes."""
        self._reporter.on_change(listener)

    async def run(self) -> None:
        """Take over what a previous agent has left; call it once."""
        await self.operations.take_over()

    async def set_up(self, pod: Pod, volumes: Sequence[ClaimVolume]) -> Mapping[str, SetUp]:
        """Set up a pod's volumes; returns them by name.

        Raises:
            VolumesWait: one is not ready; the pod is woken when that changes.
        """
        specs, waits = await self._reader.resolve(pod, volumes)
        self.operations.demand(pod, specs, waits)
        waits = {**waits, **await self.operations.settled(pod.uid)}
        waiting = any(wait.cause in OBJECT_CAUSES for wait in waits.values())
        self._reader.press(pod.uid, waiting=waiting)
        there: dict[str, SetUp] = {}
        for spec in specs:
            published = self.operations.state.published(pod.uid, spec)
            if published is not None:
                there[spec.pod_volume] = SetUp(
                    published.path,
                    spec.spec_name,
                    spec.read_only,
                    published.selinux_relabel,
                    spec.mode is Mode.BLOCK,
                    _group(spec),
                )
        missing = {v.name: waits[v.name] for v in volumes if v.name in waits}
        for volume in volumes:
            if volume.name not in there and volume.name not in missing:
                why = "its set up has only begun"
                missing[volume.name] = Waits(WaitCause.BUSY, f'volume "{volume.name}"', why)
        now = self._loop.time()
        patient = self._patience.has(pod.uid, missing, now)
        full = self._patience.ends(pod.uid, now, full=self._is_full(specs, missing))
        if missing:
            raise VolumesWait(missing, patient=patient, node_is_full=full)
        return there

    def _is_full(self, specs: Sequence[VolumeSpec], missing: Mapping[str, Waits]) -> bool:
        """Whether a driver of one of the volumes reports that the node has reached its limit."""
        drivers = {
            spec.driver
            for spec in specs
            if (wait := missing.get(spec.pod_volume)) is not None
            and wait.cause is WaitCause.ATTACH_LIMIT
        }
        found = [self._full(driver) for driver in sorted(drivers)]
        return any(found)

    def reports(self, uid: str) -> list[VolumeWait]:
        """The wait of each volume of a pod, naming its claim, and when it began."""
        return [replace(each, wait=self._named(uid, each)) for each in self.operations.reports(uid)]

    def _named(self, uid: str, found: VolumeWait) -> Waits:
        """The wait, with the claim and the volume in place of our internal names."""
        spec = self.operations.state.spec(uid, found.volume)
        if spec is None or spec.pv is None or spec.claim is None:
            return found.wait
        if found.wait.cause not in (WaitCause.BUSY, WaitCause.BACKOFF):
            return found.wait
        claim = spec.claim["metadata"]
        about = f'persistentvolumeclaim "{claim.get("namespace")}/{claim.get("name")}"'
        return replace(found.wait, object=f'{about}, persistentvolume "{spec.spec_name}"')

    def mounted(self) -> list[MountedVolume]:
        """All volumes of pods."""
        return [
            MountedVolume(uid, spec.pod_volume, _claim_of(spec), _source(mount.left), mount.left)
            for uid, spec, mount in self.operations.state.all_published()
        ]

    async def measure(self, left: PublishedOnDisk) -> VolumeStats | None:
        """The usage of a volume; None: its plugin cannot measure it. Raises OperationFailed."""
        plugin = next(each for each in self._plugins if each.name == left.plugin)
        return await plugin.stats(left)

    async def tear_down(self, uid: str) -> None:
        """Tear down the volumes of a pod whose containers have exited. Raises OperationFailed."""
        try:
            await self.operations.end(uid)
        except OperationFailed as error:
            log.debug(
                "volumes of a pod could not be torn down", extra={"uid": uid, "why": str(error)}
            )
            raise
        self._release(uid)

    def orphan_paths(self, uid: str) -> set[str] | None:
        """Paths of the volumes of a terminated pod; None: it has none. For threads: never waits.

        Raises OSError: what a previous agent has left is not known yet.
        """
        if not self.operations.known.is_set():
            raise OSError(errno.EAGAIN, "volumes left by an earlier agent are not known yet", uid)
        return self.paths(uid) if self.operations.state.has(uid) else None

    def end_orphan(self, uid: str) -> None:
        """Have the leftovers of a terminated pod torn down, without waiting. For threads."""
        self._loop.call_soon_threadsafe(self._begin_tear_down, uid)

    def _begin_tear_down(self, uid: str) -> None:
        self.operations.begin_end(uid)
        self._release(uid)

    def paths(self, uid: str) -> set[str]:
        """Where volumes of a pod are or may be: only their plugins may tear them down."""
        return self.operations.state.paths(uid)

    def node_changed(self) -> None:
        """The API shows a changed node status."""
        self.operations.replan_soon()

    def pods_known(self) -> None:
        """All pods of this node are known."""
        if not self.operations.leftovers_judged:
            self.operations.leftovers_judged = True
            self.operations.replan_soon()

    async def close(self) -> None:
        """Start nothing more; what is mounted stays."""
        await self.operations.close()
        await self._objects.close()

    # -- reading -----------------------------------------------------------------------------

    def _labelled(self, pod: Pod, spec: VolumeSpec) -> VolumeSpec | Waits:
        """Adds the SELinux context that a volume is to be mounted with."""
        plugin = next(each for each in self._plugins if each.name == spec.plugin)
        supported = plugin.supports_selinux_mount(spec)
        context = mount_context(spec, pod, self._selinux, supported=supported)
        if isinstance(context, SELinuxConflict):
            why = f"conflicting SELinux labels of volume {spec.pod_volume}: "
            text = why + ", ".join(
                label or "one that the runtime draws" for label in context.labels
            )
            return Waits(WaitCause.SELINUX_CONFLICT, f'pod "{pod.key}"', text)
        return replace(spec, selinux_context=context)

    def _object_changed(self, uid: str) -> None:
        self._changed(uid)
        self.operations.replan_soon()

    def _release(self, uid: str) -> None:
        self._patience.forget(uid)
        self._reader.release(uid)


def _claim_of(spec: VolumeSpec) -> tuple[str, str] | None:
    if spec.claim is None:
        return None
    return spec.claim["metadata"]["namespace"], spec.claim["metadata"]["name"]


def _source(left: PublishedOnDisk) -> str:
    """The name in metrics of what measures a volume: its driver, ``block`` or ``statfs``."""
    return left.driver or ("block" if left.mode is Mode.BLOCK else "statfs")


def _group(spec: VolumeSpec) -> int | None:
    notes = ((spec.pv or {}).get("metadata") or {}).get("annotations") or {}
    text = str(notes.get(GID_ANNOTATION) or "")
    return int(text) if text.isascii() and text.isdigit() and int(text) < 1 << 32 else None
