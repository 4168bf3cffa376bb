"""A node whose requests to the API are in protobuf."""

from __future__ import annotations

import base64
import json

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy_up.schema import definitions
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status, is_ready, running
from tools.env.containerd import Containerd

PROTOBUF = "application/vnd.kubernetes.protobuf"
CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "cfg"},
    "data": {"a": "ä"},
    "binaryData": {"b": base64.b64encode(bytes(range(256))).decode()},
}
SOURCES = [
    {"serviceAccountToken": {"path": "token", "expirationSeconds": 700}},
    {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
]
VOLUMES = [
    {"name": "cfg", "configMap": {"name": "cfg"}},
    {"name": "token", "projected": {"sources": SOURCES}},
]
MAIN = container(
    "main",
    FOREVER,
    volumeMounts=[{"name": "cfg", "mountPath": "/c"}, {"name": "token", "mountPath": "/t"}],
    readinessProbe={"exec": {"command": ["grep", "-q", "ä", "/c/a"]}, "periodSeconds": 1},
)


@pytest.fixture
def spoken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Objects that the API has sent and received in protobuf: direction, and kind."""
    found: list[tuple[str, str]] = []
    encode, event, decode = definitions.encode, definitions.event, definitions.decode

    def note_event(kind: str, obj: JSON) -> bytes:
        found.append(("event", obj["kind"]))
        return event(kind, obj)

    def note_answer(obj: JSON) -> bytes | None:
        found.append(("answer", obj["kind"]))
        return encode(obj)

    def note_body(body: bytes) -> JSON:
        obj = decode(body)
        found.append(("body", obj["kind"]))
        return obj

    monkeypatch.setattr(definitions, "event", note_event)
    monkeypatch.setattr(definitions, "encode", note_answer)
    monkeypatch.setattr(definitions, "decode", note_body)
    return found


def test_a_node_works_in_protobuf(
    make_node: MakeNode, session_containerd2: Containerd, spoken: list[tuple[str, str]]
) -> None:
    node = make_node(session_containerd2, config={"contentType": PROTOBUF})
    node.start()
    path = f"/api/v1/nodes/{node.name}/proxy/configz"
    reported = json.loads(node.kubectl("get", "--raw", path))
    assert reported["kubeletconfig"]["contentType"] == PROTOBUF

    node.kubectl("create", "namespace", "one")
    node.apply(
        CONFIG, pod("p", MAIN, container("crash", "exit 3"), volumes=VOLUMES), namespace="one"
    )
    node.wait_waiting("one", "p", "CrashLoopBackOff", "crash")
    found = node.wait_pod("one", "p", lambda p: container_status(p, "main").get("ready"), "ready")
    assert not is_ready(found)
    assert any("Started" in each for each in node.events("one", "p"))
    main = container_status(found, "main")["containerID"]
    code, stated = node.exec(main, "sh", "-c", "wc -c < /c/b; cat /t/n; test -s /t/token")
    assert (code, stated) == (0, "256\np")
    node.apply({**CONFIG, "data": {"a": "changed"}}, namespace="one")
    node.until(lambda: node.exec(main, "cat", "/c/a")[1] == "changed", "the change")

    node.kill()
    node.start_agent()
    node.wait_pod("one", "p", lambda p: not container_status(p, "main").get("ready"), "unready")
    after = container_status(node.pod("one", "p"), "main")
    assert (after["containerID"], after["restartCount"]) == (main, 0)
    assert running(after)
    node.kubectl("delete", "pod", "p", "--grace-period=1", namespace="one")
    node.wait_removed("one", "p")

    desired = {("event", "Pod"), ("event", "ConfigMap"), ("event", "Node"), ("answer", "Pod")}
    desired |= {("answer", "Lease"), ("body", "Event"), ("body", "TokenRequest"), ("body", "Node")}
    assert desired <= set(spoken)
