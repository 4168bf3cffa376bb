"""kubectl apply, on the client's and on the server's side: conflicts, force, who owns what."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.conversation import Step, delete, get, patch, post, put
from tests.contract.conversations.objects import IMAGE, PODS, container

_MAPS = "/api/v1/namespaces/{ns}/configmaps"
_LAST = "kubectl.kubernetes.io/last-applied-configuration"
_CLIENT = {"fieldManager": "kubectl-client-side-apply", "fieldValidation": "Strict"}


def _map(name: str, *, labels: dict[str, str] | None = None, **data: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "{ns}"}
    if labels:
        metadata["labels"] = labels
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return {**made, "data": data} if data else made


def _compact(obj: dict[str, Any]) -> str:
    return json.dumps(obj, separators=(",", ":"), sort_keys=True) + "\n"


def _annotated(obj: dict[str, Any]) -> dict[str, Any]:
    """The object as kubectl creates it on the client's side."""
    metadata = {**obj["metadata"], "annotations": {_LAST: _compact(obj)}}
    return {**obj, "metadata": metadata}


def _apply(
    name: str,
    obj: dict[str, Any],
    *,
    manager: str = "kubectl",
    path: str = "",
    subresource: str = "",
    **query: str,
) -> Step:
    """The request of ``kubectl apply --server-side``; the answer shows the owners of fields."""
    where = {"ConfigMap": _MAPS, "Pod": PODS}.get(obj.get("kind", ""), _MAPS)
    path = path or f"{where}/{obj['metadata']['name']}{subresource}"
    requested = {"fieldManager": manager, "fieldValidation": "Strict", "force": "false", **query}
    return patch(name, path, obj, "apply", query=requested, managers=True)


def _pod(*containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "{ns}", **metadata},
        "spec": {
            "containers": list(containers),
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
        },
    }


_PORT = {"containerPort": 80, "name": "web"}
_A_B = _map("s", a="1", b="2")

