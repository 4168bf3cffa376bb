"""The claim-backed volumes of this node's pods: reads their objects, resolves, runs operations.

A pod is woken when an object that it waits for changes, an operation ends or a driver comes. An
object that could not be read implies nothing for a volume: no volume is taken from a pod because of
it. Source: docs/reference/behaviour-storage.md, sb, se5, ss, st.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import replace
from kubeletpy.base.tasks import run_together
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.events.recorder import EventRecorder
from kubeletpy.kubeapi.objects import WatchedObjects
from kubeletpy.kubeapi.protocol import (
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    VOLUMEATTACHMENTS,
    KubeApi,
)
from kubeletpy.kubeapi.tracked_object import ObjectKey
from kubeletpy.metrics.volumes import VolumeMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims import model as claims_model
from kubeletpy.volumes.claims import resolve as claims_resolve
from kubeletpy.volumes.operations.executor import VolumeOperations
from kubeletpy.volumes.operations.expander import Expander
from kubeletpy.volumes.operations.model import VolumeNotices
from kubeletpy.volumes.operations.reporter import Reporter
from kubeletpy.volumes.operations.runner import VolumeActs, VolumeState

log = logging.getLogger(__name__)

GID_ANNOTATION = "pv.beta.kubernetes.io/gid"


class ClaimVolumes:
    """The claim-backed volumes of this node. Make it inside a running event loop."""

    def __init__(
        self,
        api: KubeApi | None,
        plugins: Sequence[claims_model.VolumePlugin],
        recorder: EventRecorder,
        clock: Clock,
        *,
        node_name: str,
        node: Callable[[], Mapping[str, Any]],
        controller_attaches: bool = True,
        objects: WatchedObjects,
        metrics: VolumeMetrics,
        selinux: claims_model.SELinux | None = None,
        changed: Callable[[str], None],
        in_use_changed: Callable[[], None],
        full: Callable[[str], bool] = lambda driver: False,
    ) -> None:
        """Create the parts of the volume manager, each from those before it.

        Args:
            api: None: standalone.
            node: the Node object as the API shows it.
            controller_attaches: whether a controller attaches volumes to this node.
            objects: claims, volumes and attachments; for exclusive use.
            selinux: the node's SELinux; None: it has none.
            changed: called with the uid of a pod that may proceed, or waits for something else.
            in_use_changed: called when ``volumes_in_use`` has changed: node status is due.
            full: called with a driver that attaches no more volumes here; returns whether the
                driver keeps the cluster informed of its limit.
        """
        self._plugins = tuple(plugins)
        self._objects = objects
        self._loop = asyncio.get_running_loop()
        self._patience = Patience()
        self._changed = changed
        self._full = full
        self._reader = ClaimObjects(
            objects,
            self._plugins,
            node_name,
            node,
            controller_attaches=controller_attaches,
            selinux=selinux or claims_model.SELinux(),
        )
        self._reporter = Reporter(recorder, metrics, plugins)
        state = VolumeState({plugin.name: plugin for plugin in plugins})
        expander = Expander(api, recorder, clock, node_name, hold=state.hold_expansion)
        acts = VolumeActs(expander, VolumeNotices(recorder), self._reporter.owned)
        self.operations = VolumeOperations(
            state,
            self._reader.observe,
            acts.carry_out,
            self._reporter,
            changed=changed,
            in_use_changed=in_use_changed,
        )
        objects.on_change(self._object_changed)

    def on_counted(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called when pods gain or lose volumes."""
        self._reporter.on_change(listener)

    async def run(self) -> None:
        """Find the volumes that a previous agent has left; call it once."""
        await self.operations.reconstruct()

    async def set_up(
        self, pod: Pod, volumes: Sequence[claims_resolve.ClaimVolume]
    ) -> Mapping[str, claims_model.SetUp]:
        """Set up a pod's volumes; returns them by name.

        Raises:
            VolumesWait: one is not ready; the pod is woken when that changes.
        """
        specs, waits = await self._reader.resolve(pod, volumes)
        self.operations.demand(pod, specs, waits)
        waits = {**waits, **await self.operations.settled(pod.uid)}
        waiting = any(wait.cause in OBJECT_CAUSES for wait in waits.values())
        self._reader.press(pod.uid, waiting=waiting)
        there: dict[str, claims_model.SetUp] = {}
        for spec in specs:
            published = self.operations.state.published(pod.uid, spec)
            if published is not None:
                there[spec.pod_volume] = claims_model.SetUp(
                    published.path,
                    spec.spec_name,
                    spec.read_only,
                    published.selinux_relabel,
                    spec.mode is claims_model.Mode.BLOCK,
                    _group(spec),
                )
        missing = {v.name: waits[v.name] for v in volumes if v.name in waits}
        for volume in volumes:
            if volume.name not in there and volume.name not in missing:
                why = "its set up has only begun"
                missing[volume.name] = claims_model.Waits(
                    claims_model.WaitCause.BUSY, f'volume "{volume.name}"', why
                )
        now = self._loop.time()
        patient = self._patience.has(pod.uid, missing, now)
        full = self._patience.ends(pod.uid, now, full=self._is_full(specs, missing))
        if missing:
            raise VolumesWait(missing, patient=patient, node_is_full=full)
        return there

    def _is_full(
        self, specs: Sequence[claims_model.VolumeSpec], missing: Mapping[str, claims_model.Waits]
    ) -> bool:
        """Whether a driver of one of the volumes reports that the node has reached its limit."""
        drivers = {
            spec.driver
            for spec in specs
            if (wait := missing.get(spec.pod_volume)) is not None
            and wait.cause is claims_model.WaitCause.ATTACH_LIMIT
        }
        found = [self._full(driver) for driver in sorted(drivers)]
        return any(found)

    def reports(self, uid: str) -> list[claims_model.VolumeWait]:
        """The wait of each volume of a pod, naming its claim, and when it began."""
        return [replace(each, wait=self._named(uid, each)) for each in self.operations.reports(uid)]

    def _named(self, uid: str, found: claims_model.VolumeWait) -> claims_model.Waits:
        """The wait, with the claim and the volume in place of our internal names."""
        spec = self.operations.state.spec(uid, found.volume)
        if spec is None or spec.pv is None or spec.claim is None:
            return found.wait
        if found.wait.cause not in (claims_model.WaitCause.BUSY, claims_model.WaitCause.BACKOFF):
            return found.wait
        claim = spec.claim["metadata"]
        about = f'persistentvolumeclaim "{claim.get("namespace")}/{claim.get("name")}"'
        return replace(found.wait, object=f'{about}, persistentvolume "{spec.spec_name}"')

    def mounted(self) -> list[claims_model.MountedVolume]:
        """All volumes of pods."""
        return [
            claims_model.MountedVolume(
                uid, spec.pod_volume, _claim_of(spec), _source(mount.left), mount.left
            )
            for uid, spec, mount in self.operations.state.all_published()
        ]

    async def measure(self, left: claims_model.PublishedOnDisk) -> claims_model.VolumeStats | None:
        """The usage of a volume; None: its plugin cannot measure it. Raises OperationFailed."""
        plugin = next(each for each in self._plugins if each.name == left.plugin)
        return await plugin.stats(left)

    async def tear_down(self, uid: str) -> None:
        """Tear down the volumes of a pod whose containers have exited. Raises OperationFailed."""
        try:
            await self.operations.end(uid)
        except claims_model.OperationFailed as error:
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

    def _object_changed(self, uid: str) -> None:
        self._changed(uid)
        self.operations.replan_soon()

    def _release(self, uid: str) -> None:
        self._patience.forget(uid)
        self._reader.release(uid)


