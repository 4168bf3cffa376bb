"""Pods that are created: what is filled in, what is refused and in which words."""

from __future__ import annotations

from typing import Any

from tests.contract.conversation import Step, get, post
from tests.contract.conversations.objects import IMAGE, JSON, PODS, container, here, pod

_PROBES: JSON = {
    "livenessProbe": {"httpGet": {"port": 80}},
    "readinessProbe": {"tcpSocket": {"port": "web"}},
    "startupProbe": {"grpc": {"port": 9}, "initialDelaySeconds": 0},
    "lifecycle": {
        "postStart": {"httpGet": {"port": 80, "path": ""}},
        "preStop": {"sleep": {"seconds": 1}},
    },
}
_VOLUMES: list[JSON] = [
    {"name": "none"},
    {"name": "map", "configMap": {"name": "m"}},
    {"name": "secret", "secret": {"secretName": "s", "items": [{"key": "a", "path": "b"}]}},
    {
        "name": "info",
        "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]},
    },
    {"name": "host", "hostPath": {"path": "/etc"}},
    {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
]
_TOKEN: JSON = {"name": "many", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
_NAMELESS = {"name": "many", "projected": {"sources": [{"secret": {}}]}}
_FULL = here(
    "full",
    metadata={"labels": {"a": "b"}, "annotations": {"x": ""}},
    initContainers=[
        container("first", command=["sh"]),
        container("side", restartPolicy="Always", image="example.test/side"),
    ],
    containers=[
        container(
            "web",
            ports=[{"name": "web", "containerPort": 80}],
            resources={"limits": {"cpu": "1", "memory": "64Mi"}, "requests": {"cpu": "0.5"}},
            env=[
                {"name": "A", "value": ""},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {"name": "D", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
            ],
            volumeMounts=[{"name": "none", "mountPath": "/n", "readOnly": False}],
            securityContext={"runAsUser": 0, "capabilities": {"add": []}},
            **_PROBES,
        )
    ],
    volumes=[*_VOLUMES, _TOKEN],
    terminationGracePeriodSeconds=0,
    topologySpreadConstraints=[],
    hostAliases=[],
)


def _bad(name: str, /, **spec: Any) -> Step:
    return post(name, PODS, pod("bad", **spec))


def _bad_container(name: str, /, **fields: Any) -> Step:
    return _bad(name, containers=[{**container(), **fields}])


STEPS = [
    post("smallest", PODS, pod("smallest", schedulerName="nobody")),
    post("smallest again", PODS, pod("smallest")),
    get("it is stored", PODS + "/smallest"),
    post("everything", PODS, _FULL),
    post(
        "host network",
        PODS,
        pod(
            "host-network",
            hostNetwork=True,
            hostPID=True,
            containers=[container(ports=[{"containerPort": 80}])],
        ),
    ),
    post(
        "one container guaranteed",
        PODS,
        pod(
            "guaranteed",
            containers=[container(resources={"limits": {"cpu": "100m", "memory": "1Gi"}})],
        ),
    ),
    post(
        "generated name",
        PODS,
        {**pod("x"), "metadata": {"generateName": "gen-"}},
        keep={"generated": "metadata.name"},
    ),
    post(
        "latest",
        PODS,
        pod(
            "latest",
            containers=[
                container(image="example.test/a"),
                container("c1", image="example.test/a:latest"),
                container("c2", image="example.test/a@sha256:" + "0" * 64),
            ],
        ),
    ),
    post(
        "node selector and tolerations",
        PODS,
        here(
            "tolerant",
            nodeSelector={"a": "b"},
            tolerations=[{"key": "k", "operator": "Exists", "effect": "NoExecute"}],
        ),
    ),
    post("no such account", PODS, pod("no-account", serviceAccountName="nobody")),
    post(
        "a status is dropped",
        PODS,
        {**pod("with-status"), "status": {"phase": "Running", "podIP": "1.2.3.4"}},
    ),
    post(
        "nulls are absent",
        PODS,
        pod(
            "nulls",
            nodeSelector=None,
            volumes=None,
            containers=[container(env=None, livenessProbe=None, resources=None)],
        ),
    ),
    post("priority is resolved", PODS, pod("prio", priorityClassName="system-node-critical")),
    post("no such priority class", PODS, pod("prio2", priorityClassName="none")),
    post("overhead without class", PODS, pod("over", overhead={"cpu": "1"})),
    post("no such runtime class", PODS, pod("rc", runtimeClassName="none")),
    post(
        "pod resources", PODS, pod("pod-level", resources={"limits": {"cpu": "1", "memory": "1Gi"}})
    ),
    post(
        "large numbers",
        PODS,
        pod(
            "large",
            activeDeadlineSeconds=2147483647,
            terminationGracePeriodSeconds=9223372036854775807,
        ),
    ),
    # refused
    post("no name", PODS, {**pod("x"), "metadata": {}}),
    post("bad name", PODS, pod("Not_A_Name")),
    post("other namespace", PODS, pod("x", metadata={"namespace": "other"})),
    post("no such namespace", "/api/v1/namespaces/no-such-namespace/pods", pod("x")),
    post("other kind", PODS, {**pod("x"), "kind": "Secret"}),
    post(
        "no kind",
        PODS,
        {
            "metadata": {"name": "x"},
            "spec": {"containers": [container()], "automountServiceAccountToken": False},
        },
    ),
    post("no json", PODS, b"{"),
    post("empty body", PODS, b""),
    post("a list for an object", PODS, b"[]"),
    post("a number for a string", PODS, pod("x", nodeName=1)),
    post("a string for a number", PODS, pod("x", terminationGracePeriodSeconds="1")),
    post("unknown field, strict", PODS, pod("x", foo=1), query={"fieldValidation": "Strict"}),
    post("unknown field, warn", PODS, pod("warned", foo=1), query={"fieldValidation": "Warn"}),
    post("unknown field, ignore", PODS, pod("ignored", foo=1), query={"fieldValidation": "Ignore"}),
    post("bad field validation", PODS, pod("x"), query={"fieldValidation": "Sometimes"}),
    post("dry run", PODS, pod("dry"), query={"dryRun": "All"}),
    get("dry run stored nothing", PODS + "/dry"),
    post("bad dry run", PODS, pod("x"), query={"dryRun": "Maybe"}),
    _bad("no containers", containers=[]),
    _bad("containers null", containers=None),
    post("no spec", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}),
    _bad("restart policy", restartPolicy="Sometimes"),
    _bad("dns policy", dnsPolicy="Cluster"),
    _bad("dns none without servers", dnsPolicy="None"),
    post("negative grace", PODS, pod("hurry", terminationGracePeriodSeconds=-1)),
    _bad("deadline zero", activeDeadlineSeconds=0),
    _bad("same names", containers=[container(), container()]),
    _bad("same name as init", initContainers=[container()]),
    _bad_container("no image", image=""),
    _bad_container("spaces in image", image=" a"),
    _bad("container name", containers=[{"name": "C_0", "image": IMAGE}]),
    _bad_container("pull policy", imagePullPolicy="Often"),
    _bad_container("port out of range", ports=[{"containerPort": 70000}]),
    _bad_container("port zero", ports=[{"containerPort": 0}]),
    _bad_container("port name", ports=[{"containerPort": 1, "name": "NOT"}]),
    _bad_container("protocol", ports=[{"containerPort": 1, "protocol": "ICMP"}]),
    _bad_container("mount of nothing", volumeMounts=[{"name": "v", "mountPath": "/v"}]),
    _bad_container("mount path empty", volumeMounts=[{"name": "v", "mountPath": ""}]),
    _bad_container("env name empty", env=[{"name": "", "value": "x"}]),
    _bad_container("env field", env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]),
    _bad_container(
        "env two sources",
        env=[
            {"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        ],
    ),
    _bad_container(
        "request over limit", resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    ),
    _bad_container("bad quantity", resources={"requests": {"cpu": "one"}}),
    _bad_container("negative quantity", resources={"requests": {"cpu": "-1"}}),
    _bad_container("unknown resource", resources={"requests": {"bananas": "1"}}),
    _bad_container(
        "two handlers", livenessProbe={"httpGet": {"port": 1}, "tcpSocket": {"port": 1}}
    ),
    _bad_container("no handler", livenessProbe={}),
    _bad_container(
        "probe success", livenessProbe={"tcpSocket": {"port": 1}, "successThreshold": 2}
    ),
    _bad_container("probe period", readinessProbe={"tcpSocket": {"port": 1}, "periodSeconds": -1}),
    _bad_container(
        "privileged without escalation",
        securityContext={"privileged": True, "allowPrivilegeEscalation": False},
    ),
    _bad_container("user negative", securityContext={"runAsUser": -1}),
    _bad_container("termination policy", terminationMessagePolicy="Other"),
    _bad_container("container restart policy", restartPolicy="Maybe"),
    _bad("same volumes", volumes=[{"name": "v"}, {"name": "v"}]),
    _bad("two sources", volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]),
    _bad("projected secret without name", volumes=[_NAMELESS]),
    _bad("secret without name", volumes=[{"name": "v", "secret": {}}]),
    _bad("host path empty", volumes=[{"name": "v", "hostPath": {"path": ""}}]),
    _bad("ephemeral at creation", ephemeralContainers=[container("e")]),
    _bad("priority given", priority=5),
    _bad("scheduling gate bound", nodeName="{node}", schedulingGates=[{"name": "a/b"}]),
    _bad("toleration", tolerations=[{"operator": "Equals"}]),
    _bad("host name", hostname="A_B"),
    _bad("sysctl", securityContext={"sysctls": [{"name": "not a name", "value": "1"}]}),
    _bad("host users", hostUsers=False, hostNetwork=True),
    _bad(
        "host ports twice",
        containers=[
            container(
                ports=[{"containerPort": 1, "hostPort": 1}, {"containerPort": 2, "hostPort": 1}]
            )
        ],
    ),
    post("bad label", PODS, pod("x", metadata={"labels": {"a b": "c"}})),
    post("bad annotation", PODS, pod("x", metadata={"annotations": {"": "c"}})),
    post("bad finalizer", PODS, pod("x", metadata={"finalizers": ["x"]})),
    post(
        "image volume",
        PODS,
        pod(
            "image-volume",
            volumes=[{"name": "i", "image": {"reference": IMAGE}}],
            containers=[container(volumeMounts=[{"name": "i", "mountPath": "/i"}])],
        ),
    ),
]
