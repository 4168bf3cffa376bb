"""Access of a node to claims, volumes and drivers: Node authorizer and NodeRestriction."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import Step, delete, get, once, patch, post, put
from tests.contract.conversations.objects import JSON, PODS, here

_NS = "/api/v1/namespaces/{ns}"
_CLAIMS = _NS + "/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"
_GROUP = "/apis/storage.k8s.io/v1"
_ATTACHMENTS, _CSI_NODES, _DRIVERS = (
    f"{_GROUP}/{plural}" for plural in ("volumeattachments", "csinodes", "csidrivers")
)
_SECRETS = _NS + "/secrets"


def _claim(name: str) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "none-{node}",
        },
    }


def _volume(name: str, claim: str) -> JSON:
    secrets = {
        f"{call}SecretRef": {"namespace": "{ns}", "name": f"{call.lower()}"}
        for call in (
            "controllerPublish",
            "nodeStage",
            "nodePublish",
            "nodeExpand",
            "controllerExpand",
        )
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Mi"},  # less than requested: nobody binds it
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none-{node}",
            "claimRef": {"namespace": "{ns}", "name": claim},
            "csi": {"driver": "example.test", "volumeHandle": "h", **secrets},
        },
    }


def _csi_node(name: str) -> JSON:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": []},
    }


def _attachment(name: str, node: str) -> JSON:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {
            "attacher": "example.test",
            "nodeName": node,
            "source": {"persistentVolumeName": "used-{node}"},
        },
    }


_USED, _UNUSED = _CLAIMS + "/used", _CLAIMS + "/unused"
_USED_STATUS = _USED + "/status"
_VOLUME, _OTHERS = _VOLUMES + "/used-{node}", _VOLUMES + "/unused-{node}"
_CAPACITY = {"status": {"capacity": {"storage": "2Gi"}}}


def _volumes(*names: str) -> list[JSON]:
    return [{"name": n, "persistentVolumeClaim": {"claimName": n}} for n in names]


def _by_node(name: str, path: str, **more: Any) -> Step:
    return get(name, path, by="node", **more)


_CALLS = ("nodestage", "nodepublish", "nodeexpand", "controllerpublish", "controllerexpand")

STEPS = [
    post("claim", _CLAIMS, _claim("used")),
    post("volume", _VOLUMES, _volume("used-{node}", "used")),
    post("other claim", _CLAIMS, _claim("unused")),
    post("other volume", _VOLUMES, _volume("unused-{node}", "unused")),
    *(
        post(f"secret {call}", _SECRETS, {"metadata": {"name": call}, "stringData": {"a": "b"}})
        for call in _CALLS
    ),
    _by_node("claim before", _USED),
    _by_node("volume before", _VOLUME),
    _by_node("secret before", _SECRETS + "/nodestage"),
    post("pod", PODS, here("p", volumes=_volumes("used"))),
    once("available", _VOLUME, "/status/phase", "Available"),
    _by_node("claim after", _USED, until=200),
    _by_node("volume after", _VOLUME, until=200),
    _by_node("unused claim", _UNUSED),
    _by_node("unused volume", _OTHERS),
    _by_node("claims", _CLAIMS),
    _by_node("claim in a list", _CLAIMS, query={"fieldSelector": "metadata.name=used"}),
    _by_node("volumes", _VOLUMES),
    _by_node("volume in a list", _VOLUMES, query={"fieldSelector": "metadata.name=used-{node}"}),
    get("claim by the other node", _USED, by="other"),
    get("volume by the other node", _VOLUME, by="other"),
    *(_by_node(f"secret after {call}", f"{_SECRETS}/{call}") for call in _CALLS),
    patch("capacity by the node", _USED_STATUS, _CAPACITY, "merge", by="node"),
    patch(
        "conditions by the node",
        _USED_STATUS,
        {"status": {"conditions": [{"type": "FileSystemResizePending", "status": "True"}]}},
        "merge",
        by="node",
    ),
    patch(
        "resize by the node",
        _USED_STATUS,
        {
            "status": {
                "allocatedResources": {"storage": "2Gi"},
                "allocatedResourceStatuses": {"storage": "NodeResizeInProgress"},
            }
        },
        "merge",
        by="node",
    ),
    patch("phase by the node", _USED_STATUS, {"status": {"phase": "Lost"}}, "merge", by="node"),
    patch(
        "labels by the node", _USED_STATUS, {"metadata": {"labels": {"a": "b"}}}, "merge", by="node"
    ),
    patch("unused capacity by the node", _UNUSED + "/status", _CAPACITY, "merge", by="node"),
    patch("capacity by the other", _USED_STATUS, _CAPACITY, "merge", by="other"),
    patch("spec by the node", _USED, {"metadata": {"labels": {"a": "b"}}}, "merge", by="node"),
    delete("claim deleted by the node", _USED, by="node"),
    post("claim made by the node", _CLAIMS, _claim("mine"), by="node"),
    patch("volume by the node", _VOLUME, {"metadata": {"labels": {"a": "b"}}}, "merge", by="node"),
    _by_node("claim's status read", _USED_STATUS),
    post("attachment", _ATTACHMENTS, _attachment("a-{node}", "{node}")),
    post("other attachment", _ATTACHMENTS, _attachment("b-{node}", "{other}")),
    _by_node("attachment read", _ATTACHMENTS + "/a-{node}", until=200),
    _by_node("other's attachment", _ATTACHMENTS + "/b-{node}"),
    _by_node("attachment that is none", _ATTACHMENTS + "/none-{node}"),
    _by_node("attachments", _ATTACHMENTS),
    patch(
        "attached by the node",
        _ATTACHMENTS + "/a-{node}/status",
        {"status": {"attached": True}},
        "merge",
        by="node",
    ),
    delete("attachment deleted by the node", _ATTACHMENTS + "/a-{node}", by="node"),
    _by_node("csi node that is not there", _CSI_NODES + "/{node}"),
    post("own csi node", _CSI_NODES, _csi_node("{node}"), by="node"),
    post("other's csi node", _CSI_NODES, _csi_node("{other}"), by="node"),
    _by_node("csi node read", _CSI_NODES + "/{node}"),
    _by_node("other's csi node read", _CSI_NODES + "/{other}"),
    _by_node("csi nodes", _CSI_NODES),
    patch(
        "driver added",
        _CSI_NODES + "/{node}",
        {"spec": {"drivers": [{"name": "d", "nodeID": "n"}]}},
        by="node",
    ),
    patch(
        "driver added by the other", _CSI_NODES + "/{node}", {"spec": {"drivers": None}}, by="other"
    ),
    delete("csi node deleted by the other", _CSI_NODES + "/{node}", by="other"),
    delete("csi node deleted", _CSI_NODES + "/{node}", by="node"),
    _by_node("drivers", _DRIVERS),
    post("driver by the node", _DRIVERS, {"metadata": {"name": "d"}, "spec": {}}, by="node"),
    _by_node("classes", _GROUP + "/storageclasses"),
    _by_node("capacities", _GROUP + "/namespaces/{ns}/csistoragecapacities"),
    put("volume put by the node", _VOLUME, _volume("used-{node}", "used"), by="node"),
    delete("attachment deleted", _ATTACHMENTS + "/a-{node}"),
    delete("other attachment deleted", _ATTACHMENTS + "/b-{node}"),
    delete("claim deleted", _USED),
    patch("claim let go", _USED, {"metadata": {"finalizers": None}}, "merge"),
    patch("volume let go", _VOLUME, {"metadata": {"finalizers": None}}, "merge"),
    patch("other volume let go", _OTHERS, {"metadata": {"finalizers": None}}, "merge"),
    delete("volume deleted", _VOLUME),
    delete("other volume deleted", _OTHERS),
]
