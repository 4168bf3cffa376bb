"""The embedded API's certificates: identities, approval and signing."""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from cryptography.x509 import Name

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import SystemClock
from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.node.certificates import request
from kubeletpy_up.auth import credentials
from kubeletpy_up.controllers import csr_controller
from kubeletpy_up.controllers.csr_controller import CertificateController
from kubeletpy_up.errors import ApiError
from kubeletpy_up.pki import certificates, csr_rules
from kubeletpy_up.pki.certificates import SubjectReader
from kubeletpy_up.pki.csr_rules import REQUESTS
from kubeletpy_up.registry.reading import ListOptions
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, Caller, WriteOptions, node_caller
from kubeletpy_up.storage.store import Store
from tests.kit.embedded import serving
from tests.unit.base.host.requests import HIDDEN
from tests.unit.base.host.requests import request as strangers_request

NODE = request.client_names("n")
SERVER = Names("system:node:n", ("system:nodes",), ("n",), ("10.0.0.1",))
JOINING = Caller("system:bootstrap:abcdef", ("system:bootstrappers", csr_rules.JOINING_GROUP))
NOW = 1_800_000_000.0
# -- identities ----------------------------------------------------------------------------------


def token_secret(**changed: str) -> JSON:
    data = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:a,system:bootstrappers:b:c",
        **changed,
    }
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {}, "type": "bootstrap.kubernetes.io/token", "data": encoded}


@pytest.mark.parametrize(
    ("secret", "token", "known"),
    [
        (token_secret(), "abcdef.0123456789abcdef", True),
        (token_secret(), "abcdef.0123456789abcdeX", False),
        (token_secret(), "abcdeg.0123456789abcdef", False),
        (token_secret(expiration=format_time(NOW + 1)), "abcdef.0123456789abcdef", True),
        (token_secret(expiration=format_time(NOW)), "abcdef.0123456789abcdef", False),
        (token_secret(expiration="soon"), "abcdef.0123456789abcdef", False),
        (
            token_secret(**{"usage-bootstrap-authentication": "false"}),
            "abcdef.0123456789abcdef",
            False,
        ),
        (token_secret(**{"token-id": "abcdeg"}), "abcdef.0123456789abcdef", False),
        (token_secret(**{"auth-extra-groups": "system:masters"}), "abcdef.0123456789abcdef", False),
        ({**token_secret(), "type": "Opaque"}, "abcdef.0123456789abcdef", False),
        ({**token_secret(), "data": {"token-secret": "%"}}, "abcdef.0123456789abcdef", False),
    ],
)
def test_bootstrap_tokens(secret: JSON, token: str, known: bool) -> None:
    def find(resource: str, namespace: str, name: str) -> JSON | None:
        here = (resource, namespace, name) == ("secrets", "kube-system", "bootstrap-token-abcdef")
        return secret if here else None

    found = credentials.caller_of_token(token, find, NOW)
    assert (found is not None) == known
    if found is not None:
        assert found.user == "system:bootstrap:abcdef"
        assert found.groups[:2] == ("system:bootstrappers", "system:bootstrappers:a")
        assert not found.is_admin


def test_client_certificates() -> None:
    subject = (
        (("organizationName", "system:nodes"),),
        (("organizationName", "more"),),
        (("commonName", "system:node:n"),),
    )
    certificate = {"subject": subject, "notAfter": "Jan 15 08:00:00 2027 GMT"}
    found = credentials.caller_of_certificate(certificate, NOW)
    assert found == Caller("system:node:n", ("system:nodes", "more", "system:authenticated"))
    assert found.node_name == "n"
    assert credentials.caller_of_certificate(certificate, NOW + 1) is None
    assert credentials.caller_of_certificate({}, NOW) is None
    assert credentials.caller_of_certificate({**certificate, "subject": ()}, NOW) is None


# -- rules -----------------------------------------------------------------------------------


def spec(signer: str, caller: Caller = JOINING, **changed: object) -> JSON:
    made = {"signerName": signer, "usages": list(request.USAGES[signer])}
    return {**made, "username": caller.user, "groups": list(caller.groups), **changed}


