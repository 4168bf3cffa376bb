"""Answers of lists, pages and watches to requests for versions that are too old."""

from __future__ import annotations

import base64
import json

from tests.contract.conversation import Step, get, patch, post, watch

_MAPS = "/api/v1/namespaces/{ns}/configmaps"
_LABEL = "old"


def _token(revision: int, start: str, version: str = "meta.k8s.io/v1") -> str:
    """A continue token as a server makes it."""
    text = json.dumps({"v": version, "rv": revision, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _page(name: str, token: str, *, limit: int = 2, path: str = _MAPS, **more: object) -> Step:
    return get(
        name, path, query={"labelSelector": _LABEL, "limit": limit, "continue": token}, **more
    )


STEPS: list[Step] = [
    *(
        post(f"map {name}", _MAPS, {"metadata": {"name": name, "labels": {"old": "1"}}})
        for name in "abcde"
    ),
    # a page after its version was forgotten
    _page("too old", _token(1, "b\0"), keep={"on": "metadata.continue"}),
    _page("what can go on", "{on}", keep={"next": "metadata.continue"}),
    _page("and on", "{next}"),
    _page("too old, no limit", _token(1, "b\0"), limit=0),
    _page("too old, everywhere", _token(1, "{ns}/b\0"), path="/api/v1/configmaps"),
    _page("goes on without a version", _token(-1, "b\0")),
    _page("goes on behind the end", _token(-1, "z\0")),
    _page("a version to come", _token(2**40, "b\0")),
    _page("no version", _token(0, "b\0")),
    _page("no beginning", _token(5, "")),
    _page("another form", _token(5, "b\0", "meta.k8s.io/v2")),
    _page("a way out", _token(-1, "../secrets/b\0")),
    # a list of the past
    get("as of then", _MAPS, query={"resourceVersion": "1", "resourceVersionMatch": "Exact"}),
    get(
        "as of then, a page",
        _MAPS,
        query={"resourceVersion": "1", "resourceVersionMatch": "Exact", "limit": 2},
    ),
    get(
        "not older than then",
        _MAPS,
        query={
            "resourceVersion": "1",
            "resourceVersionMatch": "NotOlderThan",
            "labelSelector": _LABEL,
        },
    ),
    get("one as of then", _MAPS + "/a", query={"resourceVersion": "1"}),
    # a watch from the past
    watch("a watch", _MAPS, events=1, resourceVersion="1"),
    watch(
        "a watch with bookmarks", _MAPS, events=1, resourceVersion="1", allowWatchBookmarks="true"
    ),
    watch("a watch of one", _MAPS + "/a", events=1, resourceVersion="1"),
    watch("a watch of everything", "/api/v1/configmaps", events=1, resourceVersion="1"),
    watch(
        "a watch by a node",
        "/api/v1/pods",
        events=1,
        resourceVersion="1",
        fieldSelector="spec.nodeName={node}",
        by="node",
    ),
    watch(
        "a watch as a Table",
        _MAPS,
        events=1,
        resourceVersion="1",
        accept="application/json;as=Table;v=v1;g=meta.k8s.io",
    ),
    watch(
        "a watch as metadata",
        _MAPS,
        events=1,
        resourceVersion="1",
        accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    ),
    watch(
        "a list by watch",
        _MAPS,
        patch("changed meanwhile", _MAPS + "/a", {"data": {"n": "1"}}),
        events=7,
        resourceVersion="1",
        sendInitialEvents="true",
        allowWatchBookmarks="true",
        resourceVersionMatch="NotOlderThan",
        labelSelector=_LABEL,
    ),
]
