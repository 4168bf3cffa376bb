"""How claims get volumes, and what becomes of both: binding, pods that wait, protection, ends."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import Step, delete, get, once, patch, post
from tests.contract.conversations.objects import JSON, PODS, pod

_NS = "/api/v1/namespaces/{ns}"
_CLAIMS, _VOLUMES = _NS + "/persistentvolumeclaims", "/api/v1/persistentvolumes"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_PHASE = "/status/phase"


def _claim(name: str, klass: str, amount: str = "1Gi", **spec: Any) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": amount}},
            "storageClassName": klass,
            **spec,
        },
    }


def _volume(name: str, klass: str, amount: str, labels: JSON | None = None, **spec: Any) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name + "-{node}", "labels": labels or {}},
        "spec": {
            "capacity": {"storage": amount},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "storageClassName": klass,
            "hostPath": {"path": "/tmp/none"},
            **spec,
        },
    }


def _only_on(node: str) -> JSON:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def _using(name: str, claim: str, **spec: Any) -> JSON:
    """A pod that runs on the node or nowhere."""
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    chosen = {"kubernetes.io/hostname": "{node}"}
    return pod(name, volumes=[volume], nodeSelector=chosen, **spec)


def _waits(name: str) -> list[Step]:
    """The scheduler's condition on a pod that waits."""
    path = f"{PODS}/{name}"
    return [
        once(f"{name} was looked at", path, "/status/conditions/0/status", "False", ready=True),
        get(f"{name} waits", path),
    ]


def _is_bound(name: str, volume: str) -> list[Step]:
    """A claim and its volume, when they belong together."""
    return [
        once(f"{name} is bound", f"{_CLAIMS}/{name}", _PHASE, "Bound"),
        once(f"volume of {name} is bound", f"{_VOLUMES}/{volume}-{{node}}", _PHASE, "Bound"),
        get(f"claim {name}", f"{_CLAIMS}/{name}"),
    ]


_ROOM = {"cpu": "4", "memory": "4Gi", "pods": "10"}
_A, _B = "static-{node}", "later-{node}"

