"""/explain on the port of the node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.helpers import Pki, Reviewer, make_view, serving

LINE = {"namespace": "ns", "name": "p", "verdict": "fine"}


@pytest.mark.parametrize(
    ("path", "status", "answer"),
    [
        ("/explain", 200, {"node": {"pressure": None}, "pods": [LINE]}),
        ("/explain/ns/p", 200, {"verdict": "fine"}),
        ("/explain/ns/q", 404, {"error": "no pod ns/q on this node"}),
    ],
)
async def test_explanations(path: str, status: int, answer: Any, pki: Pki, tmp_path: Path) -> None:
    api = Reviewer()
    api.allowed = {("alice", "get", "explain")}
    async with serving(make_view(tmp_path), api, pki) as server:
        found, body = await server.request("GET", path, client=pki.client)
        assert (found, json.loads(body)) == (status, answer)
