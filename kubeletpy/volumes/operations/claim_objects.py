"""The API objects that volumes are made of: claims, PersistentVolumes and VolumeAttachments.

An object that could not be read implies nothing for a volume. Source:
docs/reference/behaviour-storage.md, sb, se5, st.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.tasks import run_together
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.objects import WatchedObjects
from kubeletpy.kubeapi.protocol import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, VOLUMEATTACHMENTS
from kubeletpy.kubeapi.tracked_object import ObjectKey
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims import model as claims_model
from kubeletpy.volumes.claims import resolve as claims_resolve
from kubeletpy.volumes.claims.plugin import VolumePlugin

Keys = dict[ObjectKey, None]
"""Each object once, in the pod's order: requests do not depend on hashes."""


class ClaimObjects(Component):
    """Reads the claims, PersistentVolumes and VolumeAttachments of this node's pods."""

    objects: WatchedObjects
    """Claims, volumes and attachments; for exclusive use."""
    plugins: Sequence[VolumePlugin]
    node_name: str
    node: Callable[[], Mapping[str, Any]]
    """Returns the Node object as the API shows it."""
    controller_attaches: bool
    """A controller attaches volumes to this node."""
    selinux: claims_model.SELinux

    def __post_init__(self) -> None:
        self._read_for: dict[str, Keys] = {}

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have ``listener(uid)`` called when an object of a pod has changed."""
        self.objects.on_change(listener)

    async def close(self) -> None:
        """Stop following all objects."""
        await self.objects.close()

    async def resolve(
        self, pod: Pod, volumes: Sequence[claims_resolve.ClaimVolume]
    ) -> tuple[list[claims_model.VolumeSpec], dict[str, claims_model.Waits]]:
        """A pod's resolved volumes, and what the others wait for, by name."""
        specs: list[claims_model.VolumeSpec] = []
        waits: dict[str, claims_model.Waits] = {}
        claims = {volume.name: _claim_key(pod, volume) for volume in volumes}
        keys = dict.fromkeys(key for key in claims.values() if key is not None)
        before = self._read_for.get(pod.uid, {})  # kept until it is known to be useless
        self.objects.register(pod.uid, keys | before)
        found = await self._read(keys)
        pvs = {
            name: ObjectKey(PERSISTENTVOLUMES, "", of)
            for name, key in claims.items()
            if key is not None and (of := claims_resolve.pv_name(found[key])) is not None
        }
        volume_keys = dict.fromkeys(pvs.values())
        keys |= volume_keys
        self.objects.register(pod.uid, keys | before)
        found |= await self._read(volume_keys)
        for volume in volumes:
            claim_key, pv_key = claims[volume.name], pvs.get(volume.name)
            got = claims_resolve.resolve(
                pod,
                volume,
                self.plugins,
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
        self.objects.register(pod.uid, keys | attachments)
        await self._read(attachments)
        return specs, waits

    def observe(self, specs: Collection[claims_model.VolumeSpec]) -> claims_resolve.NodeObservation:
        """The state of these volumes according to the Node object and the attachments last read."""
        return claims_resolve.observe_node(
            self.node(),
            specs,
            node_name=self.node_name,
            controller_attaches=self.controller_attaches,
            attachment=self._attachment,
        )

    def press(self, uid: str, *, waiting: bool) -> None:
        """Have the objects of a pod polled often, or stop that."""
        self.objects.press(uid, self._read_for.get(uid, {}) if waiting else ())

    def release(self, uid: str) -> None:
        """Stop following the objects of a pod."""
        self._read_for.pop(uid, None)
        self.objects.release(uid)

    def _labeled(
        self, pod: Pod, spec: claims_model.VolumeSpec
    ) -> claims_model.VolumeSpec | claims_model.Waits:
        """The volume with the SELinux context to mount it with, or why it can have none."""
        plugin = next(each for each in self.plugins if each.name == spec.plugin)
        supported = plugin.supports_selinux_mount(spec)
        context = claims_model.mount_context(spec, pod, self.selinux, supported=supported)
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
        found = self.objects.cached(self._attachment_key(spec))
        return claims_resolve.UnreadObject(str(found)) if isinstance(found, ApiError) else found

    def _attachment_key(self, spec: claims_model.VolumeSpec) -> ObjectKey:
        name = claims_resolve.attachment_name(spec.handle, spec.driver, self.node_name)
        return ObjectKey(VOLUMEATTACHMENTS, "", name)

    async def _read(self, keys: Keys) -> dict[ObjectKey, claims_resolve.Read]:
        return dict(zip(keys, await run_together(*(self._get(key) for key in keys)), strict=True))

    async def _get(self, key: ObjectKey) -> claims_resolve.Read:
        try:
            return await self.objects.get(key)
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
