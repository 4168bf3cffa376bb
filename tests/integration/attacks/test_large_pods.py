"""Pods as large as the API takes them: the agent goes on answering while it works on them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kubeletpy.base.api.types import JSON
from tests.integration.attacks.test_hostile_pods import bound
from tests.integration.node.machine import ROOT, Node
from tests.integration.node.pods import container, pod
from tests.kit import large_pods
from tests.kit.large_pods import Make
from tools.env.waiting import wait_until

COUNT = 2500
WORKS_AT_MOST_S = 0.25
"""Most work before a health answer, whatever pods contain."""


@contextmanager
def priority(pid: int, nice: int) -> Iterator[None]:
    """Run a process's threads before other work of the machine.

    Otherwise a thread that waits for another thread would also wait for that other work.
    """

    def put(value: int) -> None:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, int(task.name), value)

    put(nice)
    try:
        yield
    finally:
        put(0)


@contextmanager
def prompt_health_answers(node: Node) -> Iterator[None]:
    """The agent works little before each health answer while in the block."""
    url = f"http://127.0.0.1:{node.health_port}/healthz"
    command = [
        sys.executable,
        "-m",
        "tests.integration.attacks.ask_health",
        str(node.agent.pid),
        url,
    ]
    with (
        priority(int(node.agent.pid or 0), -15),
        subprocess.Popen(
            command, bufsize=0, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as asking,
    ):
        assert asking.stdout is not None
        assert asking.stdout.readline() == b"\n", "the measuring process has ended"
        try:
            yield
        finally:
            out, _ = asking.communicate()
    assert asking.returncode == 0
    assert max(map(float, out.splitlines())) < WORKS_AT_MOST_S


def fewer_containers(make: Make) -> JSON:
    """The pod with no more containers than a small machine starts within a test."""
    return _with_first_containers(large_pods.containers(make), 20)


def fewer_mounts(make: Make) -> JSON:
    return _with_first_containers(large_pods.mounts(make), 1)


def _with_first_containers(made: JSON, count: int) -> JSON:
    return {**made, "spec": {**made["spec"], "containers": made["spec"]["containers"][:count]}}


def test_every_kind_of_large_pod_at_once(node2: Node, namespace: str) -> None:
    kinds = (
        large_pods.environment,
        fewer_mounts,
        large_pods.objects,
        large_pods.annotation,
        large_pods.fields,
        large_pods.references,
        large_pods.hook,
        fewer_containers,
        large_pods.lists,
    )
    node2.api.create("configmaps", namespace, large_pods.SETTINGS)
    names = []

    def settled(name: str) -> bool:
        warnings = (
            event["type"] == "Warning"
            for event in node2.api.all("events", namespace)
            if event["involvedObject"]["name"] == name
        )
        return node2.pod(namespace, name)["status"]["phase"] == "Running" or any(warnings)

    with prompt_health_answers(node2):
        for kind in kinds:
            made = kind(container)
            name = kind.__name__.replace("_", "-")
            made["metadata"]["name"] = name
            made["spec"] |= {"nodeName": node2.name, "terminationGracePeriodSeconds": 1}
            node2.api.create("pods", namespace, made)
            names.append(name)
        node2.api.create("pods", namespace, bound(pod("plain", container()), node2))
        node2.wait_running(namespace, "plain")

        for name in names:
            wait_until(partial(settled, name), f"{name} runs or not", timeout=90, interval=0.5)
        for name in names:
            node2.api.delete("pods", namespace, name)
        for name in names:
            node2.wait_removed(namespace, name, timeout=120)


def test_many_variables_from_a_file(node2: Node, namespace: str) -> None:
    write = f"for n in $(seq {COUNT}); do echo \"K$n='value $n'\"; done > /e/env"
    mount = [{"name": "e", "mountPath": "/e"}]
    keys = [{"volumeName": "e", "path": "env", "key": f"K{n + 1}"} for n in range(COUNT)]
    env = [{"name": f"V{n}", "valueFrom": {"fileKeyRef": key}} for n, key in enumerate(keys)]
    desired = pod(
        "variables",
        container(env=env),
        initContainers=[container("write", write, volumeMounts=mount)],
        volumes=[{"name": "e", "emptyDir": {}}],
    )
    with prompt_health_answers(node2):
        node2.api.create("pods", namespace, desired)
        node2.wait_running(namespace, "variables")


def test_many_files_that_show_all_annotations(node2: Node, namespace: str) -> None:
    def shows(name: str, count: int) -> dict[str, object]:
        field = {"fieldRef": {"fieldPath": "metadata.annotations"}}
        items = [{"path": str(number), **field} for number in range(count)]
        return pod(
            name,
            container(volumeMounts=[{"name": "fields", "mountPath": "/f"}]),
            volumes=[{"name": "fields", "downwardAPI": {"items": items}}],
            annotations={"large": "\n" * 250_000},
        )

    with prompt_health_answers(node2):
        node2.api.create("pods", namespace, shows("many", 100))
        node2.api.create("pods", namespace, shows("too-many", 600))
        node2.wait_running(namespace, "many")

        def refused() -> bool:
            return any(
                event["reason"] == "FailedMount"
                and 'volume "fields"' in event["message"]
                and "may have 67108864 bytes together" in event["message"]
                for event in node2.api.all("events", namespace)
            )

        node2.until(refused, "the event of the limit", namespace, "too-many")
