"""Identity, Controller and Node of a driver for tests."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import grpc

from kubeletpy.remote.generated import csi_pb2 as csi
from tests.csi_driver.volumes import DEFAULT_BYTES, Volume, Volumes, bind, mounted, unbind

MAX_BYTES = 1 << 40
Rpc = csi.NodeServiceCapability.RPC


class Refused(Exception):
    """A call ends with a status."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def refuse(code: str, message: str) -> NoReturn:
    raise Refused(grpc.StatusCode[code], message)


@dataclass(slots=True)
class Options:
    """Capabilities of a driver.

    Attributes:
        stage: has STAGE_UNSTAGE_VOLUME.
        group: has VOLUME_MOUNT_GROUP.
        max_volumes: of NodeGetInfo.
        health: the fault that NodeGetVolumeStats reports; None: it does not report health.
    """

    name: str = "test.csi.example.com"
    node_id: str = "node"
    stage: bool = True
    expand: bool = True
    stats: bool = True
    group: bool = False
    max_volumes: int = 0
    topology: dict[str, str] = field(default_factory=dict)
    health: str | None = None


class Services:
    """The driver's calls; the methods have the CSI's names."""

    def __init__(self, state: Path, options: Options) -> None:
        self.volumes = Volumes(state)
        self.options = options

    # Controller

    def CreateVolume(self, request: csi.CreateVolumeRequest) -> csi.CreateVolumeResponse:
        if not request.name:
            refuse("INVALID_ARGUMENT", "name is missing")
        if not request.volume_capabilities:
            refuse("INVALID_ARGUMENT", "capabilities are missing")
        size, limit = request.capacity_range.required_bytes, request.capacity_range.limit_bytes
        size = size or min(DEFAULT_BYTES, limit or DEFAULT_BYTES)
        if size > MAX_BYTES or (limit and size > limit):
            refuse("OUT_OF_RANGE", "no volume has that size")
        block = any(each.HasField("block") for each in request.volume_capabilities)
        found = self.volumes.named(request.name)
        if found is not None and (found.size != size or found.block != block):
            refuse("ALREADY_EXISTS", "there is another volume of that name")
        handle = "vol-" + hashlib.sha256(request.name.encode()).hexdigest()[:16]
        volume = found or Volume(handle, request.name, size, block)
        self.volumes.save(volume)
        return csi.CreateVolumeResponse(volume=self._reported(volume))

    # Node

    def NodeGetInfo(self, _: csi.NodeGetInfoRequest) -> csi.NodeGetInfoResponse:
        topology = csi.Topology(segments=self.options.topology) if self.options.topology else None
        return csi.NodeGetInfoResponse(
            node_id=self.options.node_id,
            max_volumes_per_node=self.options.max_volumes,
            accessible_topology=topology,
        )

    def NodeGetCapabilities(self, _: Any) -> csi.NodeGetCapabilitiesResponse:
        options = self.options
        has = {
            Rpc.STAGE_UNSTAGE_VOLUME: options.stage,
            Rpc.GET_VOLUME_STATS: options.stats,
            Rpc.EXPAND_VOLUME: options.expand,
            Rpc.VOLUME_CONDITION: options.health is not None,
            Rpc.VOLUME_MOUNT_GROUP: options.group,
        }
        made = [csi.NodeServiceCapability(rpc=Rpc(type=kind)) for kind, on in has.items() if on]
        return csi.NodeGetCapabilitiesResponse(capabilities=made)

    def NodeStageVolume(self, request: csi.NodeStageVolumeRequest) -> csi.NodeStageVolumeResponse:
        self._path(request.staging_target_path, "staging target path")
        self._capability(request.volume_capability, request)
        volume = self._volume(request.volume_id)
        self._of_kind(volume, request.volume_capability)
        if volume.block:
            self.volumes.source(volume)
        else:
            bind(self.volumes.source(volume), request.staging_target_path)
        return csi.NodeStageVolumeResponse()

    def NodeUnstageVolume(
        self, request: csi.NodeUnstageVolumeRequest
    ) -> csi.NodeUnstageVolumeResponse:
        self._path(request.staging_target_path, "staging target path")
        volume = self._volume(request.volume_id)
        if volume.block:
            self.volumes.release(volume)
        elif mounted(request.staging_target_path):
            unbind(request.staging_target_path)
        return csi.NodeUnstageVolumeResponse()

    def NodePublishVolume(
        self, request: csi.NodePublishVolumeRequest
    ) -> csi.NodePublishVolumeResponse:
        self._path(request.target_path, "target path")
        self._capability(request.volume_capability, request)
        inline = request.volume_context.get("csi.storage.k8s.io/ephemeral") == "true"
        if inline and self.volumes.get(request.volume_id) is None:
            self.volumes.save(Volume(request.volume_id, request.volume_id, DEFAULT_BYTES, False))
        volume = self._volume(request.volume_id)
        self._of_kind(volume, request.volume_capability)
        staged = request.staging_target_path
        if self.options.stage and not inline and not staged:
            refuse("FAILED_PRECONDITION", "staging target path is missing")
        if self.options.stage and not inline and not volume.block and not mounted(staged):
            refuse("FAILED_PRECONDITION", "it is not staged")
        from_stage = staged and not volume.block and self.options.stage
        source = staged if from_stage else self.volumes.source(volume)
        bind(source, request.target_path, read_only=request.readonly)
        return csi.NodePublishVolumeResponse()

    def NodeUnpublishVolume(
        self, request: csi.NodeUnpublishVolumeRequest
    ) -> csi.NodeUnpublishVolumeResponse:
        self._path(request.target_path, "target path")
        volume = self._volume(request.volume_id)
        unbind(request.target_path)
        if volume.name == volume.id:  # made with its pod
            self.volumes.remove(volume)
        return csi.NodeUnpublishVolumeResponse()

    def NodeExpandVolume(
        self, request: csi.NodeExpandVolumeRequest
    ) -> csi.NodeExpandVolumeResponse:
        self._path(request.volume_path, "volume path")
        volume = self._volume(request.volume_id)
        volume.size = max(volume.size, request.capacity_range.required_bytes)
        self.volumes.save(volume)
        return csi.NodeExpandVolumeResponse(capacity_bytes=volume.size)

    def NodeGetVolumeStats(
        self, request: csi.NodeGetVolumeStatsRequest
    ) -> csi.NodeGetVolumeStatsResponse:
        self._path(request.volume_path, "volume path")
        volume = self._volume(request.volume_id)
        if not Path(request.volume_path).exists():
            refuse("NOT_FOUND", "there is nothing at the volume path")
        used, files = (0, 0) if volume.block else self.volumes.used(volume)
        usage = [
            csi.VolumeUsage(
                unit=csi.VolumeUsage.BYTES,
                total=volume.size,
                used=used,
                available=max(volume.size - used, 0),
            )
        ]
        if not volume.block:
            usage.append(
                csi.VolumeUsage(
                    unit=csi.VolumeUsage.INODES, total=1000, used=files, available=1000 - files
                )
            )
        health = self.options.health
        condition = None
        if health is not None:
            condition = csi.VolumeCondition(abnormal=bool(health), message=health)
        return csi.NodeGetVolumeStatsResponse(usage=usage, volume_condition=condition)

    def _volume(self, handle: str) -> Volume:
        if not handle:
            refuse("INVALID_ARGUMENT", "volume id is missing")
        return self.volumes.get(handle) or refuse("NOT_FOUND", "there is no such volume")

    def _path(self, path: str, what: str) -> None:
        if not path:
            refuse("INVALID_ARGUMENT", f"{what} is missing")

    def _capability(self, capability: csi.VolumeCapability, request: Any) -> None:
        if not request.volume_id:
            refuse("INVALID_ARGUMENT", "volume id is missing")
        if capability.WhichOneof("access_type") is None:
            refuse("INVALID_ARGUMENT", "volume capability is missing")

    def _of_kind(self, volume: Volume, capability: csi.VolumeCapability) -> None:
        if volume.block != capability.HasField("block"):
            refuse("INVALID_ARGUMENT", "it is of the other kind")

    def _reported(self, volume: Volume) -> csi.Volume:
        topology = [csi.Topology(segments=self.options.topology)] if self.options.topology else []
        return csi.Volume(
            volume_id=volume.id, capacity_bytes=volume.size, accessible_topology=topology
        )