def _claim_of(spec: claims_model.VolumeSpec) -> tuple[str, str] | None:
    if spec.claim is None:
        return None
    return spec.claim["metadata"]["namespace"], spec.claim["metadata"]["name"]


def _source(left: claims_model.PublishedOnDisk) -> str:
    """The name in metrics of what measures a volume: its driver, ``block`` or ``statfs``."""
    return left.driver or ("block" if left.mode is claims_model.Mode.BLOCK else "statfs")


def _group(spec: claims_model.VolumeSpec) -> int | None:
    notes = ((spec.pv or {}).get("metadata") or {}).get("annotations") or {}
    text = str(notes.get(GID_ANNOTATION) or "")
    return int(text) if text.isascii() and text.isdigit() and int(text) < 1 << 32 else None


# The API objects that volumes are made of.

Keys = dict[ObjectKey, None]
"""Each object once, in the pod's order: requests do not depend on hashes."""


class ClaimObjects:
    """Reads the claims, PersistentVolumes and VolumeAttachments of this node's pods."""

    def __init__(
        self,
        objects: WatchedObjects,
        plugins: Sequence[claims_model.VolumePlugin],
        node_name: str,
        node: Callable[[], Mapping[str, Any]],
        *,
        controller_attaches: bool,
        selinux: claims_model.SELinux,
    ) -> None:
        """Parameters as those of :class:`ClaimVolumes`."""
        self._objects = objects
        self._plugins = tuple(plugins)
        self._node_name = node_name
        self._node = node
        self._controller_attaches = controller_attaches
        self._selinux = selinux
        self._read_for: dict[str, Keys] = {}

    async def resolve(
        self, pod: Pod, volumes: Sequence[claims_resolve.ClaimVolume]
    ) -> tuple[list[claims_model.VolumeSpec], dict[str, claims_model.Waits]]:
        """A pod's resolved volumes, and what the others wait for, by name."""
        specs: list[claims_model.VolumeSpec] = []
        waits: dict[str, claims_model.Waits] = {}
        claims = {volume.name: _claim_key(pod, volume) for volume in volumes}
        keys = dict.fromkeys(key for key in claims.values() if key is not None)
        before = self._read_for.get(pod.uid, {})  # kept until it is known to be useless
        self._objects.register(pod.uid, keys | before)
        found = await self._read(keys)
        pvs = {
            name: ObjectKey(PERSISTENTVOLUMES, "", of)
            for name, key in claims.items()
            if key is not None and (of := claims_resolve.pv_name(found[key])) is not None
        }
        volume_keys = dict.fromkeys(pvs.values())
        keys |= volume_keys
        self._objects.register(pod.uid, keys | before)
        found |= await self._read(volume_keys)
        for volume in volumes:
            claim_key, pv_key = claims[volume.name], pvs.get(volume.name)
            got = claims_resolve.resolve(
                pod,
                volume,
                self._plugins,
                claim=found[claim_key] if claim_key is not None else None,
                pv=found[pv_key] if pv_key is not None else None,
            )
            if not isinstance(got, claims_model.Waits):
                got = self._labeled(pod, got)
            if isinstance(got, claims_model.Waits):
                waits[volume.name] = got
            else:
                specs.append(got)
        attachments = dict.fromkeys(
            self._attachment_key(spec) for spec in specs if spec.attachable and spec.driver
        )
        self._read_for[pod.uid] = keys | attachments
        self._objects.register(pod.uid, keys | attachments)
        await self._read(attachments)
        return specs, waits

    def observe(self, specs: Collection[claims_model.VolumeSpec]) -> claims_resolve.NodeObservation:
        """The state of these volumes according to the Node object and the attachments last read."""
        return claims_resolve.observe_node(
            self._node(),
            specs,
            node_name=self._node_name,
            controller_attaches=self._controller_attaches,
            attachment=self._attachment,
        )

    def press(self, uid: str, *, waiting: bool) -> None:
        """Have the objects of a pod polled often, or stop that."""
        self._objects.press(uid, self._read_for.get(uid, {}) if waiting else ())

    def release(self, uid: str) -> None:
        """Stop following the objects of a pod."""
        self._read_for.pop(uid, None)
        self._objects.release(uid)

    def _labeled(
        self, pod: Pod, spec: claims_model.VolumeSpec
    ) -> claims_model.VolumeSpec | claims_model.Waits:
        """The volume with the SELinux context to mount it with, or why it can have none."""
        plugin = next(each for each in self._plugins if each.name == spec.plugin)
        supported = plugin.supports_selinux_mount(spec)
        context = claims_model.mount_context(spec, pod, self._selinux, supported=supported)
        if isinstance(context, claims_model.SELinuxConflict):
            why = f"conflicting SELinux labels of volume {spec.pod_volume}: "
            text = why + ", ".join(
                label or "one that the runtime draws" for label in context.labels
            )
            return claims_model.Waits(
                claims_model.WaitCause.SELINUX_CONFLICT, f'pod "{pod.key}"', text
            )
        return replace(spec, selinux_context=context)

    def _attachment(self, spec: claims_model.VolumeSpec) -> claims_resolve.Read:
        """The VolumeAttachment of a CSI volume, as it was last read."""
        found = self._objects.cached(self._attachment_key(spec))
        return claims_resolve.UnreadObject(str(found)) if isinstance(found, ApiError) else found

    def _attachment_key(self, spec: claims_model.VolumeSpec) -> ObjectKey:
        name = claims_resolve.attachment_name(spec.handle, spec.driver, self._node_name)
        return ObjectKey(VOLUMEATTACHMENTS, "", name)

    async def _read(self, keys: Keys) -> dict[ObjectKey, claims_resolve.Read]:
        return dict(zip(keys, await run_together(*(self._get(key) for key in keys)), strict=True))

    async def _get(self, key: ObjectKey) -> claims_resolve.Read:
        try:
            return await self._objects.get(key)
        except ApiError as error:
            return claims_resolve.UnreadObject(str(error))


