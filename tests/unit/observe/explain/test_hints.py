"""Hints for a cause, where the text depends on the pod."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.node.build import RuntimeStart
from kubeletpy.observe.explain.facts import NodeTaint
from kubeletpy.observe.explain.hints import hint
from tests.kit.observe import NOW, exited, facts, not_ready, running, waiting
from tests.kit.pods import make_pod
from tests.unit.observe.explain.test_exits import ended, remembered

LOG = "see its log: kubectl logs -n default web"
NO_SECRETS = (
    "the pod names no imagePullSecrets, and the registry takes no credentials of this node: "
    "create a docker-registry secret in namespace default and name it"
)
SECRETS = make_pod(imagePullSecrets=[{"name": "a"}, {}, {"name": "b"}, {"name": "c"}])
SIZED = make_pod(
    containers=[
        {"name": "main", "image": "i", "resources": {"limits": {"memory": "16Mi"}}},
        {"name": "bare", "image": "i", "resources": {"limits": {"cpu": "1"}}},
    ]
)
TWICE = {"status": {"containerStatuses": [running("other"), running(restartCount=1)]}}


@pytest.mark.parametrize(
    ("code", "name", "changes", "parts"),
    [
        ("image-access-denied", "main", {"pod": None}, NO_SECRETS),
        (
            "image-access-denied",
            "main",
            {"pod": SECRETS},
            "check that pull secret a, b, c has credentials for this registry",
        ),
        (
            "image-access-denied",
            "main",
            {"pod": SECRETS, "missing_secrets": ("c", "b", "x")},
            "create pull secret b, c in namespace default: it is missing",
        ),
        ("out-of-memory", "bare", {"pod": SIZED}, f"raise its memory limit, or {LOG} -c bare"),
        ("out-of-memory", "gone", {"pod": SIZED}, f"raise its memory limit, or {LOG} -c gone"),
        ("out-of-memory", "main", {"pod": None}, f"raise its memory limit, or {LOG} -c main"),
        ("crash", "", {}, LOG),
        ("crash", "other", TWICE, f"{LOG} -c other"),
        ("crash", "third", TWICE, f"{LOG} -c third"),
        (
            "crash",
            "main",
            {"status": not_ready(waiting("CrashLoopBackOff", restartCount=2))},
            f"{LOG} -c main",
        ),
        (
            "failed",
            "",
            {
                "status": not_ready(
                    running("side"),
                    exited(4),
                    exited(5, "later"),
                    initContainerStatuses=[exited(0, "first")],
                )
            },
            f"{LOG} -c main",
        ),
        ("failed", "", {}, LOG),
        (
            "stop-order",
            "main",
            {"worker": {"terminating_at": NOW - 5}},
            "kubectl delete pod -n default web --now ends it sooner",
        ),
        (
            "grace-period",
            "main",
            {},
            "nothing: it is killed then and started again; terminationGracePeriodSeconds limits "
            "that",
        ),
        (
            "image-pull",
            "registry.example:5000/a/b:1",
            {},
            "if it takes too long, see the registry registry.example:5000, and the runtime's log; "
            "only the runtime limits a pull",
        ),
        ("running", "main", {}, ""),
        (
            "preempted",
            "main",
            {},
            "nothing, if a controller makes another; else create it again: with a higher "
            "priorityClassName it stays",
        ),
        (
            "refused",
            "",
            {"taints": (NodeTaint("k\n", "", "NoExecute"), NodeTaint("l", "", "NoExecute"))},
            "the node has the taint k :NoExecute: give the pod the toleration {key: k , operator: "
            "Exists, effect: NoExecute} (and so for 1 more), or use another node",
        ),
        (
            "refused",
            "",
            {"status": {"phase": "Failed", "reason": "TaintToleration"}},
            "the taint was removed; create a new pod",
        ),
        (
            "refused",
            "",
            {
                "status": {"phase": "Failed", "reason": "NodeAffinity"},
                "runtime": remembered(ended("main", 1)),
            },
            "change the pod's nodeSelector or affinity, or the node's labels; it ran before: each "
            "start of an agent or kubelet admits running pods again",
        ),
    ],
)
def test_hints(code: str, name: str, changes: dict[str, Any], parts: str) -> None:
    pod = changes.get("pod")
    more = {key: value for key, value in changes.items() if key != "pod"}
    made = facts(pod, **more)
    assert hint(replace(made, pod=changes.get("pod", made.pod)), code, name) == parts


@pytest.mark.parametrize(
    ("known", "parts"),
    [
        (RuntimeStart(), "see whether the container runtime runs, and its log"),
        (
            RuntimeStart("unix:///run/x.sock"),
            "see whether the container runtime at /run/x.sock runs, and its log",
        ),
        (
            RuntimeStart("unix:///run/crio/crio.sock", "crio.service"),
            "see whether the container runtime at /run/crio/crio.sock runs: systemctl status "
            "crio.service; systemctl restart crio.service starts it; its log: journalctl -u "
            "crio.service",
        ),
        (
            RuntimeStart("unix:///home/containerd/containerd.sock", "containerd.service", True),
            "run ./up.sh again: it starts the container runtime at "
            "/home/containerd/containerd.sock, beside the agent that runs; its log is "
            "/home/containerd/containerd.log",
        ),
    ],
)
def test_what_starts_the_runtime(known: RuntimeStart, parts: str) -> None:
    assert hint(facts(runtime_start=known), "runtime", "") == parts