@pytest.mark.parametrize(
    ("names", "signer", "changed", "refused"),
    [
        (NODE, request.CLIENT_SIGNER, {}, ""),
        (SERVER, request.SERVING_SIGNER, {}, ""),
        (NODE, request.CLIENT_SIGNER, {"usages": ["client auth", "key encipherment"]}, ""),
        (NODE, request.CLIENT_SIGNER, {"usages": ["server auth"]}, "usages"),
        (NODE, request.CLIENT_SIGNER, {"usages": ["client auth", "cert sign"]}, "usages"),
        (SERVER, request.CLIENT_SIGNER, {}, "not allowed"),
        (NODE, request.SERVING_SIGNER, {}, "required"),
        (Names("system:node:n", ("system:masters",)), request.CLIENT_SIGNER, {}, "organization"),
        (
            Names("system:node:n", ("system:nodes", "system:masters")),
            request.CLIENT_SIGNER,
            {},
            "organization",
        ),
        (Names("admin", ("system:nodes",)), request.CLIENT_SIGNER, {}, "common name"),
        (
            Names("system:node:n", ("system:nodes",), ("n",), (), ("URI:x",)),
            request.SERVING_SIGNER,
            {},
            "only DNS and IP",
        ),
    ],
)
def test_requests_that_are_signed(names: Names, signer: str, changed: JSON, refused: str) -> None:
    found = csr_rules.problem(spec(signer, **changed), names)
    assert (refused in found) if refused else found == ""


@pytest.mark.parametrize(
    ("caller", "names", "approved"),
    [
        (JOINING, NODE, True),
        (node_caller("n"), NODE, True),
        (node_caller("m"), NODE, False),
        (Caller("system:bootstrap:x", ("system:bootstrappers",)), NODE, False),
        (Caller("system:node:n", ()), NODE, False),
        (JOINING, SERVER, False),
    ],
)
def test_requests_that_are_approved_automatically(
    caller: Caller, names: Names, approved: bool
) -> None:
    desired = {"spec": spec(request.CLIENT_SIGNER, caller)}
    assert bool(csr_rules.approval(desired, names)) == approved


def test_serving_certificates_wait_for_approval() -> None:
    assert csr_rules.waits_for_approval({"spec": spec(request.CLIENT_SIGNER)})
    assert not csr_rules.waits_for_approval({"spec": spec(request.SERVING_SIGNER)})


# -- the complete controller ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    pair = KeyPair.named(tmp_path_factory.mktemp("ca"), "ca")
    x509.make_authority(pair, "test")
    return pair


@pytest.fixture
def registry() -> Iterator[Registry]:
    store = Store(":memory:", SystemClock())
    yield Registry(SystemClock(), store, rng=random.Random(1))
    store.close()


@pytest.fixture
async def controller(
    registry: Registry, authority: KeyPair
) -> AsyncIterator[CertificateController]:
    made = CertificateController(registry, authority, lifetime=1000.0)
    made.start()
    yield made
    await made.stop()


async def decided(registry: Registry, name: str) -> JSON:
    """Returns the request once it has a certificate or has failed."""
    watch = registry.watch(
        ADMIN, REQUESTS, options=ListOptions(field_selector=f"metadata.name={name}")
    )
    async with asyncio.timeout(20):
        while True:
            event = await watch.next()
            assert event is not None
            found: JSON = event.object
            if (found.get("status") or {}).get("certificate") or "Failed" in str(found["status"]):
                watch.close()
                return found


def make_request(
    name: str, names: Names, signer: str, seconds: int | None = None
) -> tuple[JSON, bytes]:
    key = x509.new_key()
    pem = x509.new_request(key, names)
    made = request.request_object(name, signer, pem)
    if seconds is not None:
        made["spec"]["expirationSeconds"] = seconds
    return made, key


async def test_a_joining_node_gets_its_certificate(
    registry: Registry, controller: CertificateController, authority: KeyPair, tmp_path: Path
) -> None:
    obj, key = make_request("a", NODE, request.CLIENT_SIGNER, 600)
    registry.create(JOINING, REQUESTS, obj)
    found = await decided(registry, "a")
    assert csr_rules.conditions(found) == {"Approved"}
    pem = base64.b64decode(found["status"]["certificate"])
    certificate = x509.read_certificate(pem)
    assert certificate.names == NODE
    assert certificate.not_after - certificate.not_before == 600
    pair = KeyPair.named(tmp_path, "n")
    pair.certificate.write_bytes(pem)
    pair.key.write_bytes(key)
    assert pair.loads()
    assert x509.verifies(authority.certificate, pair.certificate)


@pytest.mark.parametrize("subject", HIDDEN.values(), ids=HIDDEN)
async def test_nobody_becomes_an_administrator_by_the_form_of_a_name(
    registry: Registry, controller: CertificateController, subject: Name
) -> None:
    pem = strangers_request(subject)
    made = registry.create(
        JOINING, REQUESTS, request.request_object("evil", request.CLIENT_SIGNER, pem)
    )
    ordinary, _ = make_request("later", NODE, request.CLIENT_SIGNER)
    registry.create(JOINING, REQUESTS, ordinary)
    await decided(registry, "later")
    found = registry.find(REQUESTS, "", "evil")
    assert found is not None
    assert not csr_rules.conditions(found), "it is not approved by itself"
    approved = csr_rules.with_condition(made, "Approved", "Test", "", format_time(NOW))
    registry.update(ADMIN, REQUESTS, approved, name="evil", subresource="approval")
    found = await decided(registry, "evil")
    assert csr_rules.conditions(found) == {"Approved", "Failed"}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyError("a bug")])
