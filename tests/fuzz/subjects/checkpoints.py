"""State files: of the agent, of the kubelet before it, or torn by a machine that died.

If a file has a checksum of its data, the correct one is added to the fuzzer's data.
"""

from __future__ import annotations

import contextlib
import json

from kubeletpy.images.records.model import MalformedRecord, read_intent, read_record
from kubeletpy.resources.allocation import checkpoint_file
from kubeletpy.resources.devices import checkpoint as devices
from kubeletpy.resources.dra import checkpoint as dra
from kubeletpy.resources.placement.state import (
    CpuState,
    MemoryState,
    StateError,
    cpu_checksum,
    read_cpu_state,
    read_memory_state,
    write_cpu_state,
    write_memory_state,
)
from kubeletpy.volumes.csi.files import DataUnreadable, VolumeData, decode, encode
from tests.fuzz.target import JSON_WORDS, target, text

DEVICES = (
    b'{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"a/b","DeviceIDs":'
    b'{"0":["d"],"-1":["e"]},"AllocResp":"YQ=="}],"RegisteredDevices":{"a/b":["d"]}}'
)
CLAIMS = (
    b'{"kind":"%s","apiVersion":"%s","ClaimInfoStateList":[{"ClaimUID":"u","ClaimName"'
    b':"c","Namespace":"n","PodUIDs":{"p":{}},"DriverState":{"d":{"Devices":[{"PoolName":"p",'
    b'"DeviceName":"x","RequestNames":["r"],"CDIDeviceIDs":["a/b=c"]}]}}}]}'
)
PODS = b'{"entries":{"u":{"ContainerResources":{"c":{"requests":{"cpu":"1"}}}}}}'


@target(
    StateError,
    seeds=(DEVICES,),
    parts=(*JSON_WORDS, b'"DeviceIDs"', b'"AllocResp"', b'"PodDeviceEntries"'),
)
def checkpoint_devices(data: bytes) -> None:
    """The devices that containers have."""
    with contextlib.suppress(StateError):
        devices.parse_checkpoint(data)
    try:
        entries = json.loads(data)
        total = devices.checksum(entries)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    bookings, names = devices.parse_checkpoint(json.dumps({"Data": entries, "Checksum": total}))
    found = devices.render(bookings, dict.fromkeys(names, ()))
    assert devices.parse_checkpoint(found)[0] == bookings


@target(
    StateError, seeds=(CLAIMS % (dra.KIND.encode(), dra.API_VERSION.encode()),), parts=JSON_WORDS
)
def checkpoint_claims(data: bytes) -> None:
    """Which claims are prepared."""
    with contextlib.suppress(StateError):
        dra.parse_checkpoint(text(data))
    inside = text(data)
    claims = dra.parse_checkpoint(json.dumps({"Data": inside, "Checksum": dra.checksum(inside)}))
    assert dra.parse_checkpoint(dra.render(claims)) == claims


@target(
    StateError,
    seeds=(write_cpu_state(CpuState("static", frozenset({0, 1}), {})).encode(),),
    parts=(*JSON_WORDS, b'"entries"', b'"defaultCpuSet"', b'"0-1"', b"podEntries"),
)
def checkpoint_cpus(data: bytes) -> None:
    """Which CPUs containers have."""
    with contextlib.suppress(StateError):
        read_cpu_state(text(data))
    try:
        found = json.loads(data)
        found["checksum"] = cpu_checksum(
            found["policyName"], found["defaultCpuSet"], found.get("entries") or {}
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    state = read_cpu_state(json.dumps(found))
    assert read_cpu_state(write_cpu_state(state)) == state


@target(
    StateError,
    seeds=(write_memory_state(MemoryState("Static", {}, {})).encode(),),
    parts=(*JSON_WORDS, b'"machineState"', b'"entries"', b'"numaAffinity"', b'"memoryMap"'),
)
def checkpoint_memory(data: bytes) -> None:
    """Which memory containers have."""
    read_memory_state(text(data))


@target(StateError, seeds=(PODS,), parts=JSON_WORDS)
def checkpoint_allocations(data: bytes) -> None:
    """The resources that are allocated to pods, and their journal."""
    with contextlib.suppress(StateError):
        checkpoint_file.read_snapshot(text(data))
    checkpoint_file.replay({}, data.splitlines(keepends=True))
    inside = text(data)
    whole = json.dumps({"data": inside, "checksum": checkpoint_file.checksum(inside)})
    pods = checkpoint_file.read_snapshot(whole)
    assert checkpoint_file.read_snapshot(checkpoint_file.snapshot(pods)) == pods


@target(
    DataUnreadable,
    seeds=(encode(VolumeData(driver="d", handle="h")),),
    parts=(*JSON_WORDS, b'"driverName"', b'"volumeHandle"'),
)
def volume_data(data: bytes) -> None:
    """vol_data.json of a CSI volume."""
    found = decode(data)
    assert decode(encode(found)) == found


@target(
    MalformedRecord,
    seeds=(b'{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"ImagePulledRecord"}',),
    parts=(*JSON_WORDS, b'"credentialMapping"', b'"imageRef"', b'"kubernetesSecrets"'),
)
def image_records(data: bytes) -> None:
    """The pods that may use an image."""
    with contextlib.suppress(MalformedRecord):
        read_intent(data)
    read_record(data)
