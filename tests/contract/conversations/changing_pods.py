"""Pods that are updated and patched: what may change, conflicts, patch types."""

from __future__ import annotations

from tests.contract.conversation import Step, get, patch, post, put
from tests.contract.conversations.objects import PODS, container, here

_POD = PODS + "/p"
_UID = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}

MAPS = "/api/v1/namespaces/{ns}/configmaps"

STEPS = [
    post("an owner", MAPS, {"metadata": {"name": "x"}}, keep={"owner": "metadata.uid"}),
    post(
        "create",
        PODS,
        here("p", metadata={"labels": {"a": "1"}}),
        keep={"uid": "metadata.uid", "rv": "metadata.resourceVersion"},
    ),
    patch(
        "label",
        _POD,
        {"metadata": {"labels": {"b": "2"}}},
        keep={"now": "metadata.resourceVersion"},
    ),
    patch(
        "the same label",
        _POD,
        {"metadata": {"labels": {"b": "2"}}},
        keep={"same": "metadata.resourceVersion"},
    ),
    patch("merge removes a label", _POD, {"metadata": {"labels": {"a": None}}}, "merge"),
    patch("annotation null", _POD, {"metadata": {"annotations": None}}),
    patch("json patch", _POD, [{"op": "add", "path": "/metadata/labels/c", "value": "3"}], "json"),
    patch(
        "json patch that fails",
        _POD,
        [{"op": "test", "path": "/metadata/labels/c", "value": "4"}],
        "json",
    ),
    patch(
        "json patch of nothing", _POD, [{"op": "remove", "path": "/metadata/labels/none"}], "json"
    ),
    patch("json patch with a bad op", _POD, [{"op": "jump", "path": "/x"}], "json"),
    patch("json patch that is an object", _POD, {}, "json"),
    patch("strategic patch that is a list", _POD, [], "strategic"),
    patch("merge patch that is a string", _POD, "x", "merge"),
    patch("patch that is no json", _POD, b"{", "merge"),
    patch("empty patch", _POD, {}),
    Step("unknown patch type", "PATCH", _POD, {}, content_type="application/x"),
    put("no resource version", _POD, here("p")),
    patch("stale version", _POD, {"metadata": {"resourceVersion": "{rv}", "labels": {"z": "1"}}}),
    patch("bad version", _POD, {"metadata": {"resourceVersion": "x", "labels": {"z": "1"}}}),
    patch("other uid", _POD, _UID),
    patch("other uid, merge", _POD, _UID, "merge"),
    patch("other name", _POD, {"metadata": {"name": "q"}}),
    patch("not there", PODS + "/none", {"metadata": {"labels": {"a": "1"}}}),
    patch("image", _POD, {"spec": {"containers": [{"name": "c0", "image": "example.test/app:2"}]}}),
    patch("image empty", _POD, {"spec": {"containers": [{"name": "c0", "image": ""}]}}),
    patch(
        "image of another container", _POD, {"spec": {"containers": [{"name": "c9", "image": "x"}]}}
    ),
    patch("command", _POD, {"spec": {"containers": [{"name": "c0", "command": ["x"]}]}}),
    patch("deadline", _POD, {"spec": {"activeDeadlineSeconds": 100}}),
    patch("deadline longer", _POD, {"spec": {"activeDeadlineSeconds": 200}}),
    patch("deadline gone", _POD, {"spec": {"activeDeadlineSeconds": None}}),
    patch("toleration", _POD, {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}),
    patch("toleration gone", _POD, {"spec": {"tolerations": None}}),
    patch("node name", _POD, {"spec": {"nodeName": "elsewhere"}}),
    patch("grace", _POD, {"spec": {"terminationGracePeriodSeconds": 1}}),
    patch("another container more", _POD, {"spec": {"containers": [container("more")]}}),
    patch(
        "resources outside the subresource",
        _POD,
        {"spec": {"containers": [{"name": "c0", "resources": {"requests": {"cpu": "1"}}}]}},
    ),
    patch(
        "ephemeral outside the subresource",
        _POD,
        {"spec": {"ephemeralContainers": [container("e")]}},
    ),
    patch("status by the main path", _POD, {"status": {"phase": "Running"}}),
    patch("generation is the server's", _POD, {"metadata": {"generation": 99}}),
    patch(
        "creation time is the server's",
        _POD,
        {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}},
    ),
    patch(
        "deletion time is the server's",
        _POD,
        {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}},
    ),
    patch("unknown field", _POD, {"spec": {"foo": 1}}),
    patch("unknown field, strict", _POD, {"spec": {"foo": 1}}, query={"fieldValidation": "Strict"}),
    patch("unknown field, warned", _POD, {"spec": {"foo": 1}}, query={"fieldValidation": "Warn"}),
    patch("wrong type", _POD, {"spec": {"nodeName": 5}}),
    patch("directives", _POD, {"metadata": {"labels": {"$patch": "replace", "only": "x"}}}),
    patch("bad directive", _POD, {"metadata": {"labels": {"$patch": "shuffle"}}}),
    patch("finalizer", _POD, {"metadata": {"finalizers": ["example.test/keep"]}}),
    patch("finalizer gone", _POD, {"metadata": {"finalizers": None}}),
    patch(
        "owner",
        _POD,
        {
            "metadata": {
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "name": "x",
                        "uid": "{owner}",
                        "controller": True,
                    }
                ]
            }
        },
    ),
    patch(
        "two controllers",
        _POD,
        {
            "metadata": {
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "name": "y",
                        "uid": "2",
                        "controller": True,
                    }
                ]
            }
        },
    ),
    patch(
        "owner without uid",
        _POD,
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "y"}]}},
        "merge",
    ),
    patch(
        "apply",
        _POD,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"applied": "1"}}},
        "apply",
        query={"fieldManager": "me"},
    ),
    patch(
        "apply without manager",
        _POD,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},
        "apply",
    ),
    patch(
        "apply a conflict",
        _POD,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"only": "mine"}}},
        "apply",
        query={"fieldManager": "me"},
    ),
    patch(
        "apply by force",
        _POD,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"only": "mine"}}},
        "apply",
        query={"fieldManager": "me", "force": "true"},
    ),
    patch("force without apply", _POD, {}, "merge", query={"force": "true"}),
    patch("dry run", _POD, {"metadata": {"labels": {"dry": "1"}}}, query={"dryRun": "All"}),
    get("as it is now", _POD),
    put("stale", _POD, here("p", metadata={"resourceVersion": "{rv}"})),
    put("other name in the body", _POD, here("q")),
    put("other namespace in the body", _POD, here("p", metadata={"namespace": "other"})),
    put("not there to replace", PODS + "/none", here("none")),
    put("other uid to replace", _POD, here("p", metadata=_UID["metadata"])),
]
