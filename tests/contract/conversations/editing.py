"""kubectl label, annotate, edit, replace, set image, scale, taint and cordon, as it sends them."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import Step, delete, get, once, patch, post, put
from tests.contract.conversations.objects import CORDONED, PODS, here

_POD = PODS + "/p"
_NODE = "/api/v1/nodes/{node}"
_MAPS = "/api/v1/namespaces/{ns}/configmaps"
_MAP = _MAPS + "/m"


def _by(command: str, **query: str) -> dict[str, str]:
    return {"fieldManager": f"kubectl-{command}", **query}


def _map(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m", **metadata},
        "data": {"a": "1"},
    }


_SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}}

STEPS: list[Step] = [
    post(
        "a pod",
        PODS,
        here("p", metadata={"labels": {"app": "a"}}),
        keep={"uid": "metadata.uid", "rv": "metadata.resourceVersion"},
    ),
    # kubectl label, annotate
    patch("label", _POD, {"metadata": {"labels": {"b": "2"}}}, "merge", query=_by("label")),
    patch("label gone", _POD, {"metadata": {"labels": {"b": None}}}, "merge", query=_by("label")),
    patch(
        "label with its version",
        _POD,
        {"metadata": {"labels": {"c": "3"}, "resourceVersion": "{rv}"}},
        "merge",
        query=_by("label"),
    ),
    patch("a bad label", _POD, {"metadata": {"labels": {"b c": "2"}}}, "merge"),
    patch("a bad label value", _POD, {"metadata": {"labels": {"b": "-"}}}, "merge"),
    patch("a label that is a number", _POD, {"metadata": {"labels": {"b": 2}}}, "merge"),
    patch(
        "annotate", _POD, {"metadata": {"annotations": {"x": "1"}}}, "merge", query=_by("annotate")
    ),
    patch("a bad annotation", _POD, {"metadata": {"annotations": {"x y": "1"}}}, "merge"),
    # kubectl set image
    patch(
        "set image",
        _POD,
        {
            "spec": {
                "$setElementOrder/containers": [{"name": "c0"}],
                "containers": [{"name": "c0", "image": "example.test/app:2"}],
            }
        },
        query=_by("set"),
    ),
    patch(
        "set image in order, of one that is not there",
        _POD,
        {
            "spec": {
                "$setElementOrder/containers": [{"name": "c0"}, {"name": "c1"}],
                "containers": [{"name": "c1", "image": "example.test/app:2"}],
            }
        },
    ),
    # kubectl edit: a strategic patch of what was edited
    get("edit: read", _POD, keep={"read": "metadata.resourceVersion"}),
    patch("edit: meanwhile", _POD, {"metadata": {"labels": {"meanwhile": "1"}}}, "merge"),
    patch(
        "edit: sent, without a version",
        _POD,
        {"metadata": {"annotations": {"edited": "yes"}}},
        query=_by("edit", fieldValidation="Strict"),
    ),
    patch(
        "edit: sent, with the version read",
        _POD,
        {"metadata": {"annotations": {"edited": "twice"}, "resourceVersion": "{read}"}},
        query=_by("edit"),
    ),
    patch(
        "the same as a merge patch",
        _POD,
        {"metadata": {"annotations": {"edited": "twice"}, "resourceVersion": "{read}"}},
        "merge",
    ),
    patch(
        "the same as a json patch",
        _POD,
        [{"op": "replace", "path": "/metadata/resourceVersion", "value": "{read}"}],
        "json",
    ),
    patch("the uid as a json patch", _POD, [{"op": "remove", "path": "/metadata/uid"}], "json"),
    patch("the name as a json patch", _POD, [{"op": "remove", "path": "/metadata/name"}], "json"),
    patch("kind", _POD, {"kind": "Secret"}, "merge"),
    patch("version", _POD, {"apiVersion": "v2"}, "merge"),
    patch("creation time", _POD, {"metadata": {"creationTimestamp": None}}, "merge"),
    patch("status by the main path", _POD, {"status": {"phase": "Failed"}}, "merge"),
    # json patches
    patch("test holds", _POD, [{"op": "test", "path": "/metadata/name", "value": "p"}], "json"),
    patch(
        "copy",
        _POD,
        [{"op": "copy", "from": "/metadata/name", "path": "/metadata/labels/n"}],
        "json",
    ),
    patch(
        "move",
        _POD,
        [{"op": "move", "from": "/metadata/labels/n", "path": "/metadata/labels/m"}],
        "json",
    ),
    patch(
        "escaped", _POD, [{"op": "add", "path": "/metadata/labels/x.test~1y", "value": "1"}], "json"
    ),
    patch(
        "add below nothing", _POD, [{"op": "add", "path": "/metadata/none/y", "value": "1"}], "json"
    ),
    patch(
        "replace nothing",
        _POD,
        [{"op": "replace", "path": "/metadata/labels/no", "value": "1"}],
        "json",
    ),
    patch(
        "beyond a list", _POD, [{"op": "add", "path": "/spec/containers/9", "value": {}}], "json"
    ),
    patch("no path", _POD, [{"op": "add", "value": "1"}], "json"),
    # strategic patches
    patch("replace a map", _POD, {"metadata": {"labels": {"$patch": "replace", "only": "1"}}}),
    patch("delete a map", _POD, {"metadata": {"annotations": {"$patch": "delete"}}}),
    patch(
        "delete from a list", _POD, {"spec": {"containers": [{"name": "c0", "$patch": "delete"}]}}
    ),
    patch("a list without its key", _POD, {"spec": {"containers": [{"image": "x"}]}}),
    patch("null for a list", _POD, {"spec": {"containers": None}}),
    patch("finalizers merge", _POD, {"metadata": {"finalizers": ["x.test/a"]}}),
    patch("more finalizers", _POD, {"metadata": {"finalizers": ["x.test/b"]}}),
    patch(
        "finalizers in another order", _POD, {"metadata": {"finalizers": ["x.test/c", "x.test/a"]}}
    ),
    patch(
        "one finalizer deleted",
        _POD,
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.test/a"]}},
    ),
    patch("finalizers gone", _POD, {"metadata": {"finalizers": None}}, "merge"),
    # kubectl replace
    post("a map", _MAPS, _map(), keep={"mrv": "metadata.resourceVersion", "muid": "metadata.uid"}),
    put("replace without a version", _MAP, _map(), query=_by("replace")),
    put("replace with labels", _MAP, _map(labels={"a": "b"}), query=_by("replace")),
    put("replace a stale one", _MAP, _map(resourceVersion="{mrv}"), query=_by("replace")),
    put("replace another uid", _MAP, _map(uid="00000000-0000-0000-0000-000000000000")),
    put("replace what is not there", _MAPS + "/none", {**_map(), "metadata": {"name": "none"}}),
    put("replace, another kind", _MAP, {**_map(), "kind": "ServiceAccount"}),
    post("create what is there", _MAPS, _map()),
    post("create without a name", _MAPS, {"data": {}}),
    # kubectl scale: a pod has no scale
    get("scale of a pod", _POD + "/scale"),
    put("scale a pod", _POD + "/scale", _SCALE),
    patch("scale a pod by patch", _POD + "/scale", {"spec": {"replicas": 3}}, "merge"),
    # kubectl taint, cordon
    get("a node", _NODE, keep={"nrv": "metadata.resourceVersion"}),
    patch(
        "a label of a node",
        _NODE,
        {"metadata": {"labels": {"disk": "ssd"}}},
        "merge",
        query=_by("label"),
    ),
    patch("cordon", _NODE, {"spec": {"unschedulable": True}}, query=_by("cordon"), ready=True),
    once("a cordoned node has its taint", _NODE, "/spec/taints/0/key", CORDONED),
    patch("uncordon", _NODE, {"spec": {"unschedulable": None}}, query=_by("uncordon")),
    # kubectl delete
    delete("deleted with another version", _MAP, {"preconditions": {"resourceVersion": "1"}}),
    delete("deleted", _MAP, query={"propagationPolicy": "Background"}),
]
