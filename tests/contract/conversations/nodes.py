"""The node's own object, its lease, and what a node may not do to them."""

from __future__ import annotations

from tests.contract.conversation import delete, get, patch, post, put

_NODE = "/api/v1/nodes/{node}"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_TIME = "2026-01-01T00:00:00.000000Z"
_LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {
        "name": "{node}",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "{node}", "uid": "{uid}"}],
    },
    "spec": {"holderIdentity": "{node}", "leaseDurationSeconds": 40, "renewTime": _TIME},
}
_CONDITION = {
    "type": "MemoryPressure",
    "status": "False",
    "reason": "R",
    "message": "m",
    "lastHeartbeatTime": "2026-01-01T00:00:00Z",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}

STEPS = [
    get("itself", _NODE, by="node", keep={"uid": "metadata.uid", "rv": "metadata.resourceVersion"}),
    get("another", "/api/v1/nodes/{other}", by="node"),
    get("none", "/api/v1/nodes/no-such-node", by="node"),
    get("all", "/api/v1/nodes", by="node"),
    get(
        "itself in a list",
        "/api/v1/nodes",
        by="node",
        query={"fieldSelector": "metadata.name={node}"},
    ),
    post("exists", "/api/v1/nodes", {"metadata": {"name": "{node}"}}, by="node"),
    post("create another", "/api/v1/nodes", {"metadata": {"name": "elsewhere"}}, by="node"),
    post("create without a name", "/api/v1/nodes", {"metadata": {}}, by="node"),
    patch(
        "status",
        _NODE + "/status",
        {
            "status": {
                "capacity": {"cpu": "2", "memory": "1024Mi", "pods": "110"},
                "allocatable": {"cpu": "2000m", "memory": "1Gi", "pods": "110"},
                "addresses": [
                    {"type": "Hostname", "address": "h"},
                    {"type": "InternalIP", "address": "192.0.2.1"},
                ],
                "conditions": [_CONDITION],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "nodeInfo": {
                    "machineID": "",
                    "kubeletVersion": "v1.36.0",
                    "operatingSystem": "linux",
                    "architecture": "amd64",
                },
                "images": [{"names": ["a:1"], "sizeBytes": 0}],
                "runtimeHandlers": [
                    {
                        "name": "",
                        "features": {"recursiveReadOnlyMounts": False, "userNamespaces": True},
                    }
                ],
                "features": {"supplementalGroupsPolicy": True},
                "volumesInUse": [],
                "volumesAttached": None,
            }
        },
        by="node",
    ),
    patch(
        "status again",
        _NODE + "/status",
        {
            "status": {
                "conditions": [_CONDITION],
                "$setElementOrder/conditions": [{"type": "MemoryPressure"}, {"type": "Ready"}],
            }
        },
        by="node",
    ),
    patch(
        "addresses replaced",
        _NODE + "/status",
        {
            "status": {
                "addresses": [{"$patch": "replace"}, {"type": "InternalIP", "address": "192.0.2.2"}]
            }
        },
        by="node",
    ),
    patch("images replaced", _NODE + "/status", {"status": {"images": []}}, by="node"),
    patch("another's status", "/api/v1/nodes/{other}/status", {"status": {}}, by="node"),
    patch(
        "stale",
        _NODE + "/status",
        {"metadata": {"resourceVersion": "{rv}"}, "status": {"phase": "x"}},
        by="node",
    ),
    patch(
        "allowed label",
        _NODE,
        {"metadata": {"labels": {"kubernetes.io/os": "linux", "example.test/own": "1"}}},
        by="node",
    ),
    patch(
        "protected label",
        _NODE,
        {
            "metadata": {
                "labels": {"node-restriction.kubernetes.io/a": "1", "node-role.kubernetes.io/b": ""}
            }
        },
        by="node",
    ),
    patch(
        "label by status",
        _NODE + "/status",
        {"metadata": {"labels": {"example.test/status": "1"}}},
        by="node",
    ),
    patch(
        "annotation",
        _NODE,
        {"metadata": {"annotations": {"volumes.kubernetes.io/x": "true"}}},
        by="node",
    ),
    patch(
        "taint by the node",
        _NODE,
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        by="node",
    ),
    patch("unschedulable by the node", _NODE, {"spec": {"unschedulable": True}}, by="node"),
    patch(
        "config source", _NODE, {"spec": {"configSource": {"configMap": {"name": "x"}}}}, by="node"
    ),
    patch(
        "owner by the node",
        _NODE,
        {
            "metadata": {
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "1"}]
            }
        },
        by="node",
    ),
    patch("taint", _NODE, {"spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}),
    patch("bad taint", _NODE, {"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}}),
    patch(
        "same taint twice",
        _NODE,
        {
            "spec": {
                "taints": [
                    {"key": "b", "effect": "NoExecute"},
                    {"key": "b", "effect": "NoExecute", "value": "2"},
                ]
            }
        },
        "merge",
    ),
    patch("no taint", _NODE, {"spec": {"taints": None}}),
    patch(
        "capacity that is none",
        _NODE + "/status",
        {"status": {"capacity": {"cpu": "-1"}}},
        by="node",
    ),
    patch("provider", _NODE, {"spec": {"providerID": "a://b"}}, by="node"),
    patch("another provider", _NODE, {"spec": {"providerID": "a://c"}}, by="node"),
    delete("deleted by itself", _NODE, by="node"),
    get("lease before", _LEASES + "/{node}", by="node"),
    post("lease", _LEASES, _LEASE, by="node", keep={"lease_rv": "metadata.resourceVersion"}),
    post("lease exists", _LEASES, _LEASE, by="node"),
    post("another's lease", _LEASES, {"metadata": {"name": "{other}"}}, by="node"),
    get("another's lease read", _LEASES + "/{other}", by="node"),
    get("leases", _LEASES, by="node"),
    put(
        "lease renewed",
        _LEASES + "/{node}",
        {**_LEASE, "metadata": {"name": "{node}", "resourceVersion": "{lease_rv}"}},
        by="node",
    ),
    put(
        "lease stale",
        _LEASES + "/{node}",
        {**_LEASE, "metadata": {"name": "{node}", "resourceVersion": "{lease_rv}"}},
        by="node",
    ),
    put(
        "lease without version",
        _LEASES + "/{node}",
        {**_LEASE, "metadata": {"name": "{node}"}},
        by="node",
    ),
    patch(
        "lease by patch",
        _LEASES + "/{node}",
        {"spec": {"renewTime": "2026-01-01T00:00:01Z"}},
        "merge",
        by="node",
    ),
    patch(
        "lease's bad time", _LEASES + "/{node}", {"spec": {"renewTime": "now"}}, "merge", by="node"
    ),
    patch(
        "lease's bad duration",
        _LEASES + "/{node}",
        {"spec": {"leaseDurationSeconds": 0}},
        "merge",
        by="node",
    ),
    delete("lease deleted", _LEASES + "/{node}", by="node"),
]
