"""Files of the machine: checkpoints, configuration, certificates, recordings."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

from kubeletpy.base.host import x509
from kubeletpy.base.host.pki import CertificateError, Names
from kubeletpy.base.wire.api_table import pod_list
from kubeletpy.config.decode import decode, leaves, parse
from kubeletpy.config.problems import ProblemReport
from kubeletpy.images.records.model import MalformedRecord, read_intent, read_record
from kubeletpy.kubeapi.kubeconfig import KubeconfigError, read_kubeconfig
from kubeletpy.node.certificates.store import kubeconfig_problem
from kubeletpy.observe.recorder import replay as render
from kubeletpy.observe.recorder.replay import replay
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
from kubeletpy.volumes.csi.files import DataUnreadable, VolumeData, encode
from kubeletpy.volumes.csi.files import decode as decode_volume_data
from kubeletpy_up.auth import credentials
from kubeletpy_up.auth.tokens import TokenSigner
from tests.fuzz.target import JSON_WORDS, YAML_WORDS, target, text

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
        checkpoint_file.read_snapshot(text(data), pod_list)
    checkpoint_file.replay({}, data.splitlines(keepends=True))
    inside = text(data)
    whole = {"data": inside, "checksum": checkpoint_file.checksum(inside)}
    for version in ("", "v2"):
        with contextlib.suppress(StateError):
            whole_file = json.dumps({**whole, "version": version})
            pods = checkpoint_file.read_snapshot(whole_file, pod_list)
            again = checkpoint_file.snapshot(pods)
            assert checkpoint_file.read_snapshot(again, pod_list) == pods


@target(
    DataUnreadable,
    seeds=(encode(VolumeData(driver="d", handle="h")),),
    parts=(*JSON_WORDS, b'"driverName"', b'"volumeHandle"'),
)
def volume_data(data: bytes) -> None:
    """vol_data.json of a CSI volume."""
    found = decode_volume_data(data)
    assert decode_volume_data(encode(found)) == found


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


CONFIG = b"""apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://a:1", certificate-authority: ca.crt}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
users: [{name: u, user: {client-certificate-data: YQ==, client-key-data: YQ==}}]
"""
KUBELET = b"""apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 10
evictionHard: {memory.available: 100Mi}
syncFrequency: 1m
featureGates: {A: true}
"""
_FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm"))


@target(KubeconfigError, seeds=(CONFIG,), parts=(*YAML_WORDS, b"cluster", b"user", b"context"))
def kubeconfig(data: bytes) -> None:
    """A kubeconfig is read, or its error is reported."""
    path = _FOLDER / "kubeconfig"
    path.write_bytes(data)
    kubeconfig_problem(path, 1.0)
    found = read_kubeconfig(path)
    found.files(), found.certificate_files(), found.inline_certificate()


@target(seeds=(KUBELET,), parts=(*YAML_WORDS, *JSON_WORDS, b"maxPods", b"evictionHard"))
def kubelet_configuration(data: bytes) -> None:
    """All errors are reported, none is raised."""
    try:
        supplied = data.decode()
    except UnicodeDecodeError:
        supplied = text(data)
    report = ProblemReport("file")
    decode(leaves(parse(supplied, report), report), report)


_NAMES = Names("system:node:a", ("system:nodes",), ("a", "b"), ("10.0.0.1", "::1"))
_REQUEST = x509.new_request(x509.new_key(), _NAMES)
_SIGNER = TokenSigner(b"secret")
_TOKEN = _SIGNER.sign({"exp": 10, "sub": "a"})


@target(CertificateError, seeds=(_REQUEST,), parts=(b"-----BEGIN ", b"CERTIFICATE-----\n"))
def signing_request(data: bytes) -> None:
    """A request in PEM, or its DER."""
    with contextlib.suppress(CertificateError):
        x509.read_certificate(data)
    x509.read_request(data)


@target(seeds=(_TOKEN.encode(), b"abcdef.0123456789abcdef"), parts=(b".", b"=", b"eyJ"))
def token(data: bytes) -> None:
    """Only signed tokens are accepted."""
    supplied = data.decode("latin-1")
    found = _SIGNER.verify(supplied, 1.0)
    assert found is None or supplied == _TOKEN
    if credentials.looks_like_one(text(data)):
        credentials.caller_of_token(text(data), lambda *_: None, 1.0)


RECORDED = Path(__file__).parents[2] / "recorded" / "many-kinds.jsonl.gz"
ODD: tuple[Any, ...] = (
    *(None, True, -1, 0, 1 << 70, 1e400, "", "x", [], {}, [[7]], {"#": 0}, {"#": "x"}),
)
MOST_LINES = 12


@lru_cache(maxsize=1)
def _lines() -> tuple[bytes, ...]:
    return tuple(gzip.decompress(RECORDED.read_bytes()).splitlines()[:MOST_LINES])


@target(
    seeds=(b"\x01\x02\x03\x04", b'{"k":"shared","n":{}}', b"\x02\x05\x00\x07\x03\x01\x09\x02"),
    parts=(*JSON_WORDS, b'{"k":"event",', b'"t":1,"uid":"u",', b'"in":', b'"out":'),
)
def recording(data: bytes) -> None:
    """A line as it is, then a good recording of which some values have another type."""
    lines = [json.loads(line) for line in _lines()]
    for start in range(0, min(len(data), 64) - 3, 4):
        number, *way, odd = data[start : start + 4]
        # a copy: a later change may put a value into this one
        _change(lines[number % len(lines)], way, copy.deepcopy(ODD[odd % len(ODD)]))
    found = replay([data, *(json.dumps(line).encode() for line in lines)])
    render.overview(found, "1")
    render.differences(found)
    for uid in found.stories:
        render.story(found, uid)


def _change(value: Any, way: list[int], odd: Any) -> None:
    """Replace what lies at the end of a way of numbers, or before, where it ends earlier."""
    while isinstance(value, dict | list) and value:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = keys[way[0] % len(keys)]
        if len(way) == 1 or not isinstance(value[key], dict | list) or not value[key]:
            value[key] = odd
            return
        value, way = value[key], way[1:]
