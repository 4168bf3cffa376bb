"""The kubelet's file of devices: read and written in its form, so that a node can change agents.

Pure. Source: docs/reference/behaviour-resources.md, rx.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from kubeletpy.devices.model import Booking, Holder
from kubeletpy.pods.fnv import fnv1a_32

FILE = "kubelet_internal_checkpoint"


class BadCheckpoint(ValueError):
    """The file can't be used; the text says why."""


def render(bookings: Mapping[Holder, Booking], registered: Mapping[str, Sequence[str]]) -> str:
    """The file's text.

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


def read(text: str | bytes) -> tuple[dict[Holder, Booking], tuple[str, ...]]:
    """Who has which devices, and the names of the resources that had a plugin.

    Raises:
        BadCheckpoint: it is not what the kubelet or this agent has written.
    """
    try:
        whole = json.loads(text)
        data = whole["Data"]
        if whole["Checksum"] != checksum(data):
            raise BadCheckpoint(f"its checksum is not that of its data ({checksum(data)})")
        bookings = {}
        for entry in data["PodDeviceEntries"] or ():
            holder = Holder(entry["PodUID"], entry["ContainerName"], entry["ResourceName"])
            given = base64.b64decode(entry["AllocResp"] or "", validate=True)
            devices = entry["DeviceIDs"] or {}
            at = {int(node): tuple(ids or ()) for node, ids in devices.items()}
            bookings[holder] = Booking(at, given)
        return bookings, tuple(data["RegisteredDevices"] or ())
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadCheckpoint(f"it is not a checkpoint of devices: {error!r}") from None
    except (json.JSONDecodeError, UnicodeDecodeError, binascii.Error) as error:
        raise BadCheckpoint(f"it can't be read: {error}") from None
    except ValueError as error:
        raise BadCheckpoint(str(error)) from None


def checksum(data: Mapping[str, Any]) -> int:
    """The sum of a file's ``Data``: of a dump of it, as Go shows values."""
    entries, registered = data["PodDeviceEntries"], data["RegisteredDevices"]
    dump = (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)"
        + ("<nil>" if entries is None else f"[{' '.join(map(_entry, entries))}]")
        + " RegisteredDevices:(map[string][]string)"
        + _map(registered, key=str)
        + "}"
    )
    return fnv1a_32(dump.encode("utf-8", "surrogatepass"))


def _entry(entry: Mapping[str, Any]) -> str:
    given = entry["AllocResp"]
    bytes_given = "<nil>" if given is None else _list(base64.b64decode(given, validate=True))
    return (
        f"{{PodUID:(string){entry['PodUID']} ContainerName:(string){entry['ContainerName']} "
        f"ResourceName:(string){entry['ResourceName']} "
        f"DeviceIDs:(checkpoint.DevicesPerNUMA){_map(entry['DeviceIDs'], key=int)} "
        f"AllocResp:([]uint8){bytes_given}}}"
    )


def _map(lists: Mapping[str, Sequence[str] | None] | None, key: type) -> str:
    if lists is None:
        return "<nil>"
    # text is in the order of its bytes, which for UTF-8 is that of its code points
    ordered = sorted(lists.items(), key=lambda item: key(item[0]))
    return f"map[{' '.join(f'{name}:{_list(ids)}' for name, ids in ordered)}]"


def _list(values: Sequence[object] | None) -> str:
    return "<nil>" if values is None else f"[{' '.join(map(str, values))}]"
