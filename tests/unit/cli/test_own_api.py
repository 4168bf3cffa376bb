"""Objects read from the API of `up` over real TLS, never the content of secrets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.cli import own_api
from kubeletpy.kubeapi.client import JsonFormat, KubeClient
from kubeletpy.kubeapi.protocol import (
    CONFIGMAPS,
    EVENTS,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PODS,
    SECRETS,
    Resource,
)
from kubeletpy.observe.foresee.model import NeedState
from kubeletpy_up.api import LocalApi

SOCKET = Path("node", "explain.sock")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[KubeClient]:
    """Administrator's client of an API whose files are where `up` puts them."""
    api = LocalApi(tmp_path / "api", "n1", port=0)
    endpoint = await api.start()
    made = await KubeClient.from_kubeconfig(str(endpoint.admin_kubeconfig))
    yield made
    await made.close()
    await api.stop()


async def create(client: KubeClient, resource: Resource, name: str, **more: Any) -> JSON:
    obj = {"apiVersion": "v1", "kind": resource.kind, "metadata": {"name": name}, **more}
    return await client.create(resource, obj, namespace="default")


def needs(*found: tuple[str, str]) -> list[dict[str, str]]:
    return [{"kind": kind, "name": name} for kind, name in found]


async def test_which_objects_exist(
    client: KubeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(client, CONFIGMAPS, "conf", data={"a": "b"})
    await create(client, SECRETS, "key", data={"a": "c2VjcmV0"})
    access = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    await create(client, PERSISTENTVOLUMECLAIMS, "data", spec={**access, "storageClassName": "x"})
    bodies: list[bytes] = []
    decode = JsonFormat.decode

    async def seen(form: JsonFormat, content_type: str, body: bytes) -> Any:
        bodies.append(body)
        return await decode(form, content_type, body)

    monkeypatch.setattr(JsonFormat, "decode", seen)
    path = own_api.kubeconfig(tmp_path / SOCKET)
    assert path is not None
    desired = needs(
        ("configMap", "conf"),
        ("configMap", "none"),
        ("secret", "key"),
        ("secret", "../x"),
        ("claim", "data"),
        ("claim", "none"),
    )
    found = await asyncio.to_thread(
        own_api.once, path, lambda api: api.need_states("default", desired)
    )
    assert found == {
        ("configMap", "conf"): NeedState.EXISTS,
        ("configMap", "none"): NeedState.MISSING,
        ("secret", "key"): NeedState.EXISTS,
        ("secret", "../x"): NeedState.MISSING,
        ("claim", "data"): NeedState.UNBOUND,
        ("claim", "none"): NeedState.MISSING,
    }
    kinds = [kind for body in bodies if (kind := json.loads(body)["kind"]) != "Status"]
    assert sorted(kinds) == [*["PartialObjectMetadata"] * 2, "PersistentVolumeClaim"]
    assert not [body for body in bodies if b"c2VjcmV0" in body], "a secret's data was sent"


async def test_an_api_that_does_not_answer(client: KubeClient, tmp_path: Path) -> None:
    path = own_api.kubeconfig(tmp_path / SOCKET)
    assert path is not None
    config = json.loads(path.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path.write_text(json.dumps(config))
    with pytest.raises(own_api.OwnApiUnavailable, match="its API did not answer: "):
        await asyncio.to_thread(own_api.once, path, lambda api: api.unplaced())
    path.write_text("{")
    with pytest.raises(own_api.OwnApiUnavailable, match="its API did not answer: "):
        await asyncio.to_thread(own_api.once, path, lambda api: api.unplaced())


async def test_pods_without_a_node(client: KubeClient, tmp_path: Path) -> None:
    """The scheduler's message is read from the condition and from the event."""
    path = own_api.kubeconfig(tmp_path / SOCKET)
    assert path is not None
    await create(
        client,
        PODS,
        "web",
        spec={"containers": [{"name": "a", "image": "a:1"}], "nodeSelector": {"disk": "ssd"}},
    )
    await create(
        client,
        PODS,
        "placed",
        spec={"containers": [{"name": "a", "image": "a:1"}], "nodeName": "n1"},
    )
    async with asyncio.timeout(30):
        async for event in client.watch(
            EVENTS,
            "default",
            resource_version="",
            timeout_seconds=60,
            field_selector="reason=FailedScheduling",
        ):
            if event.type == "ADDED":
                break
    events = await reading(path, lambda api: api.events("default", "web"))
    assert [(each["reason"], each["source"]) for each in events] == [
        ("FailedScheduling", "default-scheduler")
    ]
    (line,) = await reading(path, lambda api: api.unplaced())
    assert (line["name"], line["node"], line["healthy"]) == ("web", None, False)
    assert line["verdict"].startswith("node: none; not scheduled: Unschedulable: ")
    notified = await reading(path, lambda api: api.unplaced_pod("default", "web"))
    assert notified is not None
    assert notified["verdict"] == line["verdict"]
    for other in ("placed", "none", "../x"):
        read = partial(own_api.OwnApi.unplaced_pod, namespace="default", name=other)
        assert await reading(path, read) is None


async def test_the_pod_that_has_a_host_port_is_named(client: KubeClient, tmp_path: Path) -> None:
    path = own_api.kubeconfig(tmp_path / SOCKET)
    assert path is not None
    ready = {"type": "Ready", "status": "True"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    await client.create(NODES, node)
    status = {"conditions": [ready], "allocatable": {"pods": "9"}, "capacity": {"pods": "9"}}
    await client.patch(NODES, "n1", {"status": status}, subresource="status")
    ports = [{"containerPort": 80, "hostPort": 8080}]
    spec = {"containers": [{"name": "a", "image": "a:1", "ports": ports}]}
    await create(client, PODS, "first", spec={**spec, "nodeName": "n1"})
    await create(client, PODS, "second", spec=spec)
    async with asyncio.timeout(30):
        notified = None
        while notified is None or "free ports" not in notified["verdict"]:
            notified = await reading(path, lambda api: api.unplaced_pod("default", "second"))
    assert notified["hint"] == (
        "use another hostPort, or end the pod that has it: port 8080/TCP: default/first on node n1"
    )


async def reading(path: Path, read: Callable[[own_api.OwnApi], Awaitable[Any]]) -> Any:
    return await asyncio.to_thread(own_api.once, path, read)


def test_without_up_there_is_no_such_api(tmp_path: Path) -> None:
    assert own_api.kubeconfig(tmp_path / SOCKET) is None
