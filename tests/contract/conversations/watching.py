"""Watches: where they begin, which events they send, and how they end."""

from __future__ import annotations

from tests.contract.conversation import Step, delete, get, patch, post, put, watch
from tests.contract.conversations.objects import JSON, PODS, here, pod

_MAPS = "/api/v1/namespaces/{ns}/configmaps"
_MINE = "contract=watched"
_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def _map(name: str, *, label: str = "watched", **data: str) -> JSON:
    return {"metadata": {"name": name, "labels": {"contract": label}}, "data": data}


def _label(name: str, map_: str, label: str | None) -> Step:
    return patch(name, f"{_MAPS}/{map_}", {"metadata": {"labels": {"contract": label}}})


STEPS = [
    get("before", _MAPS, query={"labelSelector": _MINE}, keep={"rv0": "metadata.resourceVersion"}),
    post("a map", _MAPS, _map("a", x="1"), keep={"rv1": "metadata.resourceVersion"}),
    patch("it changes", _MAPS + "/a", {"data": {"x": "2"}}),
    patch("the same again", _MAPS + "/a", {"data": {"x": "2"}}),
    post("another map", _MAPS, _map("b", label="other")),
    _label("it starts to match", "b", "watched"),
    patch("it changes while it matches", _MAPS + "/b", {"data": {"y": "1"}}),
    _label("it stops matching", "b", "other"),
    delete("deleted where nobody looks", _MAPS + "/b"),
    delete("deleted", _MAPS + "/a"),
    post("last", _MAPS, _map("z"), keep={"rv2": "metadata.resourceVersion"}),
    watch("all since then", _MAPS, events=6, labelSelector=_MINE, resourceVersion="{rv0}"),
    watch("since the first", _MAPS, events=5, labelSelector=_MINE, resourceVersion="{rv1}"),
    watch("one by name", _MAPS, events=3, fieldSelector="metadata.name=a", resourceVersion="{rv0}"),
    watch("one by its path", _MAPS + "/z", events=1, resourceVersion="{rv0}"),
    watch("one by its path, gone", _MAPS + "/a", events=1, resourceVersion="{rv0}"),
    watch(
        "all but one",
        _MAPS,
        events=4,
        labelSelector=_MINE,
        fieldSelector="metadata.name!=a",
        resourceVersion="{rv0}",
    ),
    watch(
        "none, and it ends", _MAPS, labelSelector="a=b", resourceVersion="{rv0}", timeoutSeconds=1
    ),
    watch("by the old path", "/api/v1/watch/namespaces/{ns}/configmaps/z", events=1),
    watch("state first", _MAPS, events=1, labelSelector=_MINE),
    watch("state first, any version", _MAPS, events=1, labelSelector=_MINE, resourceVersion="0"),
    watch(
        "state first, then changes",
        _MAPS,
        post("added meanwhile", _MAPS, _map("y")),
        patch("changed meanwhile", _MAPS + "/y", {"data": {"a": "b"}}),
        put("replaced meanwhile", _MAPS + "/y", _map("y", c="d")),
        _label("gone from sight meanwhile", "y", None),
        _label("back in sight meanwhile", "y", "watched"),
        delete("deleted meanwhile", _MAPS + "/y"),
        events=7,
        labelSelector=_MINE,
    ),
    watch(
        "list by watch",
        _MAPS,
        patch("after the bookmark", _MAPS + "/z", {"data": {"n": "1"}}),
        events=3,
        labelSelector=_MINE,
        sendInitialEvents="true",
        allowWatchBookmarks="true",
        resourceVersionMatch="NotOlderThan",
    ),
    watch(
        "list by watch, any version",
        _MAPS,
        events=2,
        labelSelector=_MINE,
        sendInitialEvents="true",
        allowWatchBookmarks="true",
        resourceVersionMatch="NotOlderThan",
        resourceVersion="0",
    ),
    watch(
        "list by watch, of nothing",
        _MAPS,
        events=1,
        labelSelector="a=b",
        sendInitialEvents="true",
        allowWatchBookmarks="true",
        resourceVersionMatch="NotOlderThan",
        resourceVersion="{rv2}",
    ),
    watch(
        "list by watch without bookmarks",
        _MAPS,
        labelSelector=_MINE,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        timeoutSeconds=1,
    ),
    watch(
        "no initial events",
        _MAPS,
        patch("what comes first", _MAPS + "/z", {"data": {"n": "2"}}),
        events=1,
        labelSelector=_MINE,
        sendInitialEvents="false",
        resourceVersionMatch="NotOlderThan",
    ),
    watch("initial events without match", _MAPS, sendInitialEvents="true"),
    watch("match without initial events", _MAPS, resourceVersionMatch="NotOlderThan"),
    watch(
        "another match",
        _MAPS,
        sendInitialEvents="true",
        resourceVersionMatch="Exact",
        resourceVersion="{rv2}",
    ),
    watch("a limit means nothing", _MAPS, events=1, labelSelector=_MINE, limit=1),
    watch("a version that is none", _MAPS, resourceVersion="abc"),
    watch("a version that is too old", _MAPS, resourceVersion="1"),
    watch("a version to come", _MAPS, resourceVersion="999999999", timeoutSeconds=1),
    watch("a bad label selector", _MAPS, labelSelector="a in b"),
    watch("a bad field selector", _MAPS, fieldSelector="data.x=1"),
    watch("a field selector that can't be read", _MAPS, fieldSelector="a"),
    watch("a bad timeout", _MAPS, timeoutSeconds="soon"),
    watch("a bad flag", _MAPS, allowWatchBookmarks="maybe", timeoutSeconds=1, labelSelector="a=b"),
    watch("of what is not there", "/api/v1/namespaces/{ns}/nothings"),
    watch("only metadata", _MAPS, events=1, labelSelector=_MINE, accept=_PARTIAL),
    watch(
        "as a table",
        _MAPS,
        patch("the second row", _MAPS + "/z", {"data": {"n": "3"}}),
        events=2,
        labelSelector=_MINE,
        accept=_TABLE,
    ),
    post("pod", PODS, here("p"), keep={"pods": "metadata.resourceVersion"}),
    post("pod elsewhere", PODS, pod("q", schedulerName="nobody")),
    watch("pods of everybody by a node", "/api/v1/pods", by="node"),
    watch("pods of another node", "/api/v1/pods", fieldSelector="spec.nodeName={other}", by="node"),
    watch(
        "pods of the node",
        "/api/v1/pods",
        post(
            "bound meanwhile",
            PODS + "/q/binding",
            {"metadata": {"name": "q"}, "target": {"kind": "Node", "name": "{node}"}},
        ),
        patch("status meanwhile", PODS + "/q/status", {"status": {"phase": "Running"}}, by="node"),
        delete("pod deleted meanwhile", PODS + "/q", {"gracePeriodSeconds": 5}),
        delete("pod removed meanwhile", PODS + "/q", {"gracePeriodSeconds": 0}, by="node"),
        by="node",
        events=5,
        fieldSelector="spec.nodeName={node},metadata.namespace={ns}",
    ),
    watch("by phase", PODS, events=1, fieldSelector="status.phase=Pending"),
    watch(
        "leaves its phase",
        PODS,
        patch("phase changes", PODS + "/p/status", {"status": {"phase": "Running"}}, by="node"),
        events=1,
        fieldSelector="status.phase=Pending",
        resourceVersion="{pods}",
    ),
    watch(
        "its own node", "/api/v1/nodes", events=1, fieldSelector="metadata.name={node}", by="node"
    ),
    watch("another node", "/api/v1/nodes", fieldSelector="metadata.name={other}", by="node"),
    post("secret", "/api/v1/namespaces/{ns}/secrets", {"metadata": {"name": "s"}}),
    post("pod with it", PODS, here("s", volumes=[{"name": "s", "secret": {"secretName": "s"}}])),
    get("it is allowed", "/api/v1/namespaces/{ns}/secrets/s", by="node", until=200),
    watch(
        "its pod's secret",
        "/api/v1/namespaces/{ns}/secrets",
        events=1,
        fieldSelector="metadata.name=s",
        by="node",
    ),
    watch("all secrets", "/api/v1/namespaces/{ns}/secrets", by="node"),
]
