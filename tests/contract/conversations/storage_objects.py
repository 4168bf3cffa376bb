"""StorageClasses, CSIDrivers, CSINodes, VolumeAttachments, CSIStorageCapacities."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import delete, get, patch, post, put
from tests.contract.conversations.objects import JSON

_GROUP = "/apis/storage.k8s.io/v1"
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_CLASSES, _DRIVERS, _NODES, _ATTACHMENTS = (
    f"{_GROUP}/{plural}"
    for plural in ("storageclasses", "csidrivers", "csinodes", "volumeattachments")
)
_CAPACITIES = _GROUP + "/namespaces/{ns}/csistoragecapacities"


def _of(kind: str, name: str, **more: Any) -> JSON:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        **{key: value for key, value in more.items() if value is not None},
    }


def _class(name: str, **more: Any) -> JSON:
    return _of("StorageClass", name, **{"provisioner": "example.test/none", **more})


def _driver(name: str, **spec: Any) -> JSON:
    return _of("CSIDriver", name, spec=spec)


def _node(name: str, *drivers: JSON) -> JSON:
    return _of("CSINode", name, spec={"drivers": list(drivers)})


def _attachment(name: str, **spec: Any) -> JSON:
    supplied = {
        "attacher": "example.test",
        "nodeName": "{node}",
        "source": {"persistentVolumeName": "none-{node}"},
        **spec,
    }
    return _of("VolumeAttachment", name, spec=supplied)


_TOPOLOGY = {"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}
_INLINE = {
    "inlineVolumeSpec": {
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "example.test", "volumeHandle": "h"},
    }
}

_CLASSES_REFUSED: dict[str, JSON] = {
    "no provisioner": _class("x", provisioner=None),
    "bad provisioner": _class("x", provisioner="not a provisioner"),
    "bad policy": _class("x", reclaimPolicy="Keep"),
    "recycled": _class("x", reclaimPolicy="Recycle"),
    "bad binding": _class("x", volumeBindingMode="Soon"),
    "empty parameter": _class("x", parameters={"": "a"}),
    "topology without values": _class(
        "x", allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": []}]}]
    ),
    "topology twice": _class("x", allowedTopologies=[_TOPOLOGY, _TOPOLOGY]),
    "bad name": _class("Not_A_Name"),
}
_DRIVERS_REFUSED: dict[str, JSON] = {
    "bad group policy": _driver("x", fsGroupPolicy="Never"),
    "bad lifecycle": _driver("x", volumeLifecycleModes=["Sometimes"]),
    "same audience twice": _driver("x", tokenRequests=[{"audience": "a"}, {"audience": "a"}]),
    "short token": _driver("x", tokenRequests=[{"audience": "a", "expirationSeconds": 10}]),
    "fast update": _driver("x", nodeAllocatableUpdatePeriodSeconds=1),
    "bad name": _driver("not_a_driver"),
}
_NODES_REFUSED: dict[str, JSON] = {
    "no driver's name": _node("x", {"name": "", "nodeID": "a"}),
    "no node's id": _node("x", {"name": "a", "nodeID": ""}),
    "long id": _node("x", {"name": "a", "nodeID": "i" * 300}),
    "same driver twice": _node("x", {"name": "a", "nodeID": "b"}, {"name": "a", "nodeID": "c"}),
    "empty topology key": _node("x", {"name": "a", "nodeID": "b", "topologyKeys": [""]}),
    "same topology key": _node("x", {"name": "a", "nodeID": "b", "topologyKeys": ["c", "c"]}),
    "negative count": _node("x", {"name": "a", "nodeID": "b", "allocatable": {"count": -1}}),
}
_ATTACHMENTS_REFUSED: dict[str, JSON] = {
    "no attacher": _attachment("x", attacher=""),
    "no node": _attachment("x", nodeName=""),
    "bad node": _attachment("x", nodeName="Not_A_Node"),
    "no source": _attachment("x", source={}),
    "empty source": _attachment("x", source={"persistentVolumeName": ""}),
    "two sources": _attachment("x", source={"persistentVolumeName": "a", **_INLINE}),
    "other inline": _attachment(
        "x",
        source={
            "inlineVolumeSpec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/a"},
            }
        },
    ),
    "bad attacher": _attachment("x", attacher="not_an_attacher!"),
}
_A_CLASS, _A_DRIVER, _A_NODE = (
    _CLASSES + "/a-{node}",
    _DRIVERS + "/a-{node}",
    _NODES + "/a-{node}",
)
_AN_ATTACHMENT = _ATTACHMENTS + "/a-{node}"

STEPS = [
    post("class", _CLASSES, _class("a-{node}")),
    get("class as a table", _A_CLASS, accept=_TABLE),
    post(
        "class with everything",
        _CLASSES,
        _class(
            "b-{node}",
            reclaimPolicy="Retain",
            volumeBindingMode="WaitForFirstConsumer",
            allowVolumeExpansion=True,
            mountOptions=["a"],
            parameters={"p": "q"},
            allowedTopologies=[_TOPOLOGY],
        ),
    ),
    get("second class as a table", _CLASSES + "/b-{node}", accept=_TABLE),
    post(
        "default class",
        _CLASSES,
        {
            **_class("c-{node}"),
            "metadata": {
                "name": "c-{node}",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
        },
    ),
    get("default class as a table", _CLASSES + "/c-{node}", accept=_TABLE),
    delete("default class deleted", _CLASSES + "/c-{node}"),
    *(post(f"class refused, {name}", _CLASSES, body) for name, body in _CLASSES_REFUSED.items()),
    patch("class grows", _A_CLASS, {"allowVolumeExpansion": True}, "merge"),
    patch("class's parameters", _A_CLASS, {"parameters": {"a": "b"}}, "merge"),
    patch("class's provisioner", _A_CLASS, {"provisioner": "other.test/a"}, "merge"),
    patch("class's policy", _A_CLASS, {"reclaimPolicy": "Retain"}, "merge"),
    patch("class's binding", _A_CLASS, {"volumeBindingMode": "WaitForFirstConsumer"}, "merge"),
    delete("class deleted", _A_CLASS),
    delete("second class deleted", _CLASSES + "/b-{node}"),
    post("driver", _DRIVERS, _driver("a-{node}")),
    get("driver as a table", _A_DRIVER, accept=_TABLE),
    post(
        "driver with everything",
        _DRIVERS,
        _driver(
            "b-{node}",
            attachRequired=False,
            podInfoOnMount=True,
            storageCapacity=True,
            fsGroupPolicy="File",
            volumeLifecycleModes=["Persistent", "Ephemeral"],
            requiresRepublish=True,
            seLinuxMount=True,
            nodeAllocatableUpdatePeriodSeconds=30,
            tokenRequests=[{"audience": "a", "expirationSeconds": 600}, {"audience": "b"}],
        ),
    ),
    get("second driver as a table", _DRIVERS + "/b-{node}", accept=_TABLE),
    *(post(f"driver refused, {name}", _DRIVERS, body) for name, body in _DRIVERS_REFUSED.items()),
    patch("driver's attach", _A_DRIVER, {"spec": {"attachRequired": False}}, "merge"),
    patch("driver's info", _A_DRIVER, {"spec": {"podInfoOnMount": True}}, "merge"),
    patch("driver's policy", _A_DRIVER, {"spec": {"fsGroupPolicy": "None"}}, "merge"),
    patch(
        "driver's lifecycle", _A_DRIVER, {"spec": {"volumeLifecycleModes": ["Ephemeral"]}}, "merge"
    ),
    patch("driver's capacity", _A_DRIVER, {"spec": {"storageCapacity": True}}, "merge"),
    delete("driver deleted", _A_DRIVER),
    delete("second driver deleted", _DRIVERS + "/b-{node}"),
    post(
        "csi node",
        _NODES,
        _node(
            "a-{node}",
            {"name": "d", "nodeID": "n", "topologyKeys": ["zone"], "allocatable": {"count": 3}},
        ),
    ),
    get("csi node as a table", _A_NODE, accept=_TABLE),
    post("csi node without drivers", _NODES, _node("b-{node}")),
    post("csi node without a spec", _NODES, _of("CSINode", "c-{node}")),
    *(post(f"csi node refused, {name}", _NODES, body) for name, body in _NODES_REFUSED.items()),
    patch("driver added", _A_NODE, {"spec": {"drivers": [{"name": "e", "nodeID": "m"}]}}),
    patch("driver changed", _A_NODE, {"spec": {"drivers": [{"name": "d", "nodeID": "other"}]}}),
    patch(
        "driver's count",
        _A_NODE,
        {"spec": {"drivers": [{"name": "d", "allocatable": {"count": 9}}]}},
    ),
    patch(
        "driver's keys", _A_NODE, {"spec": {"drivers": [{"name": "d", "topologyKeys": ["rack"]}]}}
    ),
    put("put without a version", _A_NODE, _node("a-{node}")),
    patch("no drivers", _A_NODE, {"spec": {"drivers": None}}, "merge"),
    *(delete(f"csi node deleted {name}", f"{_NODES}/{name}-{{node}}") for name in "abc"),
    post("attachment", _ATTACHMENTS, _attachment("a-{node}")),
    get("attachment as a table", _AN_ATTACHMENT, accept=_TABLE),
    post(
        "attachment with a status",
        _ATTACHMENTS,
        {**_attachment("b-{node}"), "status": {"attached": True}},
    ),
    post("inline attachment", _ATTACHMENTS, _attachment("c-{node}", source=_INLINE)),
    *(
        post(f"attachment refused, {name}", _ATTACHMENTS, body)
        for name, body in _ATTACHMENTS_REFUSED.items()
    ),
    patch("attachment's node", _AN_ATTACHMENT, {"spec": {"nodeName": "{other}"}}, "merge"),
    patch(
        "attached",
        _AN_ATTACHMENT + "/status",
        {"status": {"attached": True, "attachmentMetadata": {"a": "b"}}},
        "merge",
    ),
    patch(
        "attach error",
        _AN_ATTACHMENT + "/status",
        {
            "status": {
                "attachError": {"message": "m", "time": "2026-01-01T00:00:00Z", "errorCode": 8}
            }
        },
        "merge",
    ),
    patch("detached by the spec", _AN_ATTACHMENT, {"status": {"attached": False}}, "merge"),
    get("attachment read", _AN_ATTACHMENT, accept=_TABLE),
    *(delete(f"attachment deleted {name}", f"{_ATTACHMENTS}/{name}-{{node}}") for name in "abc"),
    post(
        "capacity",
        _CAPACITIES,
        _of(
            "CSIStorageCapacity",
            "a",
            storageClassName="a",
            nodeTopology={"matchLabels": {"a": "b"}},
            capacity="1Gi",
            maximumVolumeSize="1Mi",
        ),
    ),
    get("capacity as a table", _CAPACITIES + "/a", accept=_TABLE),
    post(
        "capacity without a class", _CAPACITIES, _of("CSIStorageCapacity", "b", storageClassName="")
    ),
    post(
        "capacity of less than nothing",
        _CAPACITIES,
        _of("CSIStorageCapacity", "b", storageClassName="a", capacity="-1"),
    ),
    post(
        "capacity of a bad topology",
        _CAPACITIES,
        _of(
            "CSIStorageCapacity",
            "b",
            storageClassName="a",
            nodeTopology={"matchLabels": {"a b": "c"}},
        ),
    ),
    patch("capacity's class", _CAPACITIES + "/a", {"storageClassName": "b"}, "merge"),
    patch("capacity's amount", _CAPACITIES + "/a", {"capacity": "3Gi"}, "merge"),
    patch("capacity's topology", _CAPACITIES + "/a", {"nodeTopology": None}, "merge"),
]
