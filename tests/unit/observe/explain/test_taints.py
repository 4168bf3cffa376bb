"""Which taints a refused pod would have to tolerate."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.observe.explain.facts import (
    BY_TAINT_MANAGER,
    MAX_TAINTS,
    TAINT_REASON,
    NodeTaint,
    deleted_for,
    refused_for,
)
from kubeletpy.pods.pod import Pod
from tests.kit.pods import make_pod

POD = make_pod(tolerations=[{"key": "known", "operator": "Exists"}])
REFUSED = {"phase": "Failed", "reason": TAINT_REASON}


def node_with(*taints: dict[str, str]) -> Any:
    return {"spec": {"taints": list(taints)}}


BAD = {"key": "k", "value": "v", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("status", "node", "expected"),
    [
        (REFUSED, node_with(BAD), (NodeTaint("k", "v", "NoExecute"),)),
        (
            REFUSED,
            node_with({"key": "bare", "effect": "NoExecute"}),
            (NodeTaint("bare", "", "NoExecute"),),
        ),
        (REFUSED, node_with({**BAD, "key": "known"}), ()),
        (REFUSED, node_with({**BAD, "effect": "NoSchedule"}), ()),
        (REFUSED, node_with(), ()),
        (REFUSED, {}, ()),
        (REFUSED, None, ()),
        ({"phase": "Failed", "reason": "NodePorts"}, node_with(BAD), ()),
        ({}, node_with(BAD), ()),
    ],
)
def test_taints(status: dict[str, str], node: Any, expected: tuple[NodeTaint, ...]) -> None:
    assert refused_for(POD, status, node) == expected


def test_refusing_taints_are_bounded() -> None:
    many = node_with(*({**BAD, "key": f"k{number}"} for number in range(20)))
    assert len(refused_for(POD, REFUSED, many)) == MAX_TAINTS


CONDITION = {"type": "DisruptionTarget", "status": "True", "reason": BY_TAINT_MANAGER}
K = NodeTaint("k", "v", "NoExecute")


@pytest.mark.parametrize(
    ("tolerations", "conditions", "node", "expected"),
    [
        ([], [], node_with(BAD), (K,)),
        ([], [], node_with({**BAD, "effect": "NoSchedule"}), None),
        ([], [], None, None),
        ([{"operator": "Exists"}], [], node_with(BAD), None),
        ([], [CONDITION], node_with(BAD), (K,)),
        ([], [CONDITION], node_with(), ()),
        ([], [CONDITION], None, ()),
        ([], [{**CONDITION, "status": "False"}], node_with(), None),
        ([], [{**CONDITION, "reason": "EvictionByEvictionAPI"}], node_with(), None),
        ([], [{**CONDITION, "type": "Ready"}], node_with(), None),
        (
            [{"key": "k", "operator": "Exists", "tolerationSeconds": 3}],
            [CONDITION],
            node_with(BAD),
            (K,),
        ),
        ([{"key": "k", "operator": "Exists", "tolerationSeconds": 3}], [], node_with(BAD), None),
        ([{"key": "k", "operator": "Exists"}], [CONDITION], node_with(BAD), ()),
        (
            [{"operator": "Exists", "tolerationSeconds": 3}],
            [CONDITION],
            node_with({**BAD, "effect": "NoSchedule"}),
            (),
        ),
    ],
)
def test_taints_that_a_pod_was_deleted_for(
    tolerations: Any, conditions: Any, node: Any, expected: tuple[NodeTaint, ...] | None
) -> None:
    pod = make_pod(deleting=30, tolerations=tolerations)
    reported = Pod({**pod.object, "status": {"conditions": conditions}})
    assert deleted_for(reported, node) == expected
    alive = make_pod(tolerations=tolerations)
    assert deleted_for(Pod({**alive.object, "status": reported.status}), node) is None


def test_taints_that_a_pod_was_deleted_for_are_bounded() -> None:
    many = node_with(*({**BAD, "key": f"k{number}"} for number in range(20)))
    assert len(deleted_for(make_pod(deleting=30), many) or ()) == MAX_TAINTS