def _claim_key(pod: Pod, volume: claims_resolve.ClaimVolume) -> ObjectKey | None:
    name = claims_resolve.claim_name(pod, volume)
    return None if name is None else ObjectKey(PERSISTENTVOLUMECLAIMS, pod.namespace, name)


def kept(found: JSON) -> JSON:
    """The parts of a claim, volume or attachment that are worth keeping in memory."""
    metadata = found["metadata"]
    return {
        **{name: found[name] for name in ("spec", "status") if name in found},
        "metadata": {name: value for name, value in metadata.items() if name != "managedFields"},
    }


# How a pod waits for its volumes: when events report it, and when the pod gives up.

_QUIET = frozenset(
    {
        claims_model.WaitCause.BUSY,
        claims_model.WaitCause.BACKOFF,
        claims_model.WaitCause.NOT_IN_USE_YET,
    }
)
"""Causes that will resolve soon, or that events have already reported."""
OBJECT_CAUSES = frozenset(
    {
        claims_model.WaitCause.UNREAD,
        claims_model.WaitCause.CLAIM_MISSING,
        claims_model.WaitCause.CLAIM_UNBOUND,
        claims_model.WaitCause.PV_MISSING,
        claims_model.WaitCause.PV_OF_ANOTHER,
        claims_model.WaitCause.NOT_OWNED,
        claims_model.WaitCause.NOT_ATTACHED,
        claims_model.WaitCause.ATTACH_FAILED,
        claims_model.WaitCause.ATTACH_LIMIT,
    }
)
"""Causes that end with the change of an object."""
ATTACH_PATIENCE_S = 10.0
"""How long a pod may wait for attachments before an event reports it: every pod waits briefly."""
LIMIT_PATIENCE_S = 123.0
"""How long a pod waits on a node that has reached its volume limit: another pod's volume may be
about to be detached. The same as the kubelet's wait for volumes in one sync.
"""


