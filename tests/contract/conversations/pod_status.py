"""The status that an agent reports: patches by the node, nulls, preconditions, what it may not."""

from __future__ import annotations

from tests.contract.conversation import get, patch, post, put
from tests.contract.conversations.objects import PODS, condition, container, here, pod, running

_STATUS = PODS + "/p/status"
_TIME = "2026-01-01T00:00:00Z"
_FIRST = {
    "metadata": {"uid": "{uid}"},
    "status": {
        "observedGeneration": 1,
        "phase": "Running",
        "startTime": _TIME,
        "hostIP": "192.0.2.1",
        "hostIPs": [{"ip": "192.0.2.1"}],
        "podIP": "192.0.2.9",
        "podIPs": [{"ip": "192.0.2.9"}],
        "conditions": [
            condition("Ready", "False", reason="ContainersNotReady", lastTransitionTime=_TIME),
            condition("Initialized", "True", lastTransitionTime=_TIME, observedGeneration=1),
            condition("PodScheduled", "True", lastTransitionTime=_TIME),
        ],
        "containerStatuses": [running(ready=False)],
    },
}

STEPS = [
    post(
        "create",
        PODS,
        here("p", restartPolicy="Never"),
        keep={"uid": "metadata.uid", "rv": "metadata.resourceVersion"},
    ),
    post("create another's", PODS, pod("far", nodeName="{other}")),
    patch("first status", _STATUS, _FIRST, by="node"),
    patch("the same again", _STATUS, _FIRST, by="node", keep={"now": "metadata.resourceVersion"}),
    patch(
        "one condition more",
        _STATUS,
        {
            "metadata": {"uid": "{uid}"},
            "status": {
                "$setElementOrder/conditions": [
                    {"type": "Ready"},
                    {"type": "Initialized"},
                    {"type": "PodScheduled"},
                ],
                "conditions": [condition("Ready", "True", reason=None)],
            },
        },
        by="node",
    ),
    patch(
        "a container's end",
        _STATUS,
        {
            "metadata": {"uid": "{uid}"},
            "status": {
                "containerStatuses": [
                    {
                        **running(ready=False),
                        "started": False,
                        "lastState": {},
                        "state": {
                            "terminated": {
                                "exitCode": 0,
                                "reason": "Completed",
                                "startedAt": _TIME,
                                "finishedAt": _TIME,
                                "containerID": "containerd://0",
                            }
                        },
                    }
                ]
            },
        },
        by="node",
    ),
    patch(
        "times that are null",
        _STATUS,
        {
            "metadata": {"uid": "{uid}"},
            "status": {
                "containerStatuses": [
                    {
                        **running(),
                        "state": {
                            "terminated": {"exitCode": 137, "startedAt": None, "finishedAt": None}
                        },
                    }
                ]
            },
        },
        by="node",
    ),
    patch(
        "zeros and empties",
        _STATUS,
        {
            "metadata": {"uid": "{uid}"},
            "status": {
                "message": "",
                "reason": "",
                "podIPs": [],
                "initContainerStatuses": [],
                "resourceClaimStatuses": None,
                "resize": "",
            },
        },
        by="node",
    ),
    patch(
        "a status of resources",
        _STATUS,
        {
            "metadata": {"uid": "{uid}"},
            "status": {
                "containerStatuses": [
                    {
                        **running(),
                        "allocatedResources": {"cpu": "0.5", "memory": "1024Mi"},
                        "resources": {"limits": {"cpu": "1000m"}},
                        "user": {"linux": {"uid": 0, "gid": 0, "supplementalGroups": [0]}},
                        "volumeMounts": [
                            {
                                "name": "v",
                                "mountPath": "/v",
                                "readOnly": True,
                                "recursiveReadOnly": "Disabled",
                            }
                        ],
                    }
                ]
            },
        },
        by="node",
    ),
    patch(
        "another uid", _STATUS, {"metadata": {"uid": "0"}, "status": {"message": "x"}}, by="node"
    ),
    patch(
        "a stale version",
        _STATUS,
        {"metadata": {"resourceVersion": "{rv}"}, "status": {"message": "x"}},
        by="node",
    ),
    patch(
        "labels with the status",
        _STATUS,
        {"metadata": {"labels": {"a": "b"}}, "status": {"message": "x"}},
        by="node",
    ),
    patch(
        "annotations with the status",
        _STATUS,
        {"metadata": {"annotations": {"a": "b"}}, "status": {"message": "x"}},
        by="node",
    ),
    patch("spec with the status", _STATUS, {"spec": {"nodeName": "y"}}, by="node"),
    patch(
        "ip that is none",
        _STATUS,
        {"status": {"podIPs": [{"ip": "999.1.1.1"}], "podIP": "999.1.1.1"}},
        by="node",
    ),
    patch(
        "two addresses of a family",
        _STATUS,
        {"status": {"podIP": "192.0.2.1", "podIPs": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}]}},
        by="node",
    ),
    patch("phase that is none", _STATUS, {"status": {"phase": "Dancing"}}, by="node"),
    patch(
        "condition status that is none",
        _STATUS,
        {"status": {"conditions": [{"type": "Ready", "status": "Perhaps"}]}},
        by="node",
    ),
    patch(
        "running after the end", _STATUS, {"status": {"containerStatuses": [running()]}}, by="node"
    ),
    patch("nominated node", _STATUS, {"status": {"nominatedNodeName": "x"}}, by="node"),
    patch("qos class", _STATUS, {"status": {"qosClass": "Guaranteed"}}, by="node"),
    patch("qos class gone", _STATUS, {"status": {"qosClass": None}}, by="node"),
    patch(
        "to the end",
        _STATUS,
        {
            "status": {
                "phase": "Succeeded",
                "containerStatuses": [
                    {
                        **running(ready=False),
                        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
                    }
                ],
            }
        },
        by="node",
    ),
    patch("back from the end", _STATUS, {"status": {"phase": "Running"}}, by="node"),
    patch("of a pod that is not there", PODS + "/none/status", {"status": {}}, by="node"),
    patch("of another node's pod", PODS + "/far/status", {"status": {"message": "x"}}, by="node"),
    patch("by an account", _STATUS, {"status": {"message": "x"}}, by="account"),
    patch("main path by the node", PODS + "/p", {"metadata": {"labels": {"a": "b"}}}, by="node"),
    get("status is read", _STATUS, by="node"),
    get(
        "by its node",
        PODS + "/p",
        by="node",
        keep={"all": "status", "rv2": "metadata.resourceVersion"},
    ),
    get("by another node", PODS + "/p", by="other"),
    put(
        "replaced with a stale version",
        _STATUS,
        here("p", metadata={"resourceVersion": "{rv}"}),
        by="node",
    ),
    put(
        "replaced",
        _STATUS,
        {**here("p", metadata={"resourceVersion": "{rv2}"}), "status": {"phase": "Succeeded"}},
        by="node",
    ),
    post("init pod", PODS, here("i", initContainers=[container("first")])),
    patch(
        "init statuses",
        PODS + "/i/status",
        {
            "status": {
                "initContainerStatuses": [
                    {
                        **running("first"),
                        "state": {"waiting": {"reason": "PodInitializing"}},
                        "started": False,
                    }
                ],
                "containerStatuses": [
                    {
                        "name": "c0",
                        "image": "x",
                        "imageID": "",
                        "ready": False,
                        "restartCount": 0,
                        "state": {"waiting": {}},
                        "lastState": {},
                    }
                ],
            }
        },
        by="node",
    ),
    patch(
        "a list removed and given",
        PODS + "/i/status",
        {
            "status": {
                "conditions": [
                    {"$patch": "delete", "type": "Ready"},
                    condition("Initialized", "False"),
                ]
            }
        },
        by="node",
    ),
    patch(
        "observed generation per condition",
        PODS + "/i/status",
        {
            "status": {
                "observedGeneration": 1,
                "conditions": [
                    condition(
                        "Initialized",
                        "True",
                        observedGeneration=1,
                        lastTransitionTime=None,
                        message="",
                    )
                ],
            }
        },
        by="node",
    ),
    patch(
        "negative observed generation",
        PODS + "/i/status",
        {"status": {"observedGeneration": -1}},
        by="node",
    ),
]
