"""The kubelet's file of devices, in its own form so that a node can change agents. Pure.

Source: docs/reference/behaviour-resources.md, rx.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kubeletpy.pods.pod import fnv1a_32
from kubeletpy.resources.devices.model import Booking, DeviceHolder
from kubeletpy.resources.placement import state

K = TypeVar("K")

FILE = "kubelet_internal_checkpoint"


def render(
    bookings: Mapping[DeviceHolder, Booking], registered: Mapping[str, Sequence[str]]
) -> str:
    """Return the text of a file.

    Args:
        registered: healthy ids of each resource that a plugin has registered.
    """
    data = {
        "PodDeviceEntries": [
            {
                "PodUID": holder.uid,
                "ContainerName": holder.container,
                "ResourceName": holder.resource,
                "DeviceIDs": {str(node): list(ids) for node, ids in booking.by_node.items()},
                "AllocResp": base64.b64encode(booking.response).decode(),
            }
            for holder, booking in bookings.items()
        ]
        or None,
        "RegisteredDevices": {name: list(ids) for name, ids in registered.items()},
    }
    return json.dumps({"Data": data, "Checksum": checksum(data)}, separators=(",", ":"))


def parse_checkpoint(text: str | bytes) -> tuple[dict[DeviceHolder, Booking], tuple[str, ...]]:
    """Return the devices of each container, and the names of the resources that had a plugin.

    Raises:
        StateError: it is not what the kubelet or this agent has written.
    """
    with state.reading():
        data = state.unseal(text, checksum, "Data", "Checksum")
        bookings = {}
        for entry in data["PodDeviceEntries"] or ():
            holder = DeviceHolder(entry["PodUID"], entry["ContainerName"], entry["ResourceName"])
            response = base64.b64decode(entry["AllocResp"] or "", validate=True)
            devices = entry["DeviceIDs"] or {}
            at = {int(node): tuple(ids or ()) for node, ids in devices.items()}
            bookings[holder] = Booking(at, response)
        return bookings, tuple(data["RegisteredDevices"] or ())


def checksum(data: Mapping[str, Any]) -> int:
    """Return the checksum of a file's ``Data``, over a dump as Go prints values."""
    entries, registered = data["PodDeviceEntries"], data["RegisteredDevices"]
    fields = [
        (
            "PodDeviceEntries",
            "[]checkpoint.PodDevicesEntry",
            state.dump_list(None if entries is None else map(_entry, entries)),
        ),
        ("RegisteredDevices", "map[string][]string", _lists(registered, state.dump_text_map)),
    ]
    dump = f"(checkpoint.checkpointData){state.dump_struct(fields)}"
    return fnv1a_32(dump.encode("utf-8", "surrogatepass"))


def _entry(entry: Mapping[str, Any]) -> str:
    response, devices = entry["AllocResp"], entry["DeviceIDs"]
    by_node = None if devices is None else {int(node): ids for node, ids in devices.items()}
    return state.dump_struct(
        [
            ("PodUID", "string", entry["PodUID"]),
            ("ContainerName", "string", entry["ContainerName"]),
            ("ResourceName", "string", entry["ResourceName"]),
            ("DeviceIDs", "checkpoint.DevicesPerNUMA", _lists(by_node, state.dump_number_map)),
            (
                "AllocResp",
                "[]uint8",
                state.dump_list(
                    None if response is None else base64.b64decode(response, validate=True)
                ),
            ),
        ]
    )


def _lists(
    lists: Mapping[K, Iterable[object] | None] | None, show: Callable[[Mapping[K, object]], str]
) -> str:
    if lists is None:
        return state.NIL
    return show({key: state.dump_list(ids) for key, ids in lists.items()})