STEPS: list[Step] = [
    # kubectl apply
    get("client side: is it there", _MAPS + "/c"),
    post("client side: created", _MAPS, _annotated(_map("c", a="1", b="2")), query=_CLIENT),
    patch(
        "client side: changed",
        _MAPS + "/c",
        {
            "data": {"a": "2", "b": None},
            "metadata": {"annotations": {_LAST: _compact(_map("c", a="2"))}},
        },
        query=_CLIENT,
    ),
    patch(
        "client side: a field that is unknown",
        _MAPS + "/c",
        {"data": {"a": "2"}, "dat": {"x": "1"}},
        query=_CLIENT,
    ),
    patch(
        "client side: dry run",
        _MAPS + "/c",
        {"data": {"d": "1"}},
        query={**_CLIENT, "dryRun": "All"},
    ),
    # kubectl apply --server-side
    _apply("applied first", _A_B),
    _apply("applied again", _A_B),
    _apply("a value changes", _map("s", a="2", b="2")),
    _apply("a key is left out", _map("s", a="2")),
    _apply("another manager, another key", _map("s", c="3"), manager="other"),
    _apply("another manager, the same value", _map("s", a="2", c="3"), manager="other"),
    _apply("left out, and owned by the other", _map("s", d="4")),
    _apply("a conflict", _map("s", a="9")),
    _apply("two conflicts", _map("s", a="9", c="9")),
    _apply("by force", _map("s", a="9", c="9"), force="true"),
    _apply("nothing left to the other", _map("s", e="1"), manager="other"),
    patch(
        "an update takes over",
        _MAPS + "/s",
        {"data": {"a": "5"}},
        "merge",
        query={"fieldManager": "editor"},
        managers=True,
    ),
    _apply("a conflict with an update", _map("s", a="9", c="9")),
    _apply("giving it up", _map("s", c="9")),
    put(
        "replaced by somebody",
        _MAPS + "/s",
        _map("s", a="5", c="10"),
        query={"fieldManager": "replacer"},
        managers=True,
    ),
    _apply("labels", _map("s", labels={"x": "1"}), manager="labeller"),
    _apply("no fields any more", _map("s"), manager="labeller"),
    _apply("an empty map", {**_map("s"), "data": {}}, manager="labeller"),
    _apply("nothing again", _map("s"), manager="labeller"),
    _apply("dry run", _map("s", z="1"), manager="dry", dryRun="All"),
    _apply("dry run of what is not there", _map("new", z="1"), dryRun="All"),
    get("still not there", _MAPS + "/new"),
    # what is refused
    patch("no manager", _MAPS + "/s", _A_B, "apply"),
    patch("an empty manager", _MAPS + "/s", _A_B, "apply", query={"fieldManager": ""}),
    patch(
        "a manager with a bad character",
        _MAPS + "/s",
        _A_B,
        "apply",
        query={"fieldManager": "a\tb"},
    ),
    patch(
        "a manager of 129 characters",
        _MAPS + "/s",
        _A_B,
        "apply",
        query={"fieldManager": "m" * 129},
    ),
    _apply("another name", _map("t", a="1"), path=_MAPS + "/s", force="true"),
    _apply(
        "another namespace",
        {**_A_B, "metadata": {"name": "s", "namespace": "default"}},
        force="true",
    ),
    _apply("no kind", {"apiVersion": "v1", "metadata": {"name": "s"}}),
    _apply("no version", {"kind": "ConfigMap", "metadata": {"name": "s"}}),
    _apply("another kind", {**_A_B, "kind": "Secret"}, path=_MAPS + "/s"),
    _apply("another version", {**_A_B, "apiVersion": "v2"}),
    _apply("a number for a text", _map("s", a=1)),
    _apply("unknown field, strict", {**_A_B, "dat": {}}),
    _apply("unknown field, warned", {**_A_B, "dat": {}}, fieldValidation="Warn"),
    _apply("its own managers", {**_A_B, "metadata": {"name": "s", "managedFields": [{}]}}),
    _apply("stale", {**_A_B, "metadata": {"name": "s", "resourceVersion": "1"}}, force="true"),
    patch("a list", _MAPS + "/s", [], "apply", query={"fieldManager": "me"}),
    patch("no object", _MAPS + "/s", b"[", "apply", query={"fieldManager": "me"}),
    get("as it is", _MAPS + "/s"),
    _apply(
        "a uid for what is not there",
        {
            **_map("no", a="1"),
            "metadata": {"name": "no", "uid": "00000000-0000-0000-0000-000000000000"},
        },
    ),
    patch("force false is allowed", _MAPS + "/s", {}, "merge", query={"force": "false"}),
    # lists with keys
    _apply("a pod", _pod(container(ports=[_PORT]))),
    _apply(
        "a pod's image by another",
        _pod({"name": "c0", "image": "example.test/app:2"}),
        manager="image",
    ),
    _apply(
        "a pod's image by force",
        _pod({"name": "c0", "image": "example.test/app:2"}),
        manager="image",
        force="true",
    ),
    _apply("a pod's image back", _pod(container(ports=[_PORT]))),
    _apply("a pod's ports", _pod({"name": "c0", "image": "example.test/app:2"})),
    _apply("a pod's finalizers", _pod(container(), finalizers=["x.test/a"]), manager="a"),
    _apply("more finalizers", _pod(container(), finalizers=["x.test/b"]), manager="b"),
    _apply("the same container twice", _pod(container(), container())),
    _apply("a container without a name", _pod({"image": IMAGE})),
    _apply(
        "status by its path",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "status": {"conditions": [{"type": "Mine", "status": "True"}]},
        },
        manager="status",
        subresource="/status",
    ),
    _apply(
        "status by the main path",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p"},
            "status": {"conditions": [{"type": "Mine", "status": "False"}]},
        },
        manager="status",
    ),
    # from the client's side to the server's
    _apply("taken over from the client's side", _map("c", a="2")),
    _apply("changed after that", _map("c", a="3", f="1")),
    delete("gone", _MAPS + "/s"),
    _apply("applied anew", _A_B, force="true"),
]
