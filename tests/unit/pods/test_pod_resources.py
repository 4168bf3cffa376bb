"""Sums of requests and limits (docs/reference/behaviour.md, k3; KEP-753, KEP-2837, KEP-688)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kubeletpy.pods.resources import pod_limits, pod_requests
from tests.unit.runtime_manager.pods_and_records import container, make_pod, sidecar


def cpu(amount: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": amount}, "limits": {"cpu": amount}}}


ROWS = [
    ("sum-of-regular", ("1", "2"), (), "3"),
    ("one-big-init", ("1",), (("init", "5"),), "5"),
    ("small-init", ("2",), (("init", "1"),), "2"),
    ("sidecar-adds", ("1",), (("side", "2"),), "3"),
    ("init-runs-beside-earlier-sidecar", ("1",), (("side", "2"), ("init", "4")), "6"),
    ("init-before-sidecar", ("1",), (("init", "4"), ("side", "2")), "4"),
    ("sidecars-add-up", ("1",), (("side", "2"), ("side", "3")), "6"),
]


@pytest.mark.parametrize(
    ("regular", "init", "expected"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_sums(regular: tuple[str, ...], init: tuple[Any, ...], expected: str) -> None:
    pod = make_pod(
        *(container(f"c{i}", **cpu(amount)) for i, amount in enumerate(regular)),
        init=tuple(
            (sidecar if kind == "side" else container)(f"i{i}", **cpu(amount))
            for i, (kind, amount) in enumerate(init)
        ),
    )
    assert pod_requests(pod) == {"cpu": Decimal(expected)}
    assert pod_limits(pod) == {"cpu": Decimal(expected)}


def test_overhead_is_added_to_requests_and_to_limits_that_there_are() -> None:
    only_request = container("app", resources={"requests": {"cpu": "1"}})
    pod = make_pod(only_request, overhead={"cpu": "250m", "memory": "1Ki"})
    assert pod_requests(pod) == {"cpu": Decimal("1.25"), "memory": Decimal(1024)}
    assert pod_requests(pod, overhead=False) == {"cpu": Decimal(1)}
    assert pod_limits(pod) == {}
    limited = make_pod(container("app", **cpu("1")), overhead={"cpu": "250m"})
    assert pod_limits(limited) == {"cpu": Decimal("1.25")}


def test_pod_level_values_replace_sums() -> None:
    pod = make_pod(
        container("app", **cpu("1")),
        resources={"requests": {"cpu": "3"}, "limits": {"memory": "1Gi", "example.com/x": "1"}},
    )
    assert pod_requests(pod) == {"cpu": Decimal(3)}
    assert pod_limits(pod) == {"cpu": Decimal(1), "memory": Decimal(2**30)}