class VolumesWait(Exception):
    """A pod's claim-backed volumes are not all there.

    Attributes:
        waits: name of each volume -> what it waits for.
        reported: whether another event would add nothing, or would be premature.
        node_is_full: volumes that waited too long because the node has reached its limit.
    """

    def __init__(
        self,
        waits: Mapping[str, claims_model.Waits],
        *,
        patient: bool = False,
        node_is_full: bool = False,
    ) -> None:
        """``patient``: no wait for an attachment has been long."""
        super().__init__(
            "; ".join(f'volume "{name}": {claims_model.wait_text(w)}' for name, w in waits.items())
        )
        self.waits = waits
        quiet = _QUIET | {claims_model.WaitCause.NOT_ATTACHED} if patient else _QUIET
        self.reported = all(wait.cause in quiet for wait in waits.values())
        limited = (
            name
            for name, wait in waits.items()
            if wait.cause is claims_model.WaitCause.ATTACH_LIMIT
        )
        self.node_is_full = tuple(limited) if node_is_full else ()


class Patience:
    """Since when pods wait for attachments, and on full nodes. Times are passed in."""

    def __init__(self) -> None:
        self._attaching: dict[str, float] = {}
        self._full: dict[str, float] = {}

    def has(self, uid: str, missing: Mapping[str, claims_model.Waits], now: float) -> bool:
        """Whether a pod's attachments may take a little longer."""
        waits = any(wait.cause is claims_model.WaitCause.NOT_ATTACHED for wait in missing.values())
        return now - _begun(self._attaching, uid, now, waits=waits) < ATTACH_PATIENCE_S

    def ends(self, uid: str, now: float, *, full: bool) -> bool:
        """Whether a pod's wait on a node is over; ``full``: the node is at its volume limit."""
        return now - _begun(self._full, uid, now, waits=full) >= LIMIT_PATIENCE_S

    def forget(self, uid: str) -> None:
        """Forget a pod that no longer waits."""
        self._attaching.pop(uid, None)
        self._full.pop(uid, None)


def _begun(begun: dict[str, float], uid: str, now: float, *, waits: bool) -> float:
    if not waits:
        begun.pop(uid, None)
        return now
    return begun.setdefault(uid, now)
