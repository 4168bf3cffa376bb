"""New Services get one Warning event, because nothing serves their address or name."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up.controllers.service_notices import ServiceNotices
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN
from tests.unit.kubeletpy_up.helpers import make_registry
from tests.virtual_time import LoopClock, on_virtual_time, settle

INSTEAD = (
    "connect to the addresses of Pods, or join a cluster "
    '(docs/embedded-api.md, "Kinds of a cluster")'
)


def service(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], **spec}}


def events_of(registry: Registry) -> list[tuple[str, str, str]]:
    events = registry.list(ADMIN, "events", "default")["items"]
    return [(e["type"], e["reason"], e["message"]) for e in events]


@pytest.mark.parametrize(
    ("spec", "begin"),
    [
        (
            {"clusterIP": "10.96.0.9"},
            "10.96.0.9 is not routed to Pods: this single-node API runs no service proxy; ",
        ),
        (
            {"clusterIP": "None"},
            "The Service's name is not resolved: this single-node API has no DNS server; ",
        ),
        (
            {"type": "ExternalName", "externalName": "a.example"},
            "The Service's name is not resolved: this single-node API has no DNS server; ",
        ),
    ],
)
@on_virtual_time
async def test_a_new_service_has_one_warning(spec: dict[str, Any], begin: str) -> None:
    registry = make_registry(clock=LoopClock())
    controller = ServiceNotices(registry)
    controller.start()
    registry.create(ADMIN, "services", service(**spec), "default")
    await settle()
    labels = {"metadata": {"labels": {"a": "b"}}}
    merge = "application/merge-patch+json"
    registry.patch(ADMIN, "services", "s", labels, "default", patch_type=merge)
    await settle()
    assert events_of(registry) == [("Warning", "NotProxied", begin + INSTEAD)]
    await controller.stop()


@on_virtual_time
async def test_a_restart_does_not_repeat_the_warning() -> None:
    registry = make_registry(clock=LoopClock())
    registry.create(ADMIN, "services", service(), "default")
    controller = ServiceNotices(registry)
    controller.start()
    await settle()
    assert events_of(registry) == []
    await controller.stop()
