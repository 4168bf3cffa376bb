"""Sums of requests and limits (docs/reference/behaviour.md, k3; KEP-753, KEP-2837, KEP-688)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kubeletpy.pods.resources import (
    limited,
    pod_level_requests_set,
    pod_level_set,
    pod_limits,
    pod_requests,
    resource_levels,
)
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
    assert pod_limits(limited, overhead=False) == {"cpu": Decimal(1)}


@pytest.mark.parametrize(
    ("resources", "of_requests", "of_any"),
    [
        ({}, False, False),
        ({"requests": {"cpu": "1"}}, True, True),
        ({"limits": {"memory": "1Gi"}}, False, True),
        ({"requests": {"hugepages-2Mi": "4Mi"}}, True, True),
        ({"requests": {"example.com/x": "1"}, "limits": {"example.com/x": "1"}}, False, False),
    ],
)
def test_which_resources_are_of_the_pod(
    resources: dict[str, Any], of_requests: bool, of_any: bool
) -> None:
    pod = make_pod(container("app"), resources=resources)
    assert (pod_level_requests_set(pod), pod_level_set(pod)) == (of_requests, of_any)


SOME: dict[str, Any] = {"requests": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("of_pod", "regular", "init", "levels"),
    [
        (None, {}, {}, ""),
        ({}, {"requests": {}}, {}, ""),
        (SOME, {}, {}, "pod_level"),
        ({"requests": {"example.com/x": "1"}}, {}, {}, ""),
        (None, {"limits": {"memory": "1"}}, {}, "container_level"),
        (None, {}, SOME, "container_level"),
        (SOME, {}, SOME, "pod_and_container_level"),
        (SOME, SOME, {}, "pod_and_container_level"),
    ],
)
def test_resource_levels_name_where_resources_are_stated(
    of_pod: Any, regular: dict[str, Any], init: dict[str, Any], levels: str
) -> None:
    spec = {} if of_pod is None else {"resources": of_pod}
    pod = make_pod(
        container("app", resources=regular), init=(container("i", resources=init),), **spec
    )
    assert resource_levels(pod) == levels


def test_pod_level_values_replace_sums() -> None:
    pod = make_pod(
        container("app", **cpu("1")),
        resources={"requests": {"cpu": "3"}, "limits": {"memory": "1Gi", "example.com/x": "1"}},
    )
    assert pod_requests(pod) == {"cpu": Decimal(3)}
    assert pod_limits(pod) == {"cpu": Decimal(1), "memory": Decimal(2**30)}


@pytest.mark.parametrize(
    ("of_pod", "of_containers", "expected"),
    [
        ({}, ({"cpu": "1"}, {"cpu": "1"}), True),
        ({}, ({"cpu": "1"}, {}), False),
        ({}, ({"cpu": "1"}, {"cpu": "0"}), False),
        ({"cpu": "2"}, ({}, {}), True),
        ({"memory": "1Gi"}, ({}, {}), False),
    ],
)
def test_whether_all_containers_are_limited(
    of_pod: dict[str, str], of_containers: tuple[dict[str, str], ...], expected: bool
) -> None:
    first, second = (container("c", resources={"limits": of}) for of in of_containers)
    for regular, init in (((first, second), ()), ((first,), (second,))):
        pod = make_pod(*regular, init=init, resources={"limits": of_pod})
        assert limited(pod, "cpu") is expected
