"""/allocatedPods: the pods of the node as they are run. Source: docs/reference/behaviour.md, t6."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.allocation.resources import requested_resources, with_resources
from kubeletpy.server.settings import AccessSettings, EndpointSettings
from tests.unit.server.helpers import Pki, make_view, serving

OPEN = AccessSettings(always_allow=True)
ON = EndpointSettings(allocated_pods=True)


def pod(name: str, cpu: str) -> Pod:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    found: Any = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"containers": [container]},
        "status": {"phase": "Running"},
    }
    return Pod(found)


def reported(name: str, cpu: str) -> dict[str, Any]:
    return {**pod(name, cpu).object, "status": {}}


async def test_specs_as_allocated_without_status(pki: Pki, tmp_path: Path) -> None:
    """``a`` has a resize that waits; ``removed`` no longer uses the node."""
    desired, other = pod("a", "2"), pod("b", "1")
    objects: list[Any] = [each.object for each in (desired, other, pod("gone", "1"))]
    allocated = with_resources(desired, requested_resources(pod("a", "1")))
    view = replace(make_view(tmp_path, *objects), allocated=lambda: [allocated, other])
    async with serving(view, None, pki, OPEN, endpoints=ON) as server:

        async def get(path: str) -> tuple[int, Any]:
            code, text = await server.request("GET", f"/allocatedPods{path}", client=pki.client)
            return code, json.loads(text) if code == 200 else text

        code, found = await get("")
        assert (code, found["kind"], found["apiVersion"]) == (200, "PodList", "v1")
        assert found["items"] == [reported("a", "1"), reported("b", "1")]
        assert await get("/ns/a") == (200, reported("a", "1"))
        assert await get("/ns/b/uid-b") == (200, reported("b", "1"))
        for missing in ("/ns/gone", "/other/a", "/ns/a/uid-b"):
            assert await get(missing) == (404, "pod not found")
        code, _ = await server.request("POST", "/allocatedPods", client=pki.client)
        assert code == 405


@pytest.mark.parametrize(
    ("endpoints", "debugging", "code"),
    [(ON, True, 200), (ON, False, 404), (EndpointSettings(), True, 404)],
)
async def test_without_gate_or_debugging_handlers_it_does_not_exist(
    pki: Pki, tmp_path: Path, endpoints: EndpointSettings, debugging: bool, code: int
) -> None:
    view = make_view(tmp_path)
    async with serving(view, None, pki, OPEN, endpoints=endpoints, debugging=debugging) as server:
        found, _ = await server.request("GET", "/allocatedPods", client=pki.client)
        assert found == code
