"""Reads the claims, volumes and attachments that pods' volumes are made of.

An object that could not be read implies nothing for a volume. Source:
docs/reference/behaviour-storage.md, sb2, st.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeletpy.base.api.types import JSON
from kubeletpy.base.tasks import run_together
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.objects import WatchedObjects
from kubeletpy.kubeapi.protocol import PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, VOLUMEATTACHMENTS
from kubeletpy.kubeapi.tracked_object import ObjectKey
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.attached import attachment_name
from kubeletpy.volumes.claims.model import Describes, VolumeSpec, Waits
from kubeletpy.volumes.claims.resolve import (
    ClaimVolume,
    Read,
    UnreadObject,
    claim_name,
    pv_name,
    resolve,
)

Keys = dict[ObjectKey, None]
"""Each object once, in the pod's order: requests do not depend on hashes."""
Label = Callable[[Pod, VolumeSpec], VolumeSpec | Waits]
"""Adds the SELinux context that a volume is to be mounted with."""


class ClaimObjects:
    """The API objects of this node's claim-backed volumes."""

    def __init__(
        self, objects: WatchedObjects, plugins: Sequence[Describes], node_name: str, label: Label
    ) -> None:
        """``objects``: for exclusive use."""
        self._objects = objects
        self._plugins = tuple(plugins)
        self._node_name = node_name
        self._label = label
        self._read_for: dict[str, Keys] = {}

    async def resolve(
        self, pod: Pod, volumes: Sequence[ClaimVolume]
    ) -> tuple[list[VolumeSpec], dict[str, Waits]]:
        """A pod's resolved volumes, and what the others wait for, by name."""
        specs: list[VolumeSpec] = []
        waits: dict[str, Waits] = {}
        claims = {volume.name: _claim_key(pod, volume) for volume in volumes}
        keys = dict.fromkeys(key for key in claims.values() if key is not None)
        before = self._read_for.get(pod.uid, {})  # kept until it is known to be useless
        self._objects.register(pod.uid, keys | before)
        found = await self._read(keys)
        pvs = {
            name: ObjectKey(PERSISTENTVOLUMES, "", of)
            for name, key in claims.items()
            if key is not None and (of := pv_name(found[key])) is not None
        }
        volume_keys = dict.fromkeys(pvs.values())
        keys |= volume_keys
        self._objects.register(pod.uid, keys | before)
        found |= await self._read(volume_keys)
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
                got = self._label(pod, got)
            if isinstance(got, Waits):
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

    def attachment(self, spec: VolumeSpec) -> Read:
        """The VolumeAttachment of a CSI volume, as it was last read."""
        found = self._objects.cached(self._attachment_key(spec))
        return UnreadObject(str(found)) if isinstance(found, ApiError) else found

    def press(self, uid: str, *, waiting: bool) -> None:
        """Have the objects of a pod polled often, or stop that."""
        self._objects.press(uid, self._read_for.get(uid, {}) if waiting else ())

    def release(self, uid: str) -> None:
        """Stop following the objects of a pod."""
        self._read_for.pop(uid, None)
        self._objects.release(uid)

    def _attachment_key(self, spec: VolumeSpec) -> ObjectKey:
        name = attachment_name(spec.handle, spec.driver, self._node_name)
        return ObjectKey(VOLUMEATTACHMENTS, "", name)

    async def _read(self, keys: Keys) -> dict[ObjectKey, Read]:
        return dict(zip(keys, await run_together(*(self._get(key) for key in keys)), strict=True))

    async def _get(self, key: ObjectKey) -> Read:
        try:
            return await self._objects.get(key)
        except ApiError as error:
            return UnreadObject(str(error))


def _claim_key(pod: Pod, volume: ClaimVolume) -> ObjectKey | None:
    name = claim_name(pod, volume)
    return None if name is None else ObjectKey(PERSISTENTVOLUMECLAIMS, pod.namespace, name)


def kept(found: JSON) -> JSON:
    """The parts of a claim, volume or attachment that are worth keeping in memory."""
    metadata = found["metadata"]
    return {
        **{name: found[name] for name in ("spec", "status") if name in found},
        "metadata": {name: value for name, value in metadata.items() if name != "managedFields"},
    }
