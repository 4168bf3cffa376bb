"""The checkpoint file, against the vectors of docs/reference/behaviour-resources.md, rx."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.resources.devices.checkpoint import checksum, parse_checkpoint, render
from kubeletpy.resources.devices.model import Booking, DeviceHolder
from kubeletpy.resources.placement.state import StateError

ENTRY = {
    "PodUID": "uid-a",
    "ContainerName": "c",
    "ResourceName": "example.com/dev",
    "DeviceIDs": {"-1": ["d1"], "0": ["d2", "d0"]},
    "AllocResp": "CgYKAUESATE=",
}
REGISTERED = {"example.com/dev": ["d0", "d1", "d2"], "example.com/a": []}
VECTORS = [
    ({"PodDeviceEntries": None, "RegisteredDevices": {}}, 3467439661),
    ({"PodDeviceEntries": [], "RegisteredDevices": {}}, 2932075448),
    ({"PodDeviceEntries": [ENTRY], "RegisteredDevices": REGISTERED}, 3675780745),
]
HOLDER = DeviceHolder("uid-a", "c", "example.com/dev")
BOOKING = Booking({-1: ("d1",), 0: ("d2", "d0")}, b"\n\x06\n\x01A\x12\x011")


@pytest.mark.parametrize(("data", "total"), VECTORS)
def test_sums_are_the_kubelets(data: dict[str, Any], total: int) -> None:
    assert checksum(data) == total


@pytest.mark.parametrize("space", ["", " "])
def test_a_file_of_the_kubelet_is_read(space: str) -> None:
    data = {"RegisteredDevices": REGISTERED, "PodDeviceEntries": [ENTRY]}
    text = json.dumps({"Checksum": 3675780745, "Data": data}, separators=(f",{space}", f":{space}"))
    bookings, resources = parse_checkpoint(text)
    assert bookings == {HOLDER: BOOKING}
    assert set(resources) == set(REGISTERED)


def test_an_answer_with_other_characters_than_base64_is_refused() -> None:
    entry = {**ENTRY, "AllocResp": "%%%%CgYKAUESATE="}
    data = {"RegisteredDevices": REGISTERED, "PodDeviceEntries": [entry]}
    with pytest.raises(StateError, match=r"^it is not a state file: Error: "):
        parse_checkpoint(json.dumps({"Checksum": 3675780745, "Data": data}))


def test_an_entry_of_the_kubelet_without_devices_is_read() -> None:
    entry = {**ENTRY, "DeviceIDs": None, "AllocResp": None}
    data = {"PodDeviceEntries": [entry], "RegisteredDevices": None}
    bookings, resources = parse_checkpoint(json.dumps({"Checksum": checksum(data), "Data": data}))
    assert bookings == {HOLDER: Booking({}, b"")}
    assert resources == ()


def test_written_files_have_the_kubelets_checksum() -> None:
    written = json.loads(render({HOLDER: BOOKING}, REGISTERED))
    assert written == {
        "Data": {"PodDeviceEntries": [ENTRY], "RegisteredDevices": REGISTERED},
        "Checksum": 3675780745,
    }
    assert json.loads(render({}, {})) == {
        "Data": {"PodDeviceEntries": None, "RegisteredDevices": {}},
        "Checksum": 3467439661,
    }


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"Data": {"PodDeviceEntries": null, "RegisteredDevices": {}}, "Checksum": 1}',
        b'{"Data": {"PodDeviceEntries": 5, "RegisteredDevices": {}}, "Checksum": 1}',
        b'{"Data": {"PodDeviceEntries": [{}], "RegisteredDevices": {}}, "Checksum": 1}',
        b'{"Data": {"PodDeviceEntries": null, "RegisteredDevices": 7}, "Checksum": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_other_files_are_refused(text: bytes) -> None:
    with pytest.raises(StateError):
        parse_checkpoint(text)
