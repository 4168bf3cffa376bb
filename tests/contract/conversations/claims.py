"""PersistentVolumeClaims: defaults, what is refused, what may change, how one ends."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import delete, get, once, patch, post, put
from tests.contract.conversations.objects import JSON

_CLAIMS = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def _claim(name: str, *, metadata: JSON | None = None, **spec: Any) -> JSON:
    """A claim of a class that nobody serves."""
    requested: JSON = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "none-{node}",
        **spec,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {key: value for key, value in requested.items() if value is not None},
    }


def _storage(amount: Any) -> JSON:
    return {"requests": {"storage": amount}}


def _class(name: str, **more: Any) -> JSON:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "example.test/none",
        "volumeBindingMode": "WaitForFirstConsumer",
        **more,
    }


def _bound(name: str, volume: str, klass: str) -> list[Any]:
    """A claim for one volume, bound to it."""
    pv = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": klass,
            "hostPath": {"path": "/tmp/none"},
        },
    }
    return [
        post(f"volume of {name}", _VOLUMES, pv),
        once(f"volume of {name} is free", f"{_VOLUMES}/{volume}", "/status/phase", "Available"),
        post(
            f"{name} for a volume", _CLAIMS, _claim(name, volumeName=volume, storageClassName=klass)
        ),
        once(f"{name} is bound", f"{_CLAIMS}/{name}", "/status/phase", "Bound"),
    ]


_REFUSED: dict[str, JSON] = {
    "no modes": _claim("x", accessModes=None),
    "empty modes": _claim("x", accessModes=[]),
    "unknown mode": _claim("x", accessModes=["ReadWriteSometimes"]),
    "once per pod and more": _claim("x", accessModes=["ReadWriteOncePod", "ReadWriteOnce"]),
    "no resources": _claim("x", resources=None),
    "no storage": _claim("x", resources={"requests": {"cpu": "1"}}),
    "nothing": _claim("x", resources=_storage("0")),
    "less than nothing": _claim("x", resources=_storage("-1Gi")),
    "bad amount": _claim("x", resources=_storage("much")),
    "bad class": _claim("x", storageClassName="Not_A_Class"),
    "bad volume mode": _claim("x", volumeMode="Stream"),
    "bad selector": _claim("x", selector={"matchLabels": {"a b": "c"}}),
    "bad operator": _claim(
        "x", selector={"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}
    ),
    "values of exists": _claim(
        "x", selector={"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}
    ),
    "in nothing": _claim("x", selector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
    "bad name": _claim("Not_A_Name"),
    "no name": _claim(""),
    "source without a kind": _claim("x0", dataSource={"name": "a"}),
    "source without a name": _claim("x", dataSource={"kind": "PersistentVolumeClaim", "name": ""}),
    "source of core that is none": _claim("x1", dataSource={"kind": "Pod", "name": "a"}),
    "two sources": _claim(
        "x",
        dataSource={"kind": "PersistentVolumeClaim", "name": "a"},
        dataSourceRef={"kind": "PersistentVolumeClaim", "name": "b"},
    ),
    "unknown field": {**_claim("x2"), "extra": 1},
    "bad attributes class": _claim("x", volumeAttributesClassName="Not_A_Class"),
}

STEPS = [
    post("claim", _CLAIMS, _claim("a")),
    get("claim read", _CLAIMS + "/a"),
    post("claim without a class", _CLAIMS, _claim("b", storageClassName=None)),
    post("claim of no class", _CLAIMS, _claim("c", storageClassName="")),
    post(
        "claim with everything",
        _CLAIMS,
        _claim(
            "d",
            volumeMode="Block",
            accessModes=["ReadWriteMany", "ReadOnlyMany"],
            resources={"requests": {"storage": "1024Mi"}, "limits": {"storage": "2Gi"}},
            selector={"matchLabels": {"a": "b"}},
            dataSource={"kind": "PersistentVolumeClaim", "name": "a"},
        ),
    ),
    post("claim of one pod", _CLAIMS, _claim("e", accessModes=["ReadWriteOncePod"])),
    post("claim with a status", _CLAIMS, {**_claim("f"), "status": {"phase": "Bound"}}),
    post(
        "limit below the request",
        _CLAIMS,
        _claim("g", resources={"requests": {"storage": "2Gi"}, "limits": {"storage": "1Gi"}}),
    ),
    post("fractions", _CLAIMS, _claim("h", resources=_storage("1.5"))),
    post(
        "of the beta's annotation",
        _CLAIMS,
        _claim(
            "i",
            metadata={"annotations": {"volume.beta.kubernetes.io/storage-class": "none-{node}"}},
            storageClassName=None,
        ),
    ),
    post("a name made", _CLAIMS, {**_claim(""), "metadata": {"generateName": "gen-"}}),
    *(post(f"refused, {name}", _CLAIMS, body) for name, body in _REFUSED.items()),
    patch("labels", _CLAIMS + "/a", {"metadata": {"labels": {"a": "b"}}}, "merge"),
    patch("larger, unbound", _CLAIMS + "/a", {"spec": {"resources": _storage("2Gi")}}, "merge"),
    patch("smaller, unbound", _CLAIMS + "/a", {"spec": {"resources": _storage("1Mi")}}, "merge"),
    patch("another class", _CLAIMS + "/a", {"spec": {"storageClassName": "z"}}, "merge"),
    patch("a class for none", _CLAIMS + "/b", {"spec": {"storageClassName": "z-{node}"}}, "merge"),
    patch("other modes", _CLAIMS + "/a", {"spec": {"accessModes": ["ReadWriteMany"]}}, "merge"),
    patch("another mode", _CLAIMS + "/a", {"spec": {"volumeMode": "Block"}}, "merge"),
    patch("volume set", _CLAIMS + "/a", {"spec": {"volumeName": "none-{node}"}}, "merge"),
    patch("volume set again", _CLAIMS + "/a", {"spec": {"volumeName": "other-{node}"}}, "merge"),
    patch("status by the spec", _CLAIMS + "/e", {"status": {"phase": "Bound"}}, "merge"),
    patch("spec by the status", _CLAIMS + "/e/status", {"spec": {"volumeName": "x"}}, "merge"),
    patch(
        "bad capacity", _CLAIMS + "/e/status", {"status": {"capacity": {"storage": "-1"}}}, "merge"
    ),
    patch(
        "resizing",
        _CLAIMS + "/e/status",
        {
            "status": {
                "capacity": {"storage": "1Gi"},
                "allocatedResources": {"storage": "2Gi"},
                "allocatedResourceStatuses": {"storage": "NodeResizePending"},
                "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
            }
        },
        "merge",
    ),
    patch(
        "bad resize status",
        _CLAIMS + "/e/status",
        {"status": {"allocatedResourceStatuses": {"storage": "Soon"}}},
        "merge",
    ),
    post("class that grows", _CLASSES, _class("grows-{node}", allowVolumeExpansion=True)),
    post("class that does not", _CLASSES, _class("fixed-{node}")),
    *_bound("growing", "v-grows-{node}", "grows-{node}"),
    *_bound("fixed", "v-fixed-{node}", "fixed-{node}"),
    patch(
        "grow", _CLAIMS + "/growing", {"spec": {"resources": _storage("2Gi")}}, "merge", until=200
    ),
    patch("shrink", _CLAIMS + "/growing", {"spec": {"resources": _storage("100Mi")}}, "merge"),
    patch("take back", _CLAIMS + "/growing", {"spec": {"resources": _storage("1500Mi")}}, "merge"),
    patch("grow, fixed", _CLAIMS + "/fixed", {"spec": {"resources": _storage("2Gi")}}, "merge"),
    patch("shrink, fixed", _CLAIMS + "/fixed", {"spec": {"resources": _storage("1Mi")}}, "merge"),
    patch("unbind", _CLAIMS + "/growing", {"spec": {"volumeName": ""}}, "merge"),
    get(
        "claims as a table",
        _CLAIMS + "/growing",
        accept="application/json;as=Table;g=meta.k8s.io;v=v1",
    ),
    delete("deleted", _CLAIMS + "/h"),
    get("gone", _CLAIMS + "/h", until=404),
    patch(
        "held",
        _CLAIMS + "/g",
        {"metadata": {"finalizers": ["kubernetes.io/pvc-protection", "example.test/held"]}},
        "merge",
    ),
    delete("deleted, held", _CLAIMS + "/g"),
    once("let go by one", _CLAIMS + "/g", "/metadata/finalizers", ["example.test/held"]),
    patch("changed, being deleted", _CLAIMS + "/g", {"metadata": {"labels": {"q": "r"}}}, "merge"),
    patch("let go", _CLAIMS + "/g", {"metadata": {"finalizers": None}}, "merge"),
    get("gone, too", _CLAIMS + "/g", until=404),
    put("put", _CLAIMS + "/c", _claim("c", storageClassName="", metadata={"labels": {"p": "q"}})),
    delete("bound, deleted", _CLAIMS + "/growing"),
    get("bound, gone", _CLAIMS + "/growing", until=404),
    once("released", _VOLUMES + "/v-grows-{node}", "/status/phase", "Released"),
    delete("volume deleted", _VOLUMES + "/v-grows-{node}"),
    get("volume gone", _VOLUMES + "/v-grows-{node}", until=404),
    delete("fixed volume deleted", _VOLUMES + "/v-fixed-{node}"),
    once("in use", _VOLUMES + "/v-fixed-{node}", "/status/phase", "Bound"),
    delete("fixed deleted", _CLAIMS + "/fixed"),
    get("fixed gone", _CLAIMS + "/fixed", until=404),
    get("fixed volume gone", _VOLUMES + "/v-fixed-{node}", until=404),
    delete("class deleted", _CLASSES + "/grows-{node}"),
    delete("other class deleted", _CLASSES + "/fixed-{node}"),
]
