"""Changes of pods through subresources: resize, ephemeral containers, binding."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import Step, delete, get, patch, post, put
from tests.contract.conversations.objects import IMAGE, JSON, PODS, container, here, mirror, pod

_BINDING = {"apiVersion": "v1", "kind": "Binding"}


def _sizes(cpu_: str = "100m", memory_: str = "64Mi", **limits: str) -> JSON:
    found: JSON = {"requests": {"cpu": cpu_, "memory": memory_}}
    return {**found, "limits": limits} if limits else found


def _resize(name: str, of: str, sizes: JSON, *, container_: str = "c0", **more: Any) -> Step:
    body = {"spec": {"containers": [{"name": container_, "resources": sizes}]}}
    return patch(name, f"{PODS}/{of}/resize", body, **more)


def _debug(name: str, of: str, *containers: JSON, **more: Any) -> Step:
    body = {"spec": {"ephemeralContainers": list(containers)}}
    return patch(name, f"{PODS}/{of}/ephemeralcontainers", body, **more)


def _bind(name: str, of: str, target: JSON, **metadata: object) -> Step:
    body = {**_BINDING, "metadata": {"name": of, **metadata}, "target": target}
    return post(name, f"{PODS}/{of}/binding", body)


_HERE = {"apiVersion": "v1", "kind": "Node", "name": "{node}"}
_DEBUGGER = {"name": "debugger", "image": IMAGE, "stdin": True, "tty": True}

_HAS = ("capacity", "allocatable")

STEPS = [
    get("the node", "/api/v1/nodes/{node}", by="node", keep={"node_uid": "metadata.uid"}),
    patch(
        "what the node has",
        "/api/v1/nodes/{node}/status",
        {"status": {key: {"cpu": "4", "memory": "8Gi", "pods": "9"} for key in _HAS}},
        by="node",
    ),
    post("to resize", PODS, here("r", containers=[container(resources=_sizes())])),
    _resize("larger", "r", _sizes("200m")),
    _resize("the same", "r", _sizes("200m")),
    _resize("as kubectl patches", "r", {"requests": {"memory": "128Mi"}}, by="admin"),
    _resize("limits added", "r", {"limits": {"cpu": "1"}}),
    _resize("request taken away", "r", {"requests": {"cpu": None}}),
    _resize("request over limit", "r", {"requests": {"cpu": "2"}}),
    _resize("more than the node has", "r", {"requests": {"cpu": "5"}, "limits": {"cpu": "5"}}),
    _resize("more memory than it has", "r", {"requests": {"memory": "9Gi"}}),
    _resize("negative", "r", {"requests": {"cpu": "-1"}}),
    _resize("no quantity", "r", {"requests": {"cpu": "much"}}),
    _resize("another resource", "r", {"requests": {"ephemeral-storage": "1Gi"}}),
    _resize("another container", "r", _sizes(), container_="c1"),
    _resize("by the node", "r", _sizes(), by="node"),
    _resize("dry run", "r", {"requests": {"cpu": "300m"}}, query={"dryRun": "All"}),
    _resize("not there", "none", _sizes()),
    patch(
        "image by resize",
        PODS + "/r/resize",
        {"spec": {"containers": [{"name": "c0", "image": "x"}]}},
    ),
    patch("label by resize", PODS + "/r/resize", {"metadata": {"labels": {"a": "b"}}}),
    patch(
        "policy by resize",
        PODS + "/r/resize",
        {
            "spec": {
                "containers": [
                    {
                        "name": "c0",
                        "resizePolicy": [
                            {"resourceName": "cpu", "restartPolicy": "RestartContainer"}
                        ],
                    }
                ]
            }
        },
    ),
    get("resize is read", PODS + "/r/resize"),
    post("best effort", PODS, here("b")),
    _resize("class changes", "b", _sizes()),
    post(
        "guaranteed",
        PODS,
        here("g", containers=[container(resources=_sizes("1", "1Gi", cpu="1", memory="1Gi"))]),
    ),
    _resize("still guaranteed", "g", _sizes("2", "1Gi", cpu="2", memory="1Gi")),
    _resize("guaranteed no more", "g", _sizes("1", "1Gi", cpu="2", memory="1Gi")),
    _resize("less memory", "g", _sizes("2", "512Mi", cpu="2", memory="512Mi")),
    get("conditions of a resize", PODS + "/g"),
    post(
        "not bound yet",
        PODS,
        pod("n", schedulerName="nobody", containers=[container(resources=_sizes())]),
    ),
    _resize("resized before it is bound", "n", _sizes("200m")),
    post("ended", PODS, here("e", containers=[container(resources=_sizes())])),
    patch("it ends", PODS + "/e/status", {"status": {"phase": "Succeeded"}}, by="node"),
    _resize("resized after the end", "e", _sizes("200m")),
    post("static", PODS, mirror("m"), by="node"),
    _resize("of a static pod", "m", _sizes("200m")),
    post("to debug", PODS, here("d"), keep={"rv": "metadata.resourceVersion"}),
    _debug("debugged", "d", {**_DEBUGGER, "targetContainerName": "c0"}),
    _debug("debugged twice", "d", {**_DEBUGGER, "name": "second"}),
    _debug("the same name", "d", {**_DEBUGGER, "image": "x"}),
    _debug("name of a container", "d", {**_DEBUGGER, "name": "c0"}),
    _debug("unknown target", "d", {**_DEBUGGER, "name": "d3", "targetContainerName": "c9"}),
    _debug("without image", "d", {"name": "d4"}),
    _debug(
        "with a probe",
        "d",
        {**_DEBUGGER, "name": "d5", "livenessProbe": {"exec": {"command": ["x"]}}},
    ),
    _debug("with ports", "d", {**_DEBUGGER, "name": "d6", "ports": [{"containerPort": 80}]}),
    _debug("with resources", "d", {**_DEBUGGER, "name": "d7", "resources": _sizes()}),
    patch(
        "one taken away",
        PODS + "/d/ephemeralcontainers",
        {"spec": {"ephemeralContainers": []}},
        "merge",
    ),
    _debug("of a static pod, debugged", "m", _DEBUGGER),
    _debug("debugged by the node", "d", {**_DEBUGGER, "name": "d8"}, by="node"),
    _debug("debugged, not there", "none", _DEBUGGER),
    get("ephemeral containers are read", PODS + "/d/ephemeralcontainers"),
    post("to bind", PODS, pod("u", schedulerName="nobody"), keep={"uid": "metadata.uid"}),
    _bind("to nothing", "u", {}),
    _bind("to a pod", "u", {"kind": "Pod", "name": "x"}),
    _bind("of another uid", "u", _HERE, uid="00000000-0000-0000-0000-000000000000"),
    post(
        "by the node, bound",
        PODS + "/u/binding",
        {**_BINDING, "metadata": {"name": "u"}, "target": _HERE},
        by="node",
    ),
    _bind(
        "bound", "u", _HERE, uid="{uid}", annotations={"example.test/score": "1"}, labels={"a": "b"}
    ),
    get("it is bound", PODS + "/u"),
    _bind("bound again", "u", _HERE),
    _bind("not there to bind", "none", _HERE),
    post(
        "by the collection",
        "/api/v1/namespaces/{ns}/bindings",
        {**_BINDING, "metadata": {"name": "n"}, "target": _HERE},
    ),
    post("gated", PODS, pod("w", schedulingGates=[{"name": "example.test/gate"}])),
    _bind("bound behind a gate", "w", _HERE),
    patch(
        "gate removed",
        PODS + "/w",
        {"spec": {"schedulingGates": None, "schedulerName": "nobody"}},
        "merge",
    ),
    patch(
        "gate opened",
        PODS + "/w",
        {"spec": {"schedulingGates": None}},
        "merge",
        query={"dryRun": "All"},
    ),
    post("to bind to nowhere", PODS, pod("v", schedulerName="nobody")),
    _bind("to a node that is not there", "v", {"kind": "Node", "name": "no-such-node"}),
    put(
        "status of another name",
        PODS + "/v/status",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}},
    ),
    get("an unknown part", PODS + "/v/nothing"),
    delete("a part deleted", PODS + "/v/status"),
]
