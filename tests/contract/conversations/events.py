"""Events: both API groups, series, and where they may be written."""

from __future__ import annotations

from tests.contract.conversation import delete, get, patch, post
from tests.contract.conversations.objects import JSON

_CORE = "/api/v1/namespaces/{ns}/events"
_NEW = "/apis/events.k8s.io/v1/namespaces/{ns}/events"
_TIME = "2026-01-01T00:00:00Z"


def _event(name: str, **more: object) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": "{ns}", "name": "p", "uid": "u"},
        "reason": "Started",
        "message": "m",
        "type": "Normal",
        "source": {"component": "kubelet", "host": "{node}"},
        "firstTimestamp": _TIME,
        "lastTimestamp": _TIME,
        "count": 1,
        **more,
    }


def _regarding(name: str, **more: object) -> JSON:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "regarding": {"kind": "Pod", "namespace": "{ns}", "name": "p"},
        "reason": "Started",
        "note": "n",
        "type": "Normal",
        "action": "Starting",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.test/me",
        "reportingInstance": "me-1",
        **more,
    }


STEPS = [
    post("create", _CORE, _event("e"), by="node", keep={"rv": "metadata.resourceVersion"}),
    post("exists", _CORE, _event("e"), by="node"),
    patch("count", _CORE + "/e", {"count": 2, "lastTimestamp": "2026-01-01T00:00:05Z"}, by="node"),
    patch("not there", _CORE + "/none", {"count": 2}, by="node"),
    get("by the node", _CORE + "/e", by="node"),
    post(
        "no times",
        _CORE,
        {"metadata": {"name": "bare"}, "involvedObject": {"namespace": "{ns}"}},
        by="node",
    ),
    post(
        "of another namespace",
        _CORE,
        _event("x", involvedObject={"kind": "Pod", "namespace": "other", "name": "p"}),
        by="node",
    ),
    post(
        "of a node",
        _CORE,
        _event("n", involvedObject={"kind": "Node", "name": "{node}"}),
        by="node",
    ),
    post(
        "of a node in default",
        "/api/v1/namespaces/default/events",
        {
            **_event("{node}.1"),
            "involvedObject": {"kind": "Node", "name": "{node}", "uid": "{node}"},
        },
        by="node",
    ),
    delete("of a node, removed", "/api/v1/namespaces/default/events/{node}.1"),
    post("bad type", _CORE, _event("t", type="Loud"), by="node"),
    post("long message", _CORE, _event("long", message="x" * 1025), by="node"),
    post("long reason", _CORE, _event("reason", reason="x" * 129), by="node"),
    post("bad name", _CORE, _event("E_1"), by="node"),
    post(
        "generated",
        _CORE,
        {**_event("x"), "metadata": {"generateName": "gen-"}},
        by="node",
        keep={"generated": "metadata.name"},
    ),
    post(
        "no such namespace",
        "/api/v1/namespaces/no-such-namespace/events",
        {**_event("x"), "involvedObject": {"namespace": "no-such-namespace"}},
        by="node",
    ),
    post(
        "with a series",
        _CORE,
        _event(
            "s",
            eventTime="2026-01-01T00:00:00.000001Z",
            reportingComponent="kubelet",
            reportingInstance="i",
            action="a",
            series={"count": 2, "lastObservedTime": "2026-01-01T00:00:01.5Z"},
        ),
        by="node",
    ),
    get("shown by the other group", _NEW + "/e"),
    post("of the other group", _NEW, _regarding("r"), by="node"),
    get("of the other group, shown by core", _CORE + "/r"),
    patch(
        "series of the other group",
        _NEW + "/r",
        {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:02.000000Z"}},
        "merge",
        by="node",
    ),
    post("other group without action", _NEW, _regarding("x1", action=""), by="node"),
    post("other group without time", _NEW, _regarding("x2", eventTime=None), by="node"),
    post(
        "other group without controller", _NEW, _regarding("x3", reportingController=""), by="node"
    ),
    get(
        "of one object",
        _CORE,
        query={"fieldSelector": "involvedObject.name=p,reason=Started,involvedObject.kind=Pod"},
        by="admin",
    ),
    get("bad selector", _CORE, query={"fieldSelector": "message=m"}),
    get("list by the node", _CORE, by="node"),
    delete("deleted by the node", _CORE + "/e", by="node"),
]
