"""Answers in other forms: Tables as kubectl shows them, and metadata alone."""

from __future__ import annotations

from tests.contract.conversation import Step, get, once, patch, post
from tests.contract.conversations.objects import CORDONED, JSON, PODS, here, pod, running

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_PARTIALS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_NS = "/api/v1/namespaces/{ns}"
_MINE = {"labelSelector": "shown"}


def _labelled(obj: JSON, **more: object) -> JSON:
    return {**obj, **more, "metadata": {**obj["metadata"], "labels": {"shown": ""}}}


def _table(name: str, path: str, **more: object) -> Step:
    return get(name, path, accept=_TABLE, **more)


def _named(name: str, **more: object) -> JSON:
    return _labelled({"metadata": {"name": name}}, **more)


def _status(name: str, pod_: str, **status: object) -> Step:
    return patch(name, f"{PODS}/{pod_}/status", {"status": status}, by="node")


def _waiting(reason: str) -> JSON:
    return {**running(ready=False), "started": False, "state": {"waiting": {"reason": reason}}}


def _ended(code: int, reason: str = "", signal: int = 0) -> JSON:
    end = {"exitCode": code, "reason": reason, "signal": signal}
    return {**running(ready=False), "started": False, "state": {"terminated": end}}


STEPS = [
    *(post(f"pod {name}", PODS, _labelled(here(name))) for name in "abcdefg"),
    post("pod h", PODS, _labelled(pod("h", schedulerName="nobody"))),
    post("pod i", PODS, _labelled(here("i", initContainers=[{"name": "i0", "image": "x"}]))),
    post("pod j", PODS, _labelled(pod("j", schedulingGates=[{"name": "example.test/gate"}]))),
    _status(
        "a runs",
        "a",
        phase="Running",
        podIP="192.0.2.7",
        podIPs=[{"ip": "192.0.2.7"}],
        containerStatuses=[running()],
        conditions=[{"type": "Ready", "status": "True"}],
    ),
    _status("b can't pull", "b", phase="Pending", containerStatuses=[_waiting("ImagePullBackOff")]),
    _status("c has ended", "c", phase="Succeeded", containerStatuses=[_ended(0, "Completed")]),
    _status("d has failed", "d", phase="Failed", containerStatuses=[_ended(3)]),
    _status("e was killed", "e", phase="Failed", containerStatuses=[_ended(0, signal=9)]),
    _status("f was evicted", "f", phase="Failed", reason="Evicted", message="too much"),
    _status(
        "g starts again and again",
        "g",
        phase="Running",
        containerStatuses=[
            {
                **_waiting("CrashLoopBackOff"),
                "restartCount": 4,
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            }
        ],
    ),
    _status("i is preparing", "i", initContainerStatuses=[_waiting("PodInitializing")]),
    patch("a is asked to go", PODS + "/g", {"metadata": {"finalizers": ["example.test/keep"]}}),
    _table("pods", PODS, query=_MINE),
    _table("a pod", PODS + "/a"),
    _table(
        "pods with objects",
        PODS,
        query={
            "labelSelector": "shown",
            "fieldSelector": "metadata.name=h",
            "includeObject": "Object",
        },
    ),
    _table("pods with nothing", PODS, query={**_MINE, "includeObject": "None"}),
    _table("a bad choice", PODS, query={**_MINE, "includeObject": "Some"}),
    _table("a page of pods", PODS, query={**_MINE, "limit": 2, "includeObject": "None"}),
    _table("no pods", PODS, query={"labelSelector": "none=here"}),
    _table("no such pod", PODS + "/none"),
    _table("made as a table", PODS + "/none/status"),
    get(
        "the old version of tables", PODS, query=_MINE, accept=_TABLE.replace("v=v1;", "v=v1beta1;")
    ),
    get("only tables", PODS + "/h", accept="application/json;as=Table;v=v1;g=meta.k8s.io"),
    get("another form", PODS, accept="application/json;as=Poem;v=v1;g=meta.k8s.io"),
    get(
        "another form, or JSON",
        PODS + "/h",
        accept="application/json;as=Poem;v=v1;g=meta.k8s.io,application/json",
    ),
    get("another type", PODS, accept="text/plain"),
    get("whatever", PODS + "/h", accept="*/*"),
    get("metadata", PODS + "/a", accept=_PARTIAL),
    get("metadata of many", PODS, query={**_MINE, "limit": 2}, accept=_PARTIALS),
    get("metadata of many, asked for as one", PODS, query={**_MINE, "limit": 1}, accept=_PARTIAL),
    get("metadata of one, asked for as many", PODS + "/a", accept=_PARTIALS),
    post("secret", _NS + "/secrets", _named("s", stringData={"a": "b"})),
    _table("secrets", _NS + "/secrets", query={**_MINE, "includeObject": "None"}),
    post("map", _NS + "/configmaps", _named("m", data={"a": "b"}, binaryData={"b": "AA=="})),
    _table("maps", _NS + "/configmaps", query={**_MINE, "includeObject": "None"}),
    post("account", _NS + "/serviceaccounts", _named("x")),
    _table("accounts", _NS + "/serviceaccounts", query={**_MINE, "includeObject": "None"}),
    post(
        "service",
        _NS + "/services",
        _named(
            "v",
            spec={
                "clusterIP": "None",
                "selector": {"a": "b"},
                "ports": [{"port": 80, "name": "a"}, {"port": 53, "protocol": "UDP", "name": "b"}],
            },
        ),
    ),
    _table("services", _NS + "/services", query={**_MINE, "includeObject": "None"}),
    post(
        "class",
        "/apis/node.k8s.io/v1/runtimeclasses",
        _labelled({"metadata": {"name": "{ns}"}}, handler="h"),
    ),
    _table(
        "classes",
        "/apis/node.k8s.io/v1/runtimeclasses",
        query={"fieldSelector": "metadata.name={ns}", "includeObject": "None"},
    ),
    Step("class removed", "DELETE", "/apis/node.k8s.io/v1/runtimeclasses/{ns}"),
    post(
        "priority",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        _labelled({"metadata": {"name": "{ns}"}}, value=7),
    ),
    _table(
        "priorities",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        query={"fieldSelector": "metadata.name={ns}", "includeObject": "None"},
    ),
    Step("priority removed", "DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/{ns}"),
    patch(
        "the node",
        "/api/v1/nodes/{node}/status",
        {
            "status": {
                "nodeInfo": {
                    "kubeletVersion": "v1.36.0",
                    "osImage": "Some Linux",
                    "kernelVersion": "6.1",
                    "containerRuntimeVersion": "containerd://2.0",
                }
            }
        },
        by="node",
    ),
    patch(
        "the node is cordoned",
        "/api/v1/nodes/{node}",
        {
            "spec": {"unschedulable": True},
            "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}},
        },
    ),
    once("a cordoned node has its taint", "/api/v1/nodes/{node}", "/spec/taints/0/key", CORDONED),
    _table("a node", "/api/v1/nodes/{node}", query={"includeObject": "None"}),
    patch("the node is open again", "/api/v1/nodes/{node}", {"spec": {"unschedulable": None}}),
    _table("namespaces", "/api/v1/namespaces/{ns}", query={"includeObject": "None"}),
    post(
        "event",
        _NS + "/events",
        _named(
            "e",
            involvedObject={"kind": "Pod", "namespace": "{ns}", "name": "a"},
            reason="Started",
            message="it runs",
            type="Normal",
            count=3,
            firstTimestamp="2026-01-01T00:00:00Z",
            lastTimestamp="2026-01-01T00:00:00Z",
            source={"component": "kubelet", "host": "n"},
        ),
    ),
    _table("events", _NS + "/events", query={**_MINE, "includeObject": "None"}),
    _table(
        "events of the other group",
        "/apis/events.k8s.io/v1/namespaces/{ns}/events",
        query={**_MINE, "includeObject": "None"},
    ),
    post(
        "lease",
        "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
        _named("l", spec={"holderIdentity": "me"}),
    ),
    _table(
        "leases",
        "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
        query={**_MINE, "includeObject": "None"},
    ),
]
