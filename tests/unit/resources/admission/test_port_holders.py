"""Pods that hold the host ports which another pod requests."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.resources.admission.checks import clash, holders
from tests.unit.podworkers.builders import make_pod


def pod(name: str, *ports: dict[str, Any]) -> Any:
    return make_pod(name=name, containers=[{"name": "main", "image": "i", "ports": list(ports)}])


WEB = {"containerPort": 80, "hostPort": 8080}


@pytest.mark.parametrize(
    ("has", "wants", "found"),
    [
        (WEB, WEB, [("", "TCP", 8080)]),
        (WEB, {**WEB, "protocol": "UDP"}, []),
        (WEB, {**WEB, "hostPort": 8081}, []),
        (WEB, {"containerPort": 80}, []),
        ({**WEB, "hostPort": 2}, {**WEB, "hostPort": 2}, [("", "TCP", 2)]),
        (
            {**WEB, "hostIP": "10.0.0.1"},
            {**WEB, "hostIP": "10.0.0.1"},
            [("10.0.0.1", "TCP", 8080)],
        ),
        ({**WEB, "hostIP": "10.0.0.1"}, WEB, [("", "TCP", 8080)]),
        (WEB, {**WEB, "hostIP": "10.0.0.1"}, [("10.0.0.1", "TCP", 8080)]),
        ({**WEB, "hostIP": "10.0.0.1"}, {**WEB, "hostIP": "10.0.0.2"}, []),
        ({**WEB, "hostIP": "0.0.0.0"}, {**WEB, "hostIP": "10.0.0.2"}, [("10.0.0.2", "TCP", 8080)]),
    ],
)
def test_holders(has: dict[str, Any], wants: dict[str, Any], found: list[object]) -> None:
    holder, other = pod("holder", has), pod("other", {"containerPort": 1, "hostPort": 1})
    reported = [(port, each.name) for port, each in holders(pod("new", wants), [other, holder])]
    assert reported == [(port, "holder") for port in found]
    assert clash(pod("new", wants), [other, holder]) is bool(found)
