"""Merges plugins' answers into the additions that a container gets with its devices. Pure.

Source: docs/reference/behaviour-resources.md, rp.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import DeviceNode, Mount
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.resources.devices.model import Booking

if TYPE_CHECKING:
    from kubeletpy.remote.generated import deviceplugin_pb2 as pb


class FromPlugins(Struct, frozen=True):
    """The additions to one container's config from all its devices."""

    envs: tuple[tuple[str, str], ...]
    mounts: tuple[Mount, ...]
    devices: tuple[DeviceNode, ...]
    annotations: Mapping[str, str]
    cdi_devices: tuple[str, ...]


def from_plugins(bookings: Mapping[str, Booking]) -> FromPlugins:
    """The additions from a container's devices; the first of equal keys wins.

    Args:
        bookings: by resource, in the order of their names.

    Raises:
        ContainerConfigError: a plugin's answer can't be carried out.
    """
    envs: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    devices: dict[str, DeviceNode] = {}
    annotations: dict[str, str] = {}
    names: dict[str, None] = {}
    for resource, booking in bookings.items():
        response = _parsed(resource, booking.response)
        for name, text in sorted(response.envs.items()):
            _must_be_variable(resource, name, text)
            envs.setdefault(name, text)
        for key, text in sorted(response.annotations.items()):
            annotations.setdefault(key, text)
        for mount in response.mounts:
            path = _absolute(resource, "mount", mount.container_path)
            source = _absolute(resource, "mount", mount.host_path)
            mounts.setdefault(path, Mount(path, source, mount.read_only))
        for device in response.devices:
            path = _absolute(resource, "device", device.container_path)
            source = _absolute(resource, "device", device.host_path)
            devices.setdefault(path, DeviceNode(path, source, _permissions(resource, device)))
        names |= dict.fromkeys(device.name for device in response.cdi_devices)
    return FromPlugins(
        tuple(envs.items()),
        tuple(mounts.values()),
        tuple(devices.values()),
        annotations,
        tuple(names),
    )


def _parsed(resource: str, response: bytes) -> pb.ContainerAllocateResponse:
    from kubeletpy.remote.generated import deviceplugin_pb2 as pb

    try:
        return pb.ContainerAllocateResponse.FromString(response)
    except DecodeError:
        raise ContainerConfigError(
            f"what the device plugin of {resource} has answered can't be read"
        ) from None


def _must_be_variable(resource: str, name: str, text: str) -> None:
    if not name or "=" in name or "\0" in name + text:
        raise ContainerConfigError(
            f"device plugin of {resource}: {name[:80]!r} is no variable's name, or its value "
            "contains a zero byte"
        )


def _absolute(resource: str, what: str, path: str) -> str:
    if not posixpath.isabs(path) or "\0" in path:
        raise ContainerConfigError(
            f"device plugin of {resource}: the path of a {what} is not absolute: {path!r}"
        )
    return path


def _permissions(resource: str, device: pb.DeviceSpec) -> str:
    if set(device.permissions) <= set("rwm"):
        return device.permissions
    raise ContainerConfigError(
        f"device plugin of {resource}: permissions of device {device.container_path} are "
        f"{device.permissions!r}, not of the letters r, w and m"
    )
