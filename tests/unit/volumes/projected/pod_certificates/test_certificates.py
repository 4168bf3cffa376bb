"""The certificates of pods over time: requested, awaited, projected, refreshed, forgotten."""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound
from kubeletpy.kubeapi.protocol import Resource, WatchEvent
from kubeletpy.kubeapi.watch_state import FailingWatches, StreamedLists
from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import PodCertificateMetrics
from kubeletpy.volumes.claims.model import VolumeError
from kubeletpy.volumes.files.paths import CertificateInput, PayloadError
from kubeletpy.volumes.node.node_volumes import NodeVolumes
from kubeletpy.volumes.projected.pod_certificates.certificates import PodCertificates
from tests.kit.messages import streamed
from tests.kit.virtual_time import LoopClock, eventually, settle
from tests.kit.volumes import Node, node, pod_of

pytestmark = pytest.mark.virtual_time

__all__ = ["node"]
SPEC = {"signerName": "example.com/s", "keyType": "ED25519", "keyPath": "key.pem"}
POD = pod_of(serviceAccountName="sa")


def chain(text: str) -> str:
    """A text in the form of a certificate chain."""
    inside = base64.b64encode(text.encode()).decode()
    return f"-----BEGIN CERTIFICATE-----\n{inside}\n-----END CERTIFICATE-----\n"


class Api:
    """Certificate requests of one node, and a signer that the test controls."""

    alone = False

    def __init__(self) -> None:
        self.requests: dict[str, JSON] = {}
        self.refusals: list[ApiError] = []
        self.serves = "v1"
        self.watches: list[asyncio.Queue[WatchEvent]] = []
        self.selectors: set[str] = set()
        self.created = 0
        self.streamed_lists = StreamedLists()
        self.failing_watches = FailingWatches()
        self.at_once: Callable[[str], None] = lambda name: None
        """Called before the creation is answered."""

    async def get(self, resource: Resource, name: str, namespace: str) -> JSON:
        assert (resource.plural, name, namespace) == ("serviceaccounts", "sa", "default")
        return {"metadata": {"uid": "sa-uid"}}

    async def list(self, resource: Resource, *, field_selector: str, **_: Any) -> JSON:
        assert field_selector == "spec.nodeName=n"
        if resource.version != self.serves:
            raise NotFound("the server could not find the requested resource", code=404)
        return {"items": []}

    async def watch(
        self, *_: Any, field_selector: str, send_initial_events: bool, **__: Any
    ) -> AsyncIterator[WatchEvent]:
        self.selectors.add(field_selector)
        queue: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self.watches.append(queue)
        try:
            if send_initial_events:
                for event in streamed(list(self.requests.values()), "1"):
                    yield event
            while True:
                yield await queue.get()
        finally:
            self.watches.remove(queue)

    async def create(self, resource: Resource, obj: JSON, namespace: str) -> JSON:
        assert resource.version == self.serves
        assert obj["apiVersion"] == f"certificates.k8s.io/{self.serves}"
        if self.refusals:
            raise self.refusals.pop(0)
        self.created += 1
        name = f"req-{self.created}"
        metadata = {**obj["metadata"], "name": name}
        self.requests[name] = {**obj, "metadata": metadata}
        self.send_event("ADDED", name)
        self.at_once(name)
        await asyncio.sleep(0.01)
        return {**obj, "metadata": metadata}

    def send_event(self, kind: str, name: str) -> None:
        for queue in self.watches:
            queue.put_nowait(WatchEvent(kind, self.requests[name]))

    def answer(self, name: str, kind: str, **status: Any) -> None:
        condition = {"type": kind, "status": "True", "reason": "R", "message": "m"}
        status = {"conditions": [condition], **status}
        self.requests[name] = {**self.requests[name], "status": status}
        self.send_event("MODIFIED", name)

    def issue(
        self, name: str, now: float = 0.0, *, refresh: float = 1800, life: float = 3600
    ) -> None:
        self.answer(
            name,
            "Issued",
            certificateChain=chain(name),
            beginRefreshAt=format_time(now + refresh),
            notAfter=format_time(now + life),
        )

    def remove(self, name: str) -> None:
        self.send_event("DELETED", name)
        del self.requests[name]


