"""The requests of an audit log."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from tools.control_plane.audit import request_of


def event(uri: str, verb: str = "watch", **more: Any) -> JSON:
    return {
        "stage": "ResponseStarted",
        "requestURI": uri,
        "verb": verb,
        "user": {
            "username": "system:node:n1",
            "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=ab"]},
        },
        "objectRef": {"resource": "pods", "name": "a"},
        "responseStatus": {"code": 200},
        **more,
    }


@pytest.mark.parametrize(
    ("uri", "verb", "lists", "version"),
    [
        ("/api/v1/pods?watch=1&resourceVersion=7", "watch", False, "7"),
        ("/api/v1/pods?watch=1&sendInitialEvents=true", "watch", True, ""),
        ("/api/v1/pods?limit=500", "list", True, ""),
    ],
)
def test_a_watch_lists_or_resumes(uri: str, verb: str, lists: bool, version: str) -> None:
    found = request_of(event(uri, verb))
    assert (found.verb, found.lists, found.version) == (verb, lists, version)
    assert (found.user, found.resource, found.name, found.code) == (
        *("system:node:n1", "pods", "a"),
        200,
    )
    assert (found.credential, found.ended) == ("X509SHA256=ab", False)


def test_a_request_for_no_object_has_no_resource() -> None:
    bare = event("/version", "get", stage="ResponseComplete", user={"username": "u"}, objectRef={})
    found = request_of(bare)
    assert (found.resource, found.name, found.credential, found.ended) == ("", "", "", True)
