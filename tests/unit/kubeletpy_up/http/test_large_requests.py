"""Large requests and answers are processed off the event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from asyncio import events
from pathlib import Path
from typing import Any

import pytest

from kubeletpy_up.errors import ApiError
from kubeletpy_up.http import bodies
from kubeletpy_up.http.handler import Workshop
from kubeletpy_up.pki import certificates
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN
from tests.kit.costs import set_aside, slowness
from tests.kit.embedded import Client, make_registry, node, pod, serving

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
STRATEGIC = {"Content_Type": "application/strategic-merge-patch+json"}
MERGE = {"Content_Type": "application/merge-patch+json"}
JSON_PATCH = {"Content_Type": "application/json-patch+json"}
APPLY = {"Content_Type": "application/apply-patch+yaml"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
PROTOBUF = {"Accept": "application/vnd.kubernetes.protobuf"}
LABEL = {"metadata": {"labels": {"a": "b"}}}
LIMIT_S = 0.05


def _data(count: int, value: str = "v") -> dict[str, str]:
    return {f"k{index}": value for index in range(count)}


def _map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _mounts(name: str, count: int) -> dict[str, Any]:
    mounts = [{"name": "v", "mountPath": f"/m{index}"} for index in range(count)]
    container = {"name": "c", "image": "i", "volumeMounts": mounts}
    volumes = [{"name": "v", "emptyDir": {}}]
    return pod(name, schedulerName="none", containers=[container], volumes=volumes)


REQUESTS: list[tuple[str, str, str, Any, dict[str, str], int]] = [
    ("one value", "POST", MAPS, _map("one", a="x" * 2_900_000), {}, 422),
    ("many keys", "POST", MAPS, _map("keys", **_data(80_000)), {}, 201),
    ("mounts", "POST", PODS, _mounts("mounts", 40_000), {}, 201),
    ("unknown", "POST", PODS, pod("u", **{f"u{index}": 1 for index in range(100_000)}), {}, 201),
    ("values", "POST", MAPS, b'{"a":[' + b"1," * 1_450_000 + b"1]}", {}, 413),
    ("arrays", "POST", MAPS, b'{"a":[' + b"[]," * 950_000 + b"[]]}", {}, 413),
    ("objects", "POST", MAPS, b'{"a":[' + b"{}," * 950_000 + b"{}]}", {}, 413),
    ("repeated", "POST", MAPS, b'{"a":[' + b'{"":0},' * 70_000 + b"{}]}", {}, 422),
    ("small patch", "PATCH", PODS + "/mounts", LABEL, STRATEGIC, 200),
    ("merge", "PATCH", MAPS + "/keys", {"data": _data(80_000, "w")}, MERGE, 200),
    (
        "operations",
        "PATCH",
        MAPS + "/keys",
        [{"op": "add", "path": f"/data/k{index}", "value": "v"} for index in range(5_000)],
        JSON_PATCH,
        200,
    ),
    ("apply", "PATCH", MAPS + "/a?fieldManager=m", _map("a", **_data(20_000)), APPLY, 201),
    ("apply again", "PATCH", MAPS + "/a?fieldManager=m", _map("a", **_data(10_000)), APPLY, 200),
    ("put", "PUT", MAPS + "/keys", _map("keys", **_data(70_000, "z")), {}, 200),
    ("get", "GET", PODS + "/mounts", None, {}, 200),
    ("list", "GET", PODS, None, {}, 200),
    ("table", "GET", PODS, None, TABLE, 200),
    ("protobuf", "GET", MAPS, None, PROTOBUF, 200),
    ("watch", "GET", PODS + "?watch=1&timeoutSeconds=1", None, TABLE, 200),
    ("watch protobuf", "GET", MAPS + "?watch=1&timeoutSeconds=1", None, PROTOBUF, 200),
    ("openapi 2", "GET", "/openapi/v2", None, {}, 200),
    ("openapi 3", "GET", "/openapi/v3", None, {}, 200),
    ("openapi 3 core", "GET", "/openapi/v3/api/v1", None, {}, 200),
    ("delete", "DELETE", PODS + "/mounts", None, {}, 200),
    ("delete all", "DELETE", MAPS, None, {}, 200),
]


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """CPU seconds of each callback of the event loop, on the machine that limits are meant for.

    Objects of earlier tests are set aside: collecting them took up to 0.25 s in a random callback.
    """
    seen: list[float] = []
    set_aside()
    run = events.Handle._run

    def timed(handle: events.Handle) -> None:
        began = time.thread_time()
        run(handle)
        took = time.thread_time() - began
        seen.append(took if took < LIMIT_S else took / slowness())

    monkeypatch.setattr(events.Handle, "_run", timed)
    return seen


async def _send(client: Client, method: str, path: str, body: bytes | None, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named.setdefault("Content-Type", "application/json")
    async with client.session.request(
        method, client.url + path, data=body, headers=named
    ) as response:
        while await response.content.readany():
            pass
        return response.status


async def test_no_request_holds_the_loop(tmp_path: Path, longest: list[float]) -> None:
    certificates.ensure(tmp_path / "pki", "n1")
    held: dict[str, float] = {}
    async with serving(tmp_path, tmp_path / "pki") as (_, admin, _node):
        for name, method, path, sent, headers, status in REQUESTS:
            body = sent if isinstance(sent, bytes) or sent is None else json.dumps(sent).encode()
            await asyncio.sleep(0)
            longest.clear()
            assert await _send(admin, method, path, body, **headers) == status, name
            held[name] = max(longest)
    assert not {name: seconds for name, seconds in held.items() if seconds > LIMIT_S}


@pytest.fixture
def registry() -> Registry:
    return make_registry()


async def test_a_write_begins_again_if_what_it_read_has_changed(registry: Registry) -> None:
    registry.create(ADMIN, "configmaps", _map("a", a="0"), "default")
    workshop, tries = Workshop(registry), 0
    loop = asyncio.get_running_loop()

    def meanwhile(value: str) -> None:
        change = {"data": {"other": value}}
        asyncio.run_coroutine_threadsafe(_patch(registry, change), loop).result(30)

    def work(there: Registry) -> Any:
        nonlocal tries
        tries += 1
        seen = there.get(ADMIN, "configmaps", "a", "default")
        if tries < 3:
            meanwhile(str(tries))
        changed = {**seen, "data": {**seen["data"], "a": "1"}}
        return there.update(ADMIN, "configmaps", changed, "default")

    written = await workshop.write(work)
    assert tries == 3
    assert written["data"] == {"a": "1", "other": "2"}
    assert registry.get(ADMIN, "configmaps", "a", "default") == written
    entry = registry.store.get("configmaps", "default", "a")
    assert entry is not None
    assert json.loads(entry.text) == written
    await workshop.close()


async def _patch(registry: Registry, change: dict[str, Any]) -> None:
    registry.patch(ADMIN, "configmaps", "a", change, "default")


async def test_a_write_that_is_always_too_late_is_a_conflict(registry: Registry) -> None:
    registry.create(ADMIN, "configmaps", _map("a"), "default")
    workshop, count = Workshop(registry), iter(range(100))
    loop = asyncio.get_running_loop()

    def work(there: Registry) -> Any:
        seen = there.get(ADMIN, "configmaps", "a", "default")
        change = {"data": {"other": str(next(count))}}
        asyncio.run_coroutine_threadsafe(_patch(registry, change), loop).result(30)
        return there.update(ADMIN, "configmaps", {**seen, "data": {"a": "1"}}, "default")

    with pytest.raises(ApiError) as caught:
        await workshop.write(work)
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    assert next(count) == 5
    await workshop.close()


async def test_cluster_addresses_stay_unique(registry: Registry) -> None:
    workshop, tries = Workshop(registry), 0
    loop = asyncio.get_running_loop()
    service = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}

    async def other() -> None:
        registry.create(ADMIN, "services", {**service, "metadata": {"name": "b"}}, "default")

    def work(there: Registry) -> Any:
        nonlocal tries
        tries += 1
        assert len(list(there.store.entries("services"))) == tries
        if tries == 1:
            asyncio.run_coroutine_threadsafe(other(), loop).result(30)
        return there.create(ADMIN, "services", service, "default")

    made = await workshop.write(work)
    assert tries == 2
    kept = registry.get(ADMIN, "services", "b", "default")
    assert made["spec"]["clusterIP"] != kept["spec"]["clusterIP"]
    await workshop.close()


async def test_stopping_refuses_pending_requests(registry: Registry) -> None:
    workshop = Workshop(registry)
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(there: Registry) -> Any:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(30)
        return there.create(ADMIN, "configmaps", _map("late"), "default")

    writing = asyncio.ensure_future(workshop.write(work))
    await begun.wait()
    closing = asyncio.ensure_future(workshop.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    with pytest.raises(ApiError, match="stopping"):
        await writing
    with pytest.raises(ApiError, match="stopping"):
        await workshop.write(work)
    assert registry.find("configmaps", "default", "late") is None


# Malformed requests: each gets a proper Status, and none of its content is logged.

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
YAML = {"Content_Type": "application/yaml"}
HOSTILE_REQUESTS: list[tuple[str, str, Any, dict[str, str], int]] = [
    ("GET", "/api/v1/namespaces/a%0Ab/pods/c/x", None, {}, 404),
    ("GET", "/a%0D%0AX:%20y", None, {}, 404),
    ("POST", MAPS, b"no gzip", {"Content_Encoding": "gzip"}, 400),
    ("POST", CLASSES, {"metadata": "text", "value": 1}, {}, 400),
    ("POST", CLASSES, {"metadata": {"name": []}, "value": 1}, {}, 400),
    ("POST", CLASSES, {"metadata": {"name": "p"}, "value": "much"}, {}, 400),
    ("POST", CLASSES, {"metadata": {"name": "p", "finalizers": [[]]}, "value": 1}, {}, 400),
    ("POST", CSI_NODES, {"metadata": {"name": "n"}, "spec": {"drivers": {}}}, {}, 400),
    ("POST", MAPS, {"metadata": {"name": "\ud800"}}, {}, 422),
    ("POST", MAPS, {"metadata": {"name": "u"}, "data": {"a": "\ud800"}}, {}, 400),
    ("POST", MAPS, b"a: &a [*a]", YAML, 400),
    ("POST", MAPS, b"a: " + b"[" * 50_000, YAML, 400),
    ("POST", MAPS, b"- " * 20_000, YAML, 400),
    ("POST", MAPS, b"- a\n" * 200_000, YAML, 413),
    ("POST", MAPS, b"[" * 100_000, {}, 400),
    ("POST", MAPS, b'{"a":' * 50_000, {}, 400),
    ("POST", MAPS, b"9" * 100_000, {}, 400),
]


async def test_every_answer_is_a_status(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificates.ensure(tmp_path / "pki", "n1")
    caplog.set_level(logging.WARNING)
    async with serving(tmp_path, tmp_path / "pki") as (_, admin, agent):
        for method, path, body, headers, code in HOSTILE_REQUESTS:
            status, answer, _ = await admin.ask(method, path, body, **headers)
            reported = (path, str(body)[:60])
            assert status == code, (reported, answer)
            assert (answer["kind"], answer["code"]) == ("Status", code), reported
            assert answer["message"], reported
            assert answer["reason"], reported
        for odd in ("text", ["n1"], {"metadata": "n1"}, {"metadata": ["name"]}, 1):
            assert (await agent.ask("POST", CSI_NODES, odd))[0] in (400, 403), odd
        assert (await admin.ask("GET", "/api/v1/nodes"))[0] == 200
    assert not caplog.records


async def test_after_a_broken_body_the_connection_is_not_used_again(tmp_path: Path) -> None:
    certificates.ensure(tmp_path / "pki", "n1")
    async with serving(tmp_path, tmp_path / "pki") as (_, admin, _node):
        for path in (MAPS, "/api/v1/nowhere"):
            for _ in range(10):
                _, _, headers = await admin.ask("POST", path, b"junk", Content_Encoding="gzip")
                assert headers["Connection"] == "close"
                assert (await admin.ask("POST", MAPS, {}))[0] == 422


async def test_a_long_command_fits_into_a_request(tmp_path: Path) -> None:
    certificates.ensure(tmp_path / "pki", "n1")
    async with serving(tmp_path, tmp_path / "pki") as (_, admin, _node):
        for length, code in ((60_000, 404), (70_000, 400)):
            path = f"/api/v1/namespaces/default/pods/p/exec?command={'x' * length}"
            assert (await admin.ask("GET", path))[0] == code


async def test_yaml_is_read_off_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    here, seen = threading.get_ident(), list[int]()
    monkeypatch.setattr(bodies, "read_yaml", lambda _: seen.append(threading.get_ident()))
    certificates.ensure(tmp_path / "pki", "n1")
    async with serving(tmp_path, tmp_path / "pki") as (_, admin, _node):
        await admin.ask("POST", MAPS, b"a: 1", **YAML)
        applied = {"Content_Type": "application/apply-patch+yaml"}
        await admin.ask("PATCH", MAPS + "/a", b"a: 1", **applied)
    assert len(seen) == 2
    assert here not in seen


@pytest.mark.parametrize("depth", [bodies.YAML_DEPTH, bodies.YAML_DEPTH + 1])
def test_how_deep_yaml_may_be(depth: int) -> None:
    text = b"[" * depth + b"]" * depth
    if depth > bodies.YAML_DEPTH:
        with pytest.raises(ApiError, match="nested too deep"):
            bodies.read_yaml(b"# \n" + text)
    else:
        assert bodies.read_yaml(b"# \n" + text)


def test_an_empty_address_does_not_break_a_table() -> None:
    from kubeletpy_up.printers.others import node as row

    addresses = [{"type": "InternalIP"}, {}]
    assert "Ready" in row(node(addresses=addresses), 0.0)


def test_a_class_without_a_value_has_priority_zero() -> None:
    registry = make_registry()
    name = "priorityclasses.scheduling.k8s.io"
    registry.create(ADMIN, name, {"metadata": {"name": "p"}})
    made = registry.create(ADMIN, "pods", pod(priorityClassName="p"), "default")
    assert made["spec"]["priority"] == 0