class Agent:
    """The component under test, with its events and the pods that it woke."""

    def __init__(self) -> None:
        self.api = Api()
        self.events: list[str] = []
        self.woken: list[str] = []
        self.node_uid = "node-uid"
        self.clock = LoopClock()
        families = Families()
        self.registry = families.registry
        self.certificates = PodCertificates(
            cast(Any, self.api),
            "n",
            lambda: self.node_uid,
            self,
            self.clock,
            metrics=PodCertificateMetrics(families),
            rng=random.Random(1),
        )
        self.certificates.on_change(self.woken.append)

    def event(self, ref: Any, kind: str, reason: str, text: str, annotations: Any = None) -> None:
        self.events.append(f"{reason}: {text}")

    async def get(self) -> CertificateInput:
        return await self.certificates.credentials(POD, "v", 0, SPEC)

    async def missing(self) -> str:
        with pytest.raises(PayloadError) as caught:
            await self.get()
        return str(caught.value)

    async def issued(self) -> CertificateInput:
        """Mount the volume with its first certificate."""
        await self.missing()
        self.api.issue("req-1", self.clock.now())
        await settle()
        return await self.get()

    def counted(self, state: str) -> float | None:
        labels = {"signer_name": "example.com/s", "state": state}
        return self.registry.get_sample_value("kubelet_podcertificate_states", labels)


async def test_one_request_and_its_certificate() -> None:
    agent = Agent()
    assert "req-1 waits for the signer" in await agent.missing()
    assert await agent.missing()
    assert agent.api.selectors == {"spec.nodeName=n"}
    assert agent.api.requests["req-1"]["spec"]["serviceAccountUID"] == "sa-uid"
    assert agent.api.requests["req-1"]["spec"]["nodeUID"] == "node-uid"
    assert (agent.counted("not_yet_issued"), agent.woken) == (1, [])
    agent.api.issue("req-1", agent.clock.now())
    await settle()
    assert (agent.woken, agent.counted("fresh")) == ([POD.uid], 1)
    found = await agent.get()
    assert found.chain == chain("req-1").encode()
    assert found.key.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert (await agent.get(), agent.api.created) == (found, 1)
    await agent.certificates.close()


async def test_a_server_without_v1_gets_requests_in_v1beta1() -> None:
    agent = Agent()
    agent.api.serves = "v1beta1"
    assert (await agent.issued()).chain == chain("req-1").encode()
    await agent.certificates.close()


async def test_a_signer_that_is_faster_than_the_answer_to_the_creation() -> None:
    agent = Agent()
    agent.api.at_once = lambda name: agent.api.issue(name, agent.clock.now())
    assert (await agent.get()).chain == chain("req-1").encode()
    await agent.certificates.close()


async def test_a_refresh_has_a_new_key_and_the_old_certificate_holds_until_then() -> None:
    agent = Agent()
    first = await agent.issued()
    await asyncio.sleep(1798)
    assert agent.api.created == 1
    await asyncio.sleep(302)
    assert agent.api.created == 2
    assert await agent.get() == first
    agent.api.issue("req-2", agent.clock.now())
    await settle()
    second = await agent.get()
    assert second.chain == chain("req-2").encode()
    assert second.key != first.key
    assert agent.woken == [POD.uid, POD.uid]
    assert agent.events == []
    await agent.certificates.close()


async def test_a_signer_that_does_not_refresh_is_reported() -> None:
    agent = Agent()
    first = await agent.issued()
    await asyncio.sleep(1800 + 300 + 600 + 2)
    assert agent.events == ["CertificateOverdueForRefresh: PodCertificate refresh overdue"]
    assert agent.counted("overdue_for_refresh") == 1
    await asyncio.sleep(900)
    assert agent.events[1:] == ["CertificateExpired: PodCertificate expired"]
    assert agent.counted("expired") == 1
    assert await agent.get() == first
    await agent.certificates.close()


