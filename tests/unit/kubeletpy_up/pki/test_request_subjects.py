"""A node's certificate request is parsed off the event loop, and refused if for another node."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kubeletpy.base.host import x509
from kubeletpy.base.host.pki import Names
from kubeletpy.node.certificates import request
from kubeletpy_up.pki import certificates
from kubeletpy_up.pki.certificates import SubjectReader
from tests.unit.kubeletpy_up.serving import serving

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SERVER = Names("system:node:n1", ("system:nodes",), ("n1",))


def pem(names: Names) -> bytes:
    return x509.new_request(x509.new_key(), names)


async def test_while_a_request_is_parsed_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates.ensure(tmp_path / "pki", "n1")
    reading, answered = threading.Event(), threading.Event()

    def slow(text: bytes) -> Names:
        reading.set()
        assert answered.wait(10), "nobody was answered meanwhile"
        return SERVER

    monkeypatch.setattr(x509, "read_request", slow)
    desired = request.request_object(
        "a", request.SERVING_SIGNER, b"-----BEGIN CERTIFICATE REQUEST-----"
    )
    async with serving(tmp_path, tmp_path / "pki") as (_, admin, node):
        requested = asyncio.ensure_future(node.ask("POST", PATH, desired))
        await asyncio.to_thread(reading.wait, 10)
        assert (await admin.ask("GET", "/api/v1/nodes"))[0] == 200
        answered.set()
        assert (await requested)[0] == 201


async def test_a_node_requests_only_its_own_certificate(tmp_path: Path) -> None:
    certificates.ensure(tmp_path / "pki", "n1")
    other = Names("system:node:m", SERVER.organizations, SERVER.dns_names)
    async with serving(tmp_path, tmp_path / "pki") as (_, _, node):
        for name, text, code in (
            ("mine", pem(SERVER), 201),
            ("other", pem(other), 403),
            ("junk", b"junk", 403),
        ):
            desired = request.request_object(name, request.SERVING_SIGNER, text)
            assert (await node.ask("POST", PATH, desired))[0] == code, name
        stranger = request.request_object("junk", request.SERVING_SIGNER, pem(other))
        elsewhere = {**stranger, "spec": {**stranger["spec"], "signerName": "example.com/any"}}
        assert (await node.ask("POST", PATH, elsewhere))[0] == 201, "not a signer of nodes"
        odds: list[object] = [{}, {"spec": 1}, {"spec": {"signerName": []}}, [], 1]
        for odd in odds:
            assert (await node.ask("POST", PATH, odd))[0] in (400, 422), odd


@pytest.mark.parametrize("text", ["", "%", "====", "\ud800"])
async def test_unreadable_requests(text: str) -> None:
    spec = {"signerName": request.CLIENT_SIGNER, "request": text}
    assert await SubjectReader().common_name({"spec": spec}) is None
