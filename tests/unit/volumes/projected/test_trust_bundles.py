"""Projected ClusterTrustBundles: their selection, the content of the file, and changes."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from kubeletpy.base.api.times import Moment
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound, Unavailable
from kubeletpy.kubeapi.last_known import LastKnown, from_json, to_json
from kubeletpy.kubeapi.offline import ApiContact, OfflineApi
from kubeletpy.kubeapi.protocol import Call, KubeApi, Resource, WatchEvent
from kubeletpy.kubeapi.watch_state import FailingWatches, StreamedLists
from kubeletpy.volumes.claims.model import VolumeError
from kubeletpy.volumes.files.paths import PayloadError
from kubeletpy.volumes.node.node_volumes import NodeVolumes
from kubeletpy.volumes.projected import trust_bundles
from kubeletpy.volumes.projected.trust_anchors import anchors_of, bundle_of
from kubeletpy.volumes.projected.trust_bundles import TrustBundles
from tests.kit.clocks import SetClock
from tests.kit.messages import streamed
from tests.kit.volumes import Node, node, pod_of

__all__ = ["node"]
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
A, B, C = b"a" * 60, b"b" * 60, b"c" * 60


def pem(*ders: bytes) -> str:
    """A bundle as a tool writes it: blocks, with remarks between them."""
    blocks = []
    for der in ders:
        text = base64.encodebytes(der).decode()
        blocks.append(
            f"# made here\n-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----\n"
        )
    return "".join(blocks)


def exact(*ders: bytes) -> bytes:
    """A bundle as it is projected into a file: lines of 64, no remarks."""
    made = ""
    for der in ders:
        text = base64.b64encode(der).decode()
        made += (
            f"-----BEGIN CERTIFICATE-----\n{text[:64]}\n{text[64:]}\n-----END CERTIFICATE-----\n"
        )
    return made.encode()


def bundle(name: str, text: str, signer: str = "", **labels: str) -> JSON:
    metadata = {"name": name, "labels": labels, "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"signerName": signer, "trustBundle": text}}


BUNDLES = {
    each["metadata"]["name"]: bundle_of(each)
    for each in (
        bundle("own", pem(B, A)),
        bundle("s:1", pem(A, C), "s", env="live"),
        bundle("s:2", pem(C, B), "s", env="test"),
        bundle("t:1", pem(B), "t", env="live"),
        bundle("odd", f"{BEGIN}\n!\n{END}\n" + pem(C) + "x"),
    )
}
LIVE = {"matchLabels": {"env": "live"}}
NOT_LIVE = {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["live"]}]}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"name": "own"}, exact(A, B)),
        ({"name": "odd"}, exact(C)),
        ({"name": "s:1", "signerName": "t", "labelSelector": {}}, exact(A, C)),
        ({"signerName": "s", "labelSelector": {}}, exact(A, B, C)),
        ({"signerName": "s", "labelSelector": LIVE}, exact(A, C)),
        ({"signerName": "s", "labelSelector": NOT_LIVE}, exact(B, C)),
        ({"signerName": "s", "labelSelector": {**LIVE, **NOT_LIVE}}, "no ClusterTrustBundle of"),
        ({"signerName": "s"}, "labelSelector: it is missing, and selects none"),
        ({"signerName": "s", "optional": True}, b""),
        ({"signerName": "u", "labelSelector": {}}, 'no ClusterTrustBundle of signer "u"'),
        ({"name": "none"}, 'clustertrustbundle "none" not found'),
        ({"name": "none", "optional": True}, b""),
        ({"optional": True}, "name or signerName must be set"),
    ],
)
def test_which_certificates(source: dict[str, Any], expected: bytes | str) -> None:
    if isinstance(expected, bytes):
        assert anchors_of(source, BUNDLES) == expected
        return
    with pytest.raises(PayloadError, match=expected):
        anchors_of(source, BUNDLES)


class Api:
    """Lists and watches bundles."""

    def __init__(self) -> None:
        self.items: list[JSON] = []
        self.changes: asyncio.Queue[WatchEvent] = asyncio.Queue()
        self.serves = "v1"
        self.refuses: ApiError | None = None
        self.answered: asyncio.Event | None = None
        self.watches = 0
        self.streamed_lists = StreamedLists()
        self.failing_watches = FailingWatches()

    async def list(self, resource: Resource, **_: Any) -> JSON:
        if resource.version != self.serves:
            raise NotFound("the server could not find the requested resource", code=404)
        if self.answered is not None:
            await self.answered.wait()
        return {"items": []}

    async def watch(
        self, resource: Resource, namespace: str, *, send_initial_events: bool, **_: Any
    ) -> AsyncIterator[WatchEvent]:
        assert (resource.version, resource.plural) == (self.serves, "clustertrustbundles")
        if self.refuses:
            raise self.refuses
        self.watches += 1
        try:
            if send_initial_events:
                for event in streamed(self.items, "1"):
                    yield event
            while True:
                yield await self.changes.get()
        finally:
            self.watches -= 1


def projected(**source: Any) -> dict[str, Any]:
    return {
        "name": "v",
        "projected": {"sources": [{"clusterTrustBundle": {"path": "ca.pem", **source}}]},
    }


def with_bundles(node: Node, bundles: TrustBundles | None) -> NodeVolumes:
    node.volumes = NodeVolumes(
        node.pods_dir, node.objects, node.tokens, node, node.clock, bundles=bundles
    )
    if bundles is not None:
        bundles.on_change(lambda uid: node.woken.set())
    return node.volumes


async def test_a_pod_sees_the_bundle_and_its_changes(node: Node) -> None:
    api = Api()
    api.items = [bundle("own", pem(A))]
    bundles = TrustBundles(cast(Any, api), rng=random.Random(1))
    volumes, pod = with_bundles(node, bundles), pod_of(projected(name="own"))
    await volumes.set_up(pod)
    file = node.path("projected") / "ca.pem"
    assert file.read_bytes() == exact(A)
    node.woken.clear()
    api.changes.put_nowait(WatchEvent("MODIFIED", bundle("own", pem(A, B))))
    await node.woken.wait()
    await volumes.set_up(pod)
    assert file.read_bytes() == exact(A, B)
    api.changes.put_nowait(WatchEvent("DELETED", bundle("own", "")))
    node.woken.clear()
    await node.woken.wait()
    await volumes.set_up(pod)
    assert node.events == [
        'FailedMount: MountVolume.SetUp failed for volume "v" : clustertrustbundle "own" not found'
    ]
    assert file.read_bytes() == exact(A, B), "what is in use stays"
    await volumes.tear_down("u")
    await asyncio.sleep(0)
    assert api.watches == 0, "no pod uses it any more"


async def test_a_server_without_v1_is_read_in_v1beta1(node: Node) -> None:
    api = Api()
    api.serves, api.items = "v1beta1", [bundle("own", pem(A))]
    bundles = TrustBundles(cast(Any, api), rng=random.Random(1))
    assert await bundles.anchors("u", {"name": "own"}) == exact(A)
    await bundles.close()


class Server(KubeApi):
    """An API server with one bundle, as clients reach it."""

    def __init__(self) -> None:
        self.absent = False

    async def answer(self, call: Call) -> JSON:
        if self.absent:
            raise Unavailable("no answer")
        return {"items": [bundle("own", pem(A))], "metadata": {"resourceVersion": "1"}}

    async def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        if self.absent:
            raise Unavailable("no answer")
        for event in streamed([bundle("own", pem(A))], "1"):
            yield event
        await asyncio.Event().wait()


async def test_a_start_without_an_api_server_has_the_recorded_bundles() -> None:
    server, known = Server(), LastKnown()
    spec = {"volumes": [projected(name="own")]}
    metadata = {"name": "web", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    known.note(("pods", "default", "web"), {"metadata": metadata, "spec": spec})
    for alone in (False, True):
        contact = ApiContact(lambda: Moment(0.0, "boot", 0.0))
        server.absent = alone
        if alone:
            contact.left_alone()
        api = OfflineApi(server, contact, known, "n", SetClock())
        bundles = TrustBundles(api, rng=random.Random(1))
        assert await bundles.anchors("u", {"name": "own"}) == exact(A)
        await bundles.close()
        await api.close()
        known.contents = from_json(to_json(known.needed()()))


async def test_an_answer_for_a_pod_that_has_ended_starts_nothing() -> None:
    api = Api()
    api.answered = asyncio.Event()
    bundles = TrustBundles(cast(Any, api), rng=random.Random(1))
    requested = asyncio.create_task(bundles.anchors("u", {"name": "own"}))
    await asyncio.sleep(0)
    bundles.release("u")
    api.answered.set()
    with pytest.raises(Unavailable):
        await requested
    assert api.watches == 0


async def test_a_pod_waits_for_bundles_that_may_not_be_read(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trust_bundles, "FIRST_ANSWER_S", 0.05)
    api = Api()
    api.refuses = Forbidden("node may not list clustertrustbundles", code=403)
    bundles = TrustBundles(cast(Any, api), rng=random.Random(1))
    volumes, pod = with_bundles(node, bundles), pod_of(projected(name="own", optional=True))
    with pytest.raises(VolumeError, match="node may not list clustertrustbundles"):
        await volumes.set_up(pod)
    api.refuses = None
    node.woken.clear()
    await node.woken.wait()
    await volumes.set_up(pod)
    assert (node.path("projected") / "ca.pem").read_bytes() == b"", "optional, and there is none"
    await bundles.close()


async def test_too_much_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust_bundles, "MAX_BYTES", 119)
    api = Api()
    api.items = [bundle("own", pem(A, B))]
    bundles = TrustBundles(cast(Any, api), rng=random.Random(1))
    with pytest.raises(PayloadError, match="120 bytes of certificates, more than 119"):
        await bundles.anchors("u", {"name": "own"})
    await bundles.close()


async def test_with_the_gate_off_it_is_refused(node: Node) -> None:
    pod = pod_of(projected(name="own", optional=True))
    with pytest.raises(VolumeError, match="feature gate ClusterTrustBundleProjection is off"):
        await with_bundles(node, None).set_up(pod)
