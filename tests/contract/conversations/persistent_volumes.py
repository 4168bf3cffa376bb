"""PersistentVolumes: defaults, what is refused, what may change, how one ends."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import delete, get, patch, post
from tests.contract.conversations.objects import JSON

_VOLUMES = "/api/v1/persistentvolumes"
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def _affinity(**more: Any) -> JSON:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["{node}"]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [{**expression, **more}]}]}}


def _volume(name: str, *, metadata: JSON | None = None, **spec: Any) -> JSON:
    """A directory of a class that no claim has."""
    supplied: JSON = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "none-{node}",
        "hostPath": {"path": "/tmp/none"},
        **spec,
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {key: value for key, value in supplied.items() if value is not None},
    }


def _csi(name: str, **source: Any) -> JSON:
    supplied = {"driver": "example.test", "volumeHandle": "h", **source}
    return _volume(name, hostPath=None, csi={k: v for k, v in supplied.items() if v is not None})


_LOCAL = {"path": "/tmp/none"}

_REFUSED: dict[str, JSON] = {
    "no capacity": _volume("x", capacity=None),
    "other capacity": _volume("x", capacity={"cpu": "1"}),
    "two capacities": _volume("x", capacity={"storage": "1Gi", "cpu": "1"}),
    "no room": _volume("x", capacity={"storage": "0"}),
    "less than no room": _volume("x", capacity={"storage": "-1"}),
    "no modes": _volume("x", accessModes=None),
    "unknown mode": _volume("x", accessModes=["Sometimes"]),
    "once per pod and more": _volume("x", accessModes=["ReadWriteOncePod", "ReadOnlyMany"]),
    "no source": _volume("x", hostPath=None),
    "two sources": _volume("x", nfs={"server": "a", "path": "/b"}),
    "path with a way up": _volume("x", hostPath={"path": "/a/../b"}),
    "no path": _volume("x", hostPath={"path": ""}),
    "bad type of path": _volume("x", hostPath={"path": "/a", "type": "Pipe"}),
    "root recycled": _volume("x", hostPath={"path": "/"}, persistentVolumeReclaimPolicy="Recycle"),
    "bad policy": _volume("x", persistentVolumeReclaimPolicy="Keep"),
    "bad mode": _volume("x", volumeMode="Stream"),
    "bad class": _volume("x", storageClassName="Not_A_Class"),
    "local without a node": _volume("x", hostPath=None, local=_LOCAL),
    "local without a path": _volume(
        "x", hostPath=None, local={"path": ""}, nodeAffinity=_affinity()
    ),
    "local with a way up": _volume(
        "x", hostPath=None, local={"path": "/a/.."}, nodeAffinity=_affinity()
    ),
    "affinity without terms": _volume("x", nodeAffinity={"required": {"nodeSelectorTerms": []}}),
    "affinity without need": _volume("x", nodeAffinity={}),
    "affinity of an odd operator": _volume("x", nodeAffinity=_affinity(operator="Near")),
    "affinity without values": _volume("x", nodeAffinity=_affinity(values=[])),
    "affinity by a bad key": _volume("x", nodeAffinity=_affinity(key="a b")),
    "nfs without a server": _volume("x", hostPath=None, nfs={"server": "", "path": "/b"}),
    "nfs without a path": _volume("x", hostPath=None, nfs={"server": "a", "path": ""}),
    "nfs with a relative path": _volume("x", hostPath=None, nfs={"server": "a", "path": "b"}),
    "csi without a driver": _csi("x", driver=""),
    "csi of a bad driver": _csi("x", driver="not_a_driver!"),
    "csi without a handle": _csi("x", volumeHandle=""),
    "csi with half a secret": _csi("eight-{node}", nodeStageSecretRef={"name": "a"}),
    "csi with a nameless secret": _csi("x", nodePublishSecretRef={"namespace": "a"}),
    "iscsi without anything": _volume(
        "x", hostPath=None, iscsi={"targetPortal": "", "iqn": "", "lun": 0}
    ),
    "iscsi of a bad name": _volume(
        "x", hostPath=None, iscsi={"targetPortal": "a:1", "iqn": "nothing", "lun": 300}
    ),
    "fc without anything": _volume("x", hostPath=None, fc={}),
    "fc with a large number": _volume("x", hostPath=None, fc={"targetWWNs": ["a"], "lun": 300}),
    "mount option of its own": _volume(
        "x", metadata={"annotations": {"volume.beta.kubernetes.io/mount-options": "ro"}}
    ),
    "bad name": _volume("Not_A_Name"),
    "bad attributes class": _volume("x", volumeAttributesClassName="a"),
}
_ONE, _TWO, _THREE = (f"{_VOLUMES}/{name}-{{node}}" for name in ("one", "two", "three"))

STEPS = [
    post("volume", _VOLUMES, _volume("one-{node}")),
    patch("available", _ONE + "/status", {"status": {"phase": "Available"}}, "merge", until=200),
    get("volume read", _ONE),
    get("as a table", _ONE, accept=_TABLE),
    post(
        "local volume",
        _VOLUMES,
        _volume(
            "two-{node}",
            hostPath=None,
            local=_LOCAL,
            nodeAffinity=_affinity(),
            capacity={"storage": "2048Mi"},
            persistentVolumeReclaimPolicy="Delete",
            mountOptions=["ro"],
            claimRef={"namespace": "{ns}", "name": "later"},
        ),
    ),
    patch("reserved", _TWO + "/status", {"status": {"phase": "Available"}}, "merge", until=200),
    get("reserved, as a table", _TWO, accept=_TABLE),
    post("driver's volume", _VOLUMES, _csi("three-{node}", volumeAttributes={"a": "b"})),
    patch("also available", _THREE + "/status", {"status": {"phase": "Available"}}, "merge"),
    post(
        "file system of a local volume",
        _VOLUMES,
        _volume(
            "four-{node}",
            hostPath=None,
            local={**_LOCAL, "fsType": "ext4"},
            nodeAffinity=_affinity(),
            volumeMode="Block",
            accessModes=["ReadWriteOncePod"],
        ),
    ),
    post("nfs", _VOLUMES, _volume("five-{node}", hostPath=None, nfs={"server": "a", "path": "/b"})),
    post(
        "iscsi",
        _VOLUMES,
        _volume(
            "six-{node}",
            hostPath=None,
            iscsi={"targetPortal": "a:1", "iqn": "iqn.2001-04.com.example:d", "lun": 0},
        ),
    ),
    post(
        "fc", _VOLUMES, _volume("seven-{node}", hostPath=None, fc={"targetWWNs": ["a"], "lun": 1})
    ),
    *(post(f"refused, {name}", _VOLUMES, body) for name, body in _REFUSED.items()),
    patch("labels", _ONE, {"metadata": {"labels": {"a": "b"}}}, "merge"),
    patch("larger", _ONE, {"spec": {"capacity": {"storage": "2Gi"}}}, "merge"),
    patch("another path", _ONE, {"spec": {"hostPath": {"path": "/tmp/other"}}}, "merge"),
    patch(
        "another source",
        _ONE,
        {"spec": {"hostPath": None, "nfs": {"server": "a", "path": "/b"}}},
        "merge",
    ),
    patch("another mode", _ONE, {"spec": {"volumeMode": "Block"}}, "merge"),
    patch("another policy", _ONE, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}, "merge"),
    patch("a node", _ONE, {"spec": {"nodeAffinity": _affinity()}}, "merge"),
    patch("another node", _ONE, {"spec": {"nodeAffinity": _affinity(values=["b"])}}, "merge"),
    patch("no node", _ONE, {"spec": {"nodeAffinity": None}}, "merge"),
    patch(
        "other secret",
        _THREE,
        {"spec": {"csi": {"nodeStageSecretRef": {"name": "a", "namespace": "b"}}}},
        "merge",
    ),
    patch(
        "secret to grow",
        _THREE,
        {"spec": {"csi": {"controllerExpandSecretRef": {"name": "a", "namespace": "b"}}}},
        "merge",
    ),
    patch(
        "spec by the status", _ONE + "/status", {"spec": {"capacity": {"storage": "9Gi"}}}, "merge"
    ),
    patch("status by the spec", _ONE, {"status": {"phase": "Failed"}}, "merge"),
    patch(
        "failed",
        _ONE + "/status",
        {"status": {"phase": "Available", "reason": "r", "message": "m"}},
        "merge",
    ),
    *(
        delete(f"deleted {name}", f"{_VOLUMES}/{name}-{{node}}")
        for name in ("one", "two", "three", "four", "five", "six", "seven", "eight")
    ),
    get("gone", _ONE, until=404),
]
