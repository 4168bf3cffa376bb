"""The volume manager of an agent that cannot mount yet: it refuses what it can't give, by name.

A pod whose containers mount a volume stays ContainerCreating with a FailedMount event that says
which; a pod that declares volumes nobody mounts runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubeletpy.api import types as api
from kubeletpy.pods.mount import Mount
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.protocol import VolumeError


def volume_kind(volume: api.Volume) -> str:
    """The source of a volume, by its field name: emptyDir, configMap, …; empty when it has none."""
    return next((key for key in volume if key != "name"), "")


def used_volumes(pod: Pod) -> list[str]:
    """Names of the volumes that containers of any kind mount or map, in spec order."""
    used = {
        use.get("name")
        for _, container in pod.all_containers()
        for field in (container.get("volumeMounts"), container.get("volumeDevices"))
        for use in field or ()
    }
    return [v["name"] for v in pod.spec.get("volumes") or () if v.get("name") in used]


class UnsupportedVolumes:
    """:class:`~kubeletpy.volumes.protocol.VolumeManager` without any volume."""

    async def set_up(self, pod: Pod) -> Mapping[str, Sequence[Mount]]:
        """Raises VolumeError naming each volume that a container uses."""
        names = used_volumes(pod)
        if names:
            kinds = {
                v.get("name"): volume_kind(v) or "emptyDir" for v in pod.spec.get("volumes") or ()
            }
            listed = ", ".join(f'"{name}" ({kinds[name]})' for name in names)
            raise VolumeError(
                f"Unable to attach or mount volumes: this version of kubeletpy cannot mount "
                f"{listed}; remove the volumeMounts that use them or run the pod on another node"
            )
        return {}

    async def tear_down(self, pod_uid: str) -> None:
        """Nothing was mounted."""

    def release_orphan(self, pod_uid: str) -> None:
        """Nothing was mounted."""
