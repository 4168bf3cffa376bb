"""Which taints a refused pod would have to tolerate."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.explain.facts import Taint
from kubeletpy.explain.taints import MAX_TAINTS, REASON, refused_for
from tests.unit.podworkers.builders import make_pod

POD = make_pod(tolerations=[{"key": "known", "operator": "Exists"}])
REFUSED = {"phase": "Failed", "reason": REASON}


def of(*taints: dict[str, str]) -> Any:
    return {"spec": {"taints": list(taints)}}


BAD = {"key": "k", "value": "v", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("status", "node", "expected"),
    [
        (REFUSED, of(BAD), (Taint("k", "v", "NoExecute"),)),
        (REFUSED, of({"key": "bare", "effect": "NoExecute"}), (Taint("bare", "", "NoExecute"),)),
        (REFUSED, of({**BAD, "key": "known"}), ()),
        (REFUSED, of({**BAD, "effect": "NoSchedule"}), ()),
        (REFUSED, of(), ()),
        (REFUSED, {}, ()),
        (REFUSED, None, ()),
        ({"phase": "Failed", "reason": "NodePorts"}, of(BAD), ()),
        ({}, of(BAD), ()),
    ],
)
def test_taints(status: dict[str, str], node: Any, expected: tuple[Taint, ...]) -> None:
    assert refused_for(POD, status, node) == expected


def test_not_all_of_many() -> None:
    many = of(*({**BAD, "key": f"k{number}"} for number in range(20)))
    assert len(refused_for(POD, REFUSED, many)) == MAX_TAINTS
