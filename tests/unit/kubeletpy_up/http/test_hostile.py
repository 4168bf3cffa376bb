"""Malformed requests: each gets a proper Status, and none of its content is logged."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from kubeletpy_up.errors import ApiError
from kubeletpy_up.http import bodies
from kubeletpy_up.pki import certificates
from kubeletpy_up.requests import ADMIN
from tests.unit.kubeletpy_up.helpers import make_registry, node, pod
from tests.unit.kubeletpy_up.serving import serving

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
MAPS = "/api/v1/namespaces/default/configmaps"
YAML = {"Content_Type": "application/yaml"}

REQUESTS: list[tuple[str, str, Any, dict[str, str], int]] = [
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
        for method, path, body, headers, code in REQUESTS:
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