async def test_a_denial_is_final() -> None:
    agent = Agent()
    await agent.missing()
    agent.api.answer("req-1", "Denied")
    await settle()
    assert 'was permanently denied: reason="R", message="m"' in await agent.missing()
    assert agent.events == [
        'Denied: PodCertificateRequest default/req-1 was denied, reason="R", message="m"'
    ]
    await asyncio.sleep(7200)
    assert (agent.api.created, len(agent.events), agent.counted("denied")) == (1, 1, 1)
    await agent.certificates.close()


async def test_a_deleted_request_is_made_again_but_not_at_once() -> None:
    agent = Agent()
    await agent.missing()
    agent.api.remove("req-1")
    await settle()
    assert "req-1 disappeared without an answer" in await agent.missing()
    await asyncio.sleep(20)
    assert agent.api.created == 1
    await asyncio.sleep(45)
    assert agent.api.created == 2
    await agent.certificates.close()


async def test_a_refused_request_is_retried_with_the_same_key() -> None:
    agent = Agent()
    agent.api.refusals = [Forbidden("no", code=403)] * 9
    assert "could not be created: no" in await agent.missing()
    await eventually(lambda: agent.api.created == 1, within=10)
    assert agent.api.requests["req-1"]["spec"]["stubPKCS10Request"]
    await agent.certificates.close()


async def test_nothing_is_requested_before_the_node_is_known() -> None:
    agent = Agent()
    agent.node_uid = ""
    assert "the Node object is not known yet" in await agent.missing()
    agent.node_uid = "node-uid"
    await eventually(lambda: agent.api.created == 1, within=10)
    await agent.certificates.close()


async def test_nothing_is_left_of_a_pod_that_ended() -> None:
    agent = Agent()
    await agent.issued()
    before = len(asyncio.all_tasks())
    agent.certificates.release(POD.uid)
    await settle()
    assert len(asyncio.all_tasks()) == before - 2
    assert agent.api.watches == []
    assert agent.counted("fresh") is None
    await asyncio.sleep(7200)
    assert agent.api.created == 1


async def test_no_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent()
    with caplog.at_level(logging.DEBUG):
        found = await agent.issued()
        await agent.certificates.close()
    assert found.key.decode().splitlines()[1] not in caplog.text
    assert "PRIVATE" not in repr(found)


SOURCE = {**SPEC, "credentialBundlePath": "bundle.pem", "certificateChainPath": "chain.pem"}


async def test_the_files_in_the_volume(node: Node) -> None:
    agent = Agent()
    agent.api.at_once = lambda name: agent.api.issue(name, agent.clock.now())
    volume = {"name": "v", "projected": {"sources": [{"podCertificate": SOURCE}]}}
    pod = pod_of(volume, serviceAccountName="sa", securityContext={"fsGroup": 9})
    node.volumes = NodeVolumes(
        node.pods_dir, node.objects, node.tokens, node, node.clock, certificates=agent.certificates
    )
    await node.volumes.set_up(pod)
    files = {path.name: path.read_text() for path in node.path("projected").glob("*.pem")}
    assert files["chain.pem"] == chain("req-1")
    assert files["bundle.pem"] == files["key.pem"] + files["chain.pem"]
    assert (node.path("projected") / "key.pem").stat().st_mode & 0o777 == 0o640
    assert node.mounts == [str(node.path("projected"))]
    await node.volumes.tear_down("u")
    assert agent.counted("fresh") is None
    await agent.certificates.close()


async def test_with_the_gate_off_such_a_source_is_refused(node: Node) -> None:
    volume = {"name": "v", "projected": {"sources": [{"podCertificate": SOURCE}]}}
    with pytest.raises(VolumeError, match="feature gate PodCertificateRequest is off"):
        await node.volumes.set_up(pod_of(volume))
