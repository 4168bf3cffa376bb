"""Answers in protobuf have the same content as in JSON."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api import object_text
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.client import JSON_FORMAT, KubeClient, WireFormat
from kubeletpy.kubeapi.kubeconfig import connect_kubeconfig
from kubeletpy.kubeapi.protobuf_format import ProtobufFormat
from kubeletpy.kubeapi.protocol import CONFIGMAPS, LEASES, PODS, SECRETS
from kubeletpy_up.http import bodies
from kubeletpy_up.pki import certificates
from kubeletpy_up.schema import definitions
from kubeletpy_up.schema.definitions import MEDIA_TYPE
from tests.kit.embedded import pod, serving


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    certificates.ensure(directory, "n1")
    return directory


class Noted(ProtobufFormat):
    """Records the content types of answers."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    async def decode(self, content_type: str, body: bytes) -> Any:
        self.seen.add(content_type)
        return await super().decode(content_type, body)


@pytest.fixture
async def clients(tmp_path: Path, pki: Path) -> AsyncIterator[tuple[KubeClient, KubeClient, Noted]]:
    """Two clients of the administrator, one with JSON and one with protobuf."""
    noted = Noted()
    async with serving(tmp_path, pki):
        connection = await connect_kubeconfig(str(tmp_path / "admin.kubeconfig"))
        forms: tuple[WireFormat, ...] = (JSON_FORMAT, noted)
        plain, binary = (KubeClient(connection, qps=0, form=form) for form in forms)
        yield plain, binary, noted
        await plain.close()
        await binary.close()


CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c"},
    "data": {"a": "ä", "e": ""},
    "binaryData": {"b": base64.b64encode(bytes(range(256))).decode()},
}
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "l"},
    "spec": {"renewTime": "2026-11-23T15:00:00.654321Z", "leaseDurationSeconds": 40},
}


async def test_protobuf_and_json_agree(clients: tuple[KubeClient, KubeClient, Noted]) -> None:
    plain, binary, noted = clients
    ns = "default"
    made = await binary.create(CONFIGMAPS, CONFIG, ns)
    assert made == await plain.get(CONFIGMAPS, "c", ns)
    assert (await binary.create(LEASES, LEASE, ns))["spec"] == LEASE["spec"]
    for name in ("a", "b"):
        await plain.create(PODS, pod(name, schedulerName="none"), ns)
    status = {"status": {"containerStatuses": [{"name": "c", "restartCount": 0, "ready": False}]}}
    patched = await binary.patch(PODS, "a", status, ns, subresource="status")
    assert patched == await plain.get(PODS, "a", ns)
    for resource in (PODS, CONFIGMAPS, LEASES, SECRETS):
        assert await binary.list(resource) == await plain.list(resource)
    assert noted.seen == {MEDIA_TYPE}
    watches = [
        api.watch(PODS, resource_version="", timeout_seconds=1, send_initial_events=True)
        for api in (plain, binary)
    ]
    # a bookmark in JSON has no empty spec
    events = [[each async for each in watch if each.type != "BOOKMARK"] for watch in watches]
    assert [each.type for each in events[0]] == ["ADDED", "ADDED"]
    assert events[0] == events[1]


async def test_errors_are_in_protobuf_too(clients: tuple[KubeClient, KubeClient, Noted]) -> None:
    found = []
    for api in clients[:2]:
        with pytest.raises(errors.NotFound) as raised:
            await api.get(PODS, "none", "default")
        found.append((raised.value.message, raised.value.reason, raised.value.details))
        with pytest.raises(errors.Removed) as removed:
            async for _ in api.watch(PODS, resource_version="999999", timeout_seconds=5):
                await asyncio.sleep(0)
        found.append((removed.value.message, removed.value.reason, removed.value.details))
    assert found[:2] == found[2:]
    assert clients[2].seen == {MEDIA_TYPE}


@pytest.mark.parametrize(
    ("accept", "known", "chosen"),
    [
        (MEDIA_TYPE, True, True),
        (f"{MEDIA_TYPE},application/json", True, True),
        (f"{MEDIA_TYPE};charset=utf-8, */*", True, True),
        (f"application/json,{MEDIA_TYPE}", True, False),
        (f"{MEDIA_TYPE},application/json", False, False),
        (f"{MEDIA_TYPE};as=Table;v=v1;g=meta.k8s.io,application/json", True, False),
    ],
)
def test_protobuf_is_chosen(accept: str, known: bool, chosen: bool) -> None:
    form = bodies.negotiate(accept, protobuf=known)
    assert (form.kind, form.protobuf) == ("object", chosen)


def test_objects_that_protobuf_cannot_hold_are_not_encoded() -> None:
    assert definitions.encode({"apiVersion": "v1", "kind": "Pod", "novel": 1}) is None
    assert definitions.encode({"apiVersion": "v1", "kind": "Gadget"}) is None
    assert definitions.encode({"kind": "Pod"}) is None
    assert definitions.encode(object_text.loads(b'{"apiVersion":"v1","kind":"Pod"}')) is not None
