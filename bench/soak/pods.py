"""The pods of a soak: all ways to live and to end. Pure: the random numbers come from a seed.

Annotations on a pod define how it may end, for :mod:`bench.soak.history` and for the end of the
churn. CODES has the exit codes that each container may have. ENDS has the state that the pod
reaches when nobody touches it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from bench.manifests import NAMESPACE
from bench.stand import NODE
from kubeletpy.base.api.types import JSON
from tools.env.images import BUSYBOX

CODES = "soak/codes"
ENDS = "soak/ends"
STEADY = "soak/steady"
"""Its containers never restart by themselves."""
READY, SUCCEEDED, FAILED, ANY = "Ready", "Succeeded", "Failed", ""
SHARED = "soak"
"""The configMap and the secret that pods mount."""
FOREVER = "trap 'exit 0' TERM; while :; do sleep 1000 & wait $!; done"
DEAF = "trap '' TERM; while :; do sleep 1; done"
KILLED = 137
_VOLUMES: dict[str, JSON] = {
    "scratch": {"emptyDir": {}},
    "memory": {"emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}},
    "config": {"configMap": {"name": SHARED}},
    "secret": {"secret": {"secretName": SHARED}},
    "down": {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    "host": {"hostPath": {"path": "/tmp", "type": "Directory"}},
    "projected": {
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": SHARED}},
            ]
        }
    },
}


def container(name: str = "main", script: str = FOREVER, **more: Any) -> JSON:
    """A busybox container that runs a shell script."""
    return {
        "name": name,
        "image": BUSYBOX,
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
        **more,
    }


def pod(
    name: str,
    *containers: JSON,
    codes: dict[str, list[int]] | None = None,
    ends: str = READY,
    steady: bool = False,
    **spec: Any,
) -> JSON:
    """A bound pod; keyword arguments are fields of its spec."""
    supplied = list(containers) or [container()]
    names = [each["name"] for each in (*supplied, *spec.get("initContainers", ()))]
    may = {each: [0] for each in names} | (codes or {})
    notes = {CODES: json.dumps(may), ENDS: ends, STEADY: str(steady).lower()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": notes},
        "spec": {
            "nodeName": NODE,
            "dnsPolicy": "Default",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 4,
            "containers": supplied,
            **spec,
        },
    }


def _plain(name: str, _: random.Random) -> JSON:
    return pod(name, steady=True)


def _pair(name: str, _: random.Random) -> JSON:
    return pod(name, container("main"), container("other"), steady=True)


def _deaf(name: str, draw: random.Random) -> JSON:
    grace = draw.randint(1, 3)
    deaf = container(script=DEAF)
    return pod(
        name, deaf, codes={"main": [KILLED]}, steady=True, terminationGracePeriodSeconds=grace
    )


def _sidecar(name: str, draw: random.Random) -> JSON:
    inits = [
        container("first", f"sleep {draw.uniform(0, 0.5):.2f}"),
        container("sidecar", FOREVER, restartPolicy="Always"),
        container("second", "true"),
    ]
    return pod(name, initContainers=inits, steady=True)


def _volumes(name: str, _: random.Random) -> JSON:
    mounts: list[JSON] = [{"name": each, "mountPath": f"/v/{each}"} for each in _VOLUMES]
    mounts.append({"name": "config", "mountPath": "/v/one", "subPath": "a"})
    mounts.append({"name": "scratch", "mountPath": "/v/part", "subPathExpr": "$(NAME)"})
    script = f"echo x > /v/scratch/x; echo x > /v/memory/x; {FOREVER}"
    named: JSON = {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    main = container(script=script, volumeMounts=mounts, env=[named])
    listed = [{"name": each, **volume} for each, volume in _VOLUMES.items()]
    return pod(name, main, volumes=listed, steady=True)


def _job(name: str, draw: random.Random) -> JSON:
    script = f"sleep {draw.uniform(0, 3):.2f}; exit 0"
    policy = draw.choice(["Never", "OnFailure"])
    return pod(name, container(script=script), ends=SUCCEEDED, restartPolicy=policy)


def _failing_job(name: str, draw: random.Random) -> JSON:
    code = draw.randint(1, 9)
    script = f"sleep {draw.uniform(0, 3):.2f}; exit {code}"
    may = {"main": [code]}
    return pod(name, container(script=script), codes=may, ends=FAILED, restartPolicy="Never")


def _failing_init(name: str, draw: random.Random) -> JSON:
    init = container("first", "exit 5")
    policy = draw.choice(["Never", "Always"])
    ends = FAILED if policy == "Never" else ANY
    return pod(name, initContainers=[init], codes={"first": [5]}, ends=ends, restartPolicy=policy)


def _loop(name: str, draw: random.Random) -> JSON:
    code = draw.choice([0, 3, 4])
    script = f"sleep {draw.uniform(0, 0.5):.2f}; exit {code}"
    may = {"main": [code]}
    return pod(name, container(script=script), container("other"), codes=may, ends=ANY)


def _probes(name: str, draw: random.Random) -> JSON:
    """Not ready for a while; then alive for a while."""
    ready = {"exec": {"command": ["/bin/test", "-e", "/tmp/up"]}, "periodSeconds": 1}
    alive = {
        "exec": {"command": ["/bin/test", "!", "-e", "/tmp/ill"]},
        **{"periodSeconds": 1, "failureThreshold": 2, "terminationGracePeriodSeconds": 1},
    }
    started = {"exec": {"command": ["/bin/true"]}, "periodSeconds": 1}
    script = (
        f"trap 'exit 0' TERM; (sleep 1; touch /tmp/up; sleep {draw.randint(3, 30)}; touch /tmp/ill)"
        " & while :; do sleep 1000 & wait $!; done"
    )
    main = container(script=script, readinessProbe=ready, livenessProbe=alive, startupProbe=started)
    tcp: JSON = {"tcpSocket": {"port": 9999}, "periodSeconds": 1}
    other = container("other", readinessProbe=tcp)
    return pod(name, main, other, codes={"main": [0, KILLED]}, ends=ANY)


def _hooks(name: str, draw: random.Random) -> JSON:
    stop = {"preStop": {"exec": {"command": ["/bin/sleep", f"{draw.uniform(0, 2):.1f}"]}}}
    start = {"postStart": {"exec": {"command": ["/bin/sleep", "0.3"]}}}
    return pod(name, container(lifecycle={**start, **stop}), steady=True)


def _resizable(name: str, draw: random.Random) -> JSON:
    policy = draw.choice(["NotRequired", "RestartContainer"])
    sizes = {"cpu": "10m", "memory": "8Mi"}
    main = container(
        resources={"requests": sizes, "limits": {"cpu": "100m", "memory": "32Mi"}},
        resizePolicy=[{"resourceName": "memory", "restartPolicy": policy}],
    )
    return pod(name, main, codes={"main": [0, KILLED]})


def _no_config(name: str, _: random.Random) -> JSON:
    missing = {"name": "config", "configMap": {"name": "soak-missing"}}
    main = container(volumeMounts=[{"name": "config", "mountPath": "/c"}])
    return pod(name, main, volumes=[missing], ends=ANY)


def _no_image(name: str, _: random.Random) -> JSON:
    main = {**container(), "image": "127.0.0.1:1/nothing:1"}
    return pod(name, main, container("other"), ends=ANY)


def _host_network(name: str, _: random.Random) -> JSON:
    return pod(name, hostNetwork=True, steady=True)


def _deadline(name: str, draw: random.Random) -> JSON:
    seconds = draw.randint(2, 6)
    return pod(name, codes={"main": [0, KILLED]}, activeDeadlineSeconds=seconds, ends=FAILED)


KINDS: dict[str, tuple[int, Callable[[str, random.Random], JSON]]] = {
    "plain": (3, _plain),
    "pair": (1, _pair),
    "deaf": (1, _deaf),
    "sidecar": (2, _sidecar),
    "volumes": (4, _volumes),
    "job": (3, _job),
    "failing-job": (2, _failing_job),
    "failing-init": (1, _failing_init),
    "loop": (2, _loop),
    "probes": (2, _probes),
    "hooks": (1, _hooks),
    "resizable": (3, _resizable),
    "no-config": (1, _no_config),
    "no-image": (1, _no_image),
    "host-network": (1, _host_network),
    "deadline": (1, _deadline),
}
"""Weight of each kind of pod, and the function that makes it."""


def some_pod(name: str, draw: random.Random) -> JSON:
    """A pod of a random kind, its kind at the end of its name."""
    kind = draw.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    return KINDS[kind][1](f"{name}-{kind}", draw)


def static_pod(name: str) -> JSON:
    """The manifest of a static pod."""
    made = pod(name, steady=True)
    spec = {key: value for key, value in made["spec"].items() if key != "nodeName"}
    return {**made, "spec": spec}


def shared_objects() -> tuple[JSON, JSON]:
    """The configMap and the secret."""
    meta = {"name": SHARED, "namespace": NAMESPACE}
    return {"metadata": meta, "data": {"a": "0"}}, {"metadata": meta, "data": {"k": "MA=="}}