async def test_a_failing_request_does_not_block_others(
    registry: Registry,
    controller: CertificateController,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    monkeypatch.setattr(csr_controller, "RETRY_S", 0.0)
    errors, read = [error], x509.read_request

    def first_fails(pem: bytes) -> Names:
        if errors:
            raise errors.pop()
        return read(pem)

    monkeypatch.setattr(x509, "read_request", first_fails)
    for name in ("first", "second"):
        obj, _ = make_request(name, NODE, request.CLIENT_SIGNER)
        registry.create(JOINING, REQUESTS, obj)
    assert "certificate" in (await decided(registry, "second"))["status"]
    if isinstance(error, OSError):
        assert "certificate" in (await decided(registry, "first"))["status"]


@pytest.mark.parametrize(
    ("subject", "refusal"),
    [
        ("system:node:n", ""),
        ("system:node:m", "CN=system:node:n$"),
        ("", "CN=system:node:n$"),
        (None, "unable to parse"),
    ],
)
def test_a_node_requests_only_its_own_certificate(
    registry: Registry, subject: str | None, refusal: str
) -> None:
    obj = request.request_object("a", request.CLIENT_SIGNER, b"-----BEGIN CERTIFICATE REQUEST-----")
    options = WriteOptions(subject=subject)
    if refusal:
        with pytest.raises(ApiError, match=refusal):
            registry.create(node_caller("n"), REQUESTS, obj, options=options)
    else:
        registry.create(node_caller("n"), REQUESTS, obj, options=options)


@pytest.mark.parametrize("resource", ["pods", "secrets", "nodes"])
def test_a_joining_machine_may_do_nothing_else(registry: Registry, resource: str) -> None:
    registry.list(JOINING, REQUESTS)
    with pytest.raises(ApiError) as caught:
        registry.list(JOINING, resource)
    assert caught.value.code == 403


async def test_old_requests_are_removed(
    registry: Registry, controller: CertificateController
) -> None:
    obj, _ = make_request("s", SERVER, request.SERVING_SIGNER)
    registry.create(JOINING, REQUESTS, obj)
    controller.expire()
    assert registry.find(REQUESTS, "", "s") is not None
    made = registry.find(REQUESTS, "", "s")
    assert made is not None
    about = {**made["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}
    registry.store.put(REQUESTS, "", "s", {**made, "metadata": about})
    controller.expire()
    assert registry.find(REQUESTS, "", "s") is None


def test_tls_server_accepts_an_optional_client_certificate(tmp_path: Path) -> None:
    from kubeletpy_up.pki import certificates

    made = certificates.ensure(tmp_path, "n")
    assert made.server_context().verify_mode is ssl.CERT_OPTIONAL


async def test_a_stop_waits_for_a_signature_and_stores_none(
    registry: Registry, authority: KeyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, began, proceed = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    signed = []

    def sign(*_: object, **_more: object) -> bytes:
        loop.call_soon_threadsafe(began.set)
        assert proceed.wait(20)
        signed.append(1)
        return b"a certificate"

    monkeypatch.setattr(x509, "sign_request", sign)
    controller = CertificateController(registry, authority)
    controller.start()
    obj, _ = make_request("a", NODE, request.CLIENT_SIGNER)
    registry.create(JOINING, REQUESTS, obj)
    await asyncio.wait_for(began.wait(), 20)
    loop.call_later(0.05, proceed.set)
    await asyncio.wait_for(controller.stop(), 20)
    assert signed
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert "certificate" not in registry.get(ADMIN, REQUESTS, "a")["status"]


# A node's certificate request is parsed off the event loop, and refused if for another node.

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
OWN = Names("system:node:n1", ("system:nodes",), ("n1",))


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
        return OWN

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


async def test_server_answers_a_node_that_requests_another_certificate(tmp_path: Path) -> None:
    certificates.ensure(tmp_path / "pki", "n1")
    other = Names("system:node:m", OWN.organizations, OWN.dns_names)
    async with serving(tmp_path, tmp_path / "pki") as (_, _, node):
        for name, text, code in (
            ("mine", pem(OWN), 201),
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