STEPS = [
    patch(
        "room on the node",
        "/api/v1/nodes/{node}/status",
        {"status": {"capacity": _ROOM, "allocatable": _ROOM}},
    ),
    patch(
        "the node's name as a label",
        "/api/v1/nodes/{node}",
        {"metadata": {"labels": {"kubernetes.io/hostname": "{node}"}}},
    ),
    post("volume of 5", _VOLUMES, _volume("five", _A, "5Gi")),
    post("volume of 2", _VOLUMES, _volume("two", _A, "2Gi")),
    post("labelled volume", _VOLUMES, _volume("labelled", _A, "1Gi", {"a": "b"})),
    post("block volume", _VOLUMES, _volume("block", _A, "1Gi", volumeMode="Block")),
    post(
        "reserved volume",
        _VOLUMES,
        _volume("reserved", _A, "1500Mi", claimRef={"namespace": "{ns}", "name": "expected"}),
    ),
    *(
        once(f"{name} is available", f"{_VOLUMES}/{name}-{{node}}", _PHASE, "Available")
        for name in ("five", "two", "labelled", "block", "reserved")
    ),
    post("claim", _CLAIMS, _claim("two", _A, "1200Mi")),
    *_is_bound("two", "two"),
    get("bound volume", _VOLUMES + "/two-{node}"),
    post("claim by label", _CLAIMS, _claim("labelled", _A, selector={"matchLabels": {"a": "b"}})),
    *_is_bound("labelled", "labelled"),
    post("claim for a device", _CLAIMS, _claim("block", _A, volumeMode="Block")),
    *_is_bound("block", "block"),
    post("claim that is expected", _CLAIMS, _claim("expected", _A)),
    *_is_bound("expected", "reserved"),
    get("reserved volume, bound", _VOLUMES + "/reserved-{node}"),
    post("claim by name", _CLAIMS, _claim("named", _A, volumeName="five-{node}")),
    *_is_bound("named", "five"),
    post("claim without a volume", _CLAIMS, _claim("none", _A, "9Gi")),
    post("pod of a claim without a volume", PODS, _using("p-none", "none")),
    *_waits("p-none"),
    post("pod of a missing claim", PODS, _using("p-missing", "missing")),
    *_waits("p-missing"),
    post("claim for later", _CLAIMS, _claim("later", _B, "9Gi")),  # no volume below is enough
    post("pod of a class that is not there", PODS, _using("p-later", "later")),
    *_waits("p-later"),
    post(
        "class",
        _CLASSES,
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": _B},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    ),
    post("claim that waits for its pod", _CLAIMS, _claim("first", _B)),
    post("pod without a volume to have", PODS, _using("p-first", "first")),
    *_waits("p-first"),
    post(
        "volume elsewhere",
        _VOLUMES,
        _volume("elsewhere", _B, "1Gi", nodeAffinity=_only_on("{other}")),
    ),
    post("volume here", _VOLUMES, _volume("here", _B, "2Gi", nodeAffinity=_only_on("{node}"))),
    once("first is bound", _CLAIMS + "/first", _PHASE, "Bound", ready=True),
    once("pod is bound", PODS + "/p-first", "/spec/nodeName", "{node}", ready=True),
    get("claim of the pod", _CLAIMS + "/first"),
    get("volume of the pod", _VOLUMES + "/here-{node}"),
    post("claim of a volume elsewhere", _CLAIMS, _claim("far", _B, volumeName="elsewhere-{node}")),
    *_is_bound("far", "elsewhere"),
    post("pod of a volume elsewhere", PODS, _using("p-far", "far")),
    *_waits("p-far"),
    delete("claim in use deleted", _CLAIMS + "/first"),
    get("claim in use stays", _CLAIMS + "/first"),
    post("pod of a claim that ends", PODS, _using("p-late", "first")),
    *_waits("p-late"),
    delete("volume in use deleted", _VOLUMES + "/here-{node}"),
    get("volume in use stays", _VOLUMES + "/here-{node}"),
    delete("unbound pod deleted", PODS + "/p-late"),
    delete("pod deleted", PODS + "/p-first", {"gracePeriodSeconds": 0}),
    get("claim is gone", _CLAIMS + "/first", until=404),
    get("volume is gone", _VOLUMES + "/here-{node}", until=404),
    delete("claim deleted", _CLAIMS + "/two"),
    once("volume is released", _VOLUMES + "/two-{node}", _PHASE, "Released"),
    get("released volume", _VOLUMES + "/two-{node}"),
    patch("volume given free", _VOLUMES + "/two-{node}", {"spec": {"claimRef": None}}, "merge"),
    once("volume is available again", _VOLUMES + "/two-{node}", _PHASE, "Available"),
    patch("volume lost", _VOLUMES + "/five-{node}", {"metadata": {"finalizers": None}}, "merge"),
    delete("volume taken away", _VOLUMES + "/five-{node}"),
    post(
        "volume of a pod alone",
        _VOLUMES,
        _volume("alone", _A, "1Gi", accessModes=["ReadWriteOncePod"]),
    ),
    once("alone is available", _VOLUMES + "/alone-{node}", _PHASE, "Available"),
    post(
        "claim of a pod alone",
        _CLAIMS,
        _claim("alone", _A, accessModes=["ReadWriteOncePod"], volumeName="alone-{node}"),
    ),
    *_is_bound("alone", "alone"),
    post("first pod alone", PODS, _using("p-alone", "alone")),
    once("first pod alone is bound", PODS + "/p-alone", "/spec/nodeName", "{node}", ready=True),
    post("second pod alone", PODS, _using("p-second", "alone")),
    *_waits("p-second"),
    post(
        "pod with a volume of its own",
        PODS,
        pod(
            "own",
            nodeSelector={"kubernetes.io/hostname": "{node}"},
            volumes=[
                {
                    "name": "v",
                    "ephemeral": {
                        "volumeClaimTemplate": {
                            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                            "spec": _claim("", "none-{node}")["spec"],
                        }
                    },
                }
            ],
        ),
    ),
    get("claim of the pod's own", _CLAIMS + "/own-v", until=200),
    *_waits("own"),
    delete("pod with its own volume deleted", PODS + "/own"),
    get("claim of its own is gone", _CLAIMS + "/own-v", until=404),
    *(
        delete(f"volume {name} deleted", f"{_VOLUMES}/{name}-{{node}}")
        for name in ("two", "labelled", "block", "reserved", "elsewhere", "alone")
    ),
    delete("class deleted", _CLASSES + "/" + _B),
]
