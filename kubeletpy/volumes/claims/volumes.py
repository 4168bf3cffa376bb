"""The claim-backed volumes of this node's pods: reads their objects, resolves, has it done.

A pod is woken when an object that it waits for changes, an operation ends or a driver comes. Must
never take a volume from a pod for what could not be read. Source:
docs/reference/behaviour-storage.md, sb, st.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubeletpy.api.types import JSON
from kubeletpy.clock import Clock
from kubeletpy.events.recorder import EventRecorder
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.objects import ObjectKey, WatchedObjects
from kubeletpy.kubeapi.protocol import (
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    VOLUMEATTACHMENTS,
    KubeApi,
)
from kubeletpy.metrics.volumes import VolumeMetrics
from kubeletpy.pods.node_selector import matches
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.attach.attached import (
    Attached,
    attached,
    attachment_name,
    attachments_of,
)
from kubeletpy.volumes.claims.model import Cause, Mode, VolumeSpec, VolumeWait, Waits, say
from kubeletpy.volumes.claims.resolve import (
    ClaimVolume,
    Read,
    Unread,
    claim_name,
    pv_name,
    resolve,
)
from kubeletpy.volumes.on_disk import MountedVolume, PublishedOnDisk, SetUp, VolumeStats
from kubeletpy.volumes.operation import OperationFailed
from kubeletpy.volumes.operations.acts import VolumeActs
from kubeletpy.volumes.operations.executor import VolumeOperations
from kubeletpy.volumes.operations.expander import Expander
from kubeletpy.volumes.operations.notices import VolumeNotices
from kubeletpy.volumes.operations.reporter import Reporter
from kubeletpy.volumes.plugin import VolumePlugin
from kubeletpy.volumes.selinux import Conflict, SELinux, mount_context

log = logging.getLogger(__name__)

GID_ANNOTATION = "pv.beta.kubernetes.io/gid"
_QUIET = frozenset({Cause.BUSY, Cause.BACKOFF, Cause.NOT_IN_USE_YET})
"""Causes that are on their way, or that events have reported already."""
_OBJECT_CAUSES = frozenset(
    {
        Cause.UNREAD,
        Cause.CLAIM_MISSING,
        Cause.CLAIM_UNBOUND,
        Cause.PV_MISSING,
        Cause.PV_OF_ANOTHER,
        Cause.NOT_OWNED,
        Cause.NOT_ATTACHED,
        Cause.ATTACH_FAILED,
    }
)
"""Causes that a change of an object ends."""
ATTACH_PATIENCE_S = 10.0
"""How long a pod may wait for attachments before an event says so: every pod does for a moment."""


class VolumesWait(Exception):
    """A pod's claim-backed volumes are not all there.

    Attributes:
        waits: name of each volume -> what it waits for.
        told: whether another event would say nothing new, or too early.
    """

    def __init__(self, waits: Mapping[str, Waits], *, patient: bool = False) -> None:
        """``patient``: no attachment has been waited for long."""
        super().__init__("; ".join(f'volume "{name}": {say(w)}' for name, w in waits.items()))
        self.waits = waits
        quiet = _QUIET | {Cause.NOT_ATTACHED} if patient else _QUIET
        self.told = all(wait.cause in quiet for wait in waits.values())


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
        objects: WatchedObjects,
        metrics: VolumeMetrics,
        selinux: SELinux | None = None,
        changed: Callable[[str], None],
        in_use_changed: Callable[[], None],
    ) -> None:
        """Args:
        api: None: standalone.
        plugins: each kind of volume.
        recorder: for events of pods and claims.
        clock: the time of day.
        node_name: of this node.
        node: the Node object as the API shows it.
        objects: claims, volumes and attachments; nobody else uses it.
        metrics: of volumes.
        selinux: what the node's SELinux says; None: it has none.
        changed: called with the uid of a pod that may go on, or waits for something else.
        in_use_changed: called when ``volumes_in_use`` has changed: the node's status is due.
        """
        self._plugins = tuple(plugins)
        self._node_name = node_name
        self._selinux = selinux or SELinux()
        self._node = node
        self._objects = objects
        self._loop = asyncio.get_running_loop()
        self._read_for: dict[str, set[ObjectKey]] = {}
        self._attaching_since: dict[str, float] = {}
        reporter = self._reporter = Reporter(recorder, metrics, plugins)
        expander = Expander(api, recorder, clock, node_name)
        acts = VolumeActs(expander, VolumeNotices(recorder), reporter.owned)
        self._changed = changed
        objects.on_change(self._object_changed)
        self.operations = VolumeOperations(
            plugins,
            self,
            acts.carry_out,
            reporter,
            changed=changed,
            in_use_changed=in_use_changed,
        )
        expander.hold = self.operations.hold_expansion

    def on_counted(self, tell: Callable[[], None]) -> None:
        """Have ``tell`` called when pods have got volumes, or have them no longer."""
        self._reporter.on_change(tell)

    async def run(self) -> None:
        """Take over what an agent before this one has left; call it once."""
        await self.operations.take_over()

    async def set_up(self, pod: Pod, volumes: Sequence[ClaimVolume]) -> Mapping[str, SetUp]:
        """Have a pod's volumes, by name.

        Raises:
            VolumesWait: one is not there; the pod is woken when that changes.
        """
        specs, waits = await self._resolve(pod, volumes)
        self.operations.demand(pod, specs, waits)
        waits = {**waits, **await self.operations.settled(pod.uid)}
        self._press(pod, waits)
        there: dict[str, SetUp] = {}
        for spec in specs:
            published = self.operations.published(pod.uid, spec)
            if published is not None:
                there[spec.pod_volume] = SetUp(
                    published.path,
                    spec.read_only,
                    published.selinux_relabel,
                    spec.mode is Mode.BLOCK,
                    _group(spec),
                )
        missing = {v.name: waits[v.name] for v in volumes if v.name in waits}
        for volume in volumes:
            if volume.name not in there and volume.name not in missing:
                why = "its set up has only begun"
                missing[volume.name] = Waits(Cause.BUSY, f'volume "{volume.name}"', why)
        patient = self._patient(pod.uid, missing)
        if missing:
            raise VolumesWait(missing, patient=patient)
        return there

    def reports(self, uid: str) -> list[VolumeWait]:
        """What each volume of a pod waits for, with its claim named, and since when."""
        return [replace(each, wait=self._named(uid, each)) for each in self.operations.reports(uid)]

    def _named(self, uid: str, found: VolumeWait) -> Waits:
        """The wait, about the claim and the volume where it names only how we call them."""
        spec = self.operations.spec(uid, found.volume)
        if spec is None or spec.pv is None or spec.claim is None:
            return found.wait
        if found.wait.cause not in (Cause.BUSY, Cause.BACKOFF):
            return found.wait
        claim = spec.claim["metadata"]
        about = f'persistentvolumeclaim "{claim.get("namespace")}/{claim.get("name")}"'
        return replace(found.wait, object=f'{about}, persistentvolume "{spec.spec_name}"')

    def mounted(self) -> list[MountedVolume]:
        """All that pods have."""
        return [
            MountedVolume(uid, spec.pod_volume, _claim_of(spec), _source(mount.left), mount.left)
            for uid, spec, mount in self.operations.there()
        ]

    async def measure(self, left: PublishedOnDisk) -> VolumeStats | None:
        """How full a volume is; None: its plugin does not know. Raises OperationFailed."""
        plugin = next(each for each in self._plugins if each.name == left.plugin)
        return await plugin.stats(left)

    async def tear_down(self, uid: str) -> None:
        """Take down what a pod has; its containers are gone. Raises OperationFailed."""
        try:
            await self.operations.end(uid)
        except OperationFailed as error:
            log.debug("volumes of a pod not taken down", extra={"uid": uid, "why": str(error)})
            raise
        self._release(uid)

    def orphan_paths(self, uid: str) -> set[str] | None:
        """Where volumes of a gone pod are; None: it has none. For threads: waits for nobody.

        Raises OSError: what an agent before this one has left is not known yet.
        """
        if not self.operations.known.is_set():
            raise OSError(errno.EAGAIN, "volumes left by an earlier agent are not known yet", uid)
        return self.paths(uid) if self.operations.has(uid) else None

    def end_orphan(self, uid: str) -> None:
        """Have what a gone pod has left taken down, without waiting for it. For threads."""
        self._loop.call_soon_threadsafe(self._begin_tear_down, uid)

    def _begin_tear_down(self, uid: str) -> None:
        self.operations.begin_end(uid)
        self._release(uid)

    def paths(self, uid: str) -> set[str]:
        """Where volumes of a pod are or may be: their plugins take them down, nobody else."""
        return self.operations.paths(uid)

    def node_changed(self) -> None:
        """The API shows another node status."""
        self.operations.look()

    def pods_known(self) -> None:
        """All pods of this node are known."""
        if not self.operations.leftovers_judged:
            self.operations.leftovers_judged = True
            self.operations.look()

    async def close(self) -> None:
        """Do nothing any more; what is mounted stays."""
        await self.operations.close()
        await self._objects.close()

    # -- what operations ask -----------------------------------------------------------------

    def attachment(self, spec: VolumeSpec) -> Attached | Waits:
        """Whether a volume is attached."""
        if not spec.attachable:
            return Attached()
        node = attachments_of(self._node().get("status") or {})
        return attached(spec, node, self._node_name, self._known(self._attachment_key(spec)))

    def blocked(self, spec: VolumeSpec) -> Waits | None:
        """Whether a PersistentVolume is for other nodes."""
        affinity = ((spec.pv or {}).get("spec") or {}).get("nodeAffinity") or {}
        required = affinity.get("required")
        if required is None:
            return None
        metadata = self._node().get("metadata") or {}
        if matches(required, metadata.get("labels") or {}, self._node_name):
            return None
        return Waits(
            Cause.NODE_AFFINITY,
            f'persistentvolume "{spec.spec_name}"',
            f'MountVolume.NodeAffinity check failed for volume "{spec.spec_name}" : the labels of '
            f'node "{self._node_name}" match no term of the volume\'s nodeAffinity',
        )

    def in_use(self) -> frozenset[str] | None:
        """What the API shows as in use by this node; None: it has not shown the node yet."""
        node = self._node()
        if not (node.get("metadata") or {}).get("resourceVersion"):
            return None
        return attachments_of(node.get("status") or {}).in_use

    # -- reading -----------------------------------------------------------------------------

    async def _resolve(
        self, pod: Pod, volumes: Sequence[ClaimVolume]
    ) -> tuple[list[VolumeSpec], dict[str, Waits]]:
        specs: list[VolumeSpec] = []
        waits: dict[str, Waits] = {}
        claims = {volume.name: self._claim_key(pod, volume) for volume in volumes}
        keys = {key for key in claims.values() if key is not None}
        before = self._read_for.get(pod.uid, set())  # not let go before it is known to be of no use
        self._objects.register(pod.uid, keys | before)
        found = await self._read(keys)
        pvs = {
            name: ObjectKey(PERSISTENTVOLUMES, "", of)
            for name, key in claims.items()
            if key is not None and (of := pv_name(found[key])) is not None
        }
        keys |= set(pvs.values())
        self._objects.register(pod.uid, keys | before)
        found |= await self._read(set(pvs.values()))
        for volume in volumes:
            claim_key, pv_key = claims[volume.name], pvs.get(volume.name)
            got = resolve(
                pod,
                volume,
                self._plugins,
                claim=found[claim_key] if claim_key is not None else None,
                pv=found[pv_key] if pv_key is not None else None,
            )
            if not isinstance(got, Waits):
                got = self._labelled(pod, got)
            if isinstance(got, Waits):
                waits[volume.name] = got
            else:
                specs.append(got)
        attachments = {
            self._attachment_key(spec) for spec in specs if spec.attachable and spec.driver
        }
        self._read_for[pod.uid] = keys | attachments
        self._objects.register(pod.uid, keys | attachments)
        await self._read(attachments)
        return specs, waits

    def _labelled(self, pod: Pod, spec: VolumeSpec) -> VolumeSpec | Waits:
        """A volume with the SELinux context that it is to be mounted with."""
        plugin = next(each for each in self._plugins if each.name == spec.plugin)
        supported = plugin.wants_selinux_mount(spec)
        context = mount_context(spec, pod, self._selinux, supported=supported)
        if isinstance(context, Conflict):
            why = f"conflicting SELinux labels of volume {spec.pod_volume}: "
            text = why + ", ".join(
                label or "one that the runtime draws" for label in context.labels
            )
            return Waits(Cause.SELINUX_CONFLICT, f'pod "{pod.key}"', text)
        return replace(spec, selinux_context=context)

    def _claim_key(self, pod: Pod, volume: ClaimVolume) -> ObjectKey | None:
        name = claim_name(pod, volume)
        return None if name is None else ObjectKey(PERSISTENTVOLUMECLAIMS, pod.namespace, name)

    def _attachment_key(self, spec: VolumeSpec) -> ObjectKey:
        name = attachment_name(spec.handle, spec.driver, self._node_name)
        return ObjectKey(VOLUMEATTACHMENTS, "", name)

    def _press(self, pod: Pod, waits: Mapping[str, Waits]) -> None:
        """Have the objects that a pod waits for looked at often."""
        waiting = any(wait.cause in _OBJECT_CAUSES for wait in waits.values())
        self._objects.press(pod.uid, self._read_for.get(pod.uid, set()) if waiting else ())

    def _patient(self, uid: str, missing: Mapping[str, Waits]) -> bool:
        """Whether a pod's attachments may take a little longer."""
        if not any(wait.cause is Cause.NOT_ATTACHED for wait in missing.values()):
            self._attaching_since.pop(uid, None)
            return True
        now = self._loop.time()
        return now - self._attaching_since.setdefault(uid, now) < ATTACH_PATIENCE_S

    def _object_changed(self, uid: str) -> None:
        self._changed(uid)
        self.operations.look()

    def _release(self, uid: str) -> None:
        self._read_for.pop(uid, None)
        self._attaching_since.pop(uid, None)
        self._objects.release(uid)

    async def _read(self, keys: set[ObjectKey]) -> dict[ObjectKey, Read]:
        ordered = list(keys)
        return dict(
            zip(ordered, await asyncio.gather(*(self._get(key) for key in ordered)), strict=True)
        )

    async def _get(self, key: ObjectKey) -> Read:
        try:
            return await self._objects.get(key)
        except ApiError as error:
            return Unread(str(error))

    def _known(self, key: ObjectKey) -> Read:
        found = self._objects.known(key)
        return Unread(str(found)) if isinstance(found, ApiError) else found


def _claim_of(spec: VolumeSpec) -> tuple[str, str] | None:
    if spec.claim is None:
        return None
    return spec.claim["metadata"]["namespace"], spec.claim["metadata"]["name"]


def _source(left: PublishedOnDisk) -> str:
    """Who measures a volume, as metrics call it."""
    return left.driver or ("block" if left.mode is Mode.BLOCK else "statfs")


def _group(spec: VolumeSpec) -> int | None:
    notes = ((spec.pv or {}).get("metadata") or {}).get("annotations") or {}
    text = str(notes.get(GID_ANNOTATION) or "")
    return int(text) if text.isascii() and text.isdigit() and int(text) < 1 << 32 else None


def kept(found: JSON) -> JSON:
    """The part of a claim, volume or attachment that is worth its memory."""
    metadata = found["metadata"]
    return {
        **{name: found[name] for name in ("spec", "status") if name in found},
        "metadata": {name: value for name, value in metadata.items() if name != "managedFields"},
    }
