"""Names and paths of CSI volumes, the same as the kubelet's, so that nodes can switch both ways.

Pure. Names come from the API and from drivers: a name that could lead elsewhere is refused. Source:
docs/reference/behaviour-storage.md, sc1, sc3, si1, sj.
"""

from __future__ import annotations

import hashlib

from kubeletpy.base.structs import Struct
from kubeletpy.volumes.files.paths import safe_name

PLUGIN = "kubernetes.io/csi"
DIRECTORY = "kubernetes.io~csi"
DATA_FILE = "vol_data.json"
PERSISTENT, EPHEMERAL = "Persistent", "Ephemeral"


def inline_handle(pod_uid: str, volume: str) -> str:
    """The handle of a volume that is inline in the pod's spec."""
    return f"csi-{_sha256(pod_uid + volume)}"


def unique_name(driver: str, handle: str) -> str:
    """The unique name of a volume that outlives pods."""
    return f"{PLUGIN}/{driver}^{handle}"


def inline_unique_name(pod_uid: str, volume: str) -> str:
    """The unique name of a volume of one pod."""
    return f"{PLUGIN}/{pod_uid}-{volume}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _part(name: str) -> str:
    return safe_name(name.replace("/", "~"))


class MountPaths(Struct, frozen=True):
    """The paths of a volume in one pod, or staged on the node."""

    directory: str
    name: str
    """Where the driver mounts it, below ``directory``."""

    @property
    def target(self) -> str:
        """Where the driver mounts it."""
        return f"{self.directory}/{self.name}"

    @property
    def data(self) -> str:
        """Its vol_data.json."""
        return f"{self.directory}/{DATA_FILE}"


class BlockPaths(Struct, frozen=True):
    """The paths of a block volume on the node and in its pods."""

    directory: str
    """``{root}/plugins/kubernetes.io/csi/volumeDevices``"""
    name: str

    @property
    def staging(self) -> str:
        """Where the driver stages it."""
        return f"{self.directory}/staging/{self.name}"

    @property
    def publish_dir(self) -> str:
        """Where the driver publishes it to pods."""
        return f"{self.directory}/publish/{self.name}"

    def publish(self, pod_uid: str) -> str:
        """Where the driver publishes it to one pod."""
        return f"{self.publish_dir}/{safe_name(pod_uid)}"

    @property
    def top(self) -> str:
        """The directory of its files."""
        return f"{self.directory}/{self.name}"

    @property
    def map_dir(self) -> str:
        """Where its device is bound for pods."""
        return f"{self.top}/dev"

    def map(self, pod_uid: str) -> str:
        """The device bound for one pod."""
        return f"{self.map_dir}/{safe_name(pod_uid)}"

    @property
    def data(self) -> str:
        """Its vol_data.json."""
        return f"{self.top}/data/{DATA_FILE}"


class CsiPaths(Struct, frozen=True):
    """All paths below the kubelet's root directory. Each raises UnsafePath."""

    root: str

    @property
    def staging_root(self) -> str:
        """Staged volumes, by driver; block volumes too."""
        return f"{self.root}/plugins/{PLUGIN}"

    @property
    def block_root(self) -> str:
        """Block volumes."""
        return f"{self.staging_root}/volumeDevices"

    @property
    def pods(self) -> str:
        """The pods' directories."""
        return f"{self.root}/pods"

    def filesystem(self, pod_uid: str, spec_name: str) -> MountPaths:
        """A volume of a pod."""
        pod = f"{self.pods}/{safe_name(pod_uid)}"
        return MountPaths(f"{pod}/volumes/{DIRECTORY}/{_part(spec_name)}", "mount")

    def staging(self, driver: str, handle: str) -> MountPaths:
        """A volume of the node."""
        directory = f"{self.staging_root}/{safe_name(driver)}/{_sha256(handle)}"
        return MountPaths(directory, "globalmount")

    def block(self, spec_name: str) -> BlockPaths:
        """A block volume."""
        return BlockPaths(self.block_root, _part(spec_name))

    def block_link(self, pod_uid: str, spec_name: str) -> str:
        """The link through which a pod's containers get their device."""
        pod = f"{self.pods}/{safe_name(pod_uid)}"
        return f"{pod}/volumeDevices/{DIRECTORY}/{_part(spec_name)}"
