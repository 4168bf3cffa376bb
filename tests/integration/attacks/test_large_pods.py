"""Pods as large as the API takes them: the agent goes on answering while it works on them."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod

COUNT = 2500
AT_MOST_S = 1.0
"""A health answer; on a machine that does nothing else it is a quarter of that."""


@contextmanager
def health_answers(node: Node) -> Iterator[list[float]]:
    """How long each answer took, in seconds, while in the block."""
    took: list[float] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.05):
            begun = time.monotonic()
            url = f"http://127.0.0.1:{node.health_port}/healthz"
            with urllib.request.urlopen(url, timeout=120) as answer:
                answer.read()
            took.append(time.monotonic() - begun)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield took
    finally:
        over.set()
        asking.join()


def test_many_variables_from_a_file(node2: Node, namespace: str) -> None:
    write = f"for n in $(seq {COUNT}); do echo \"K$n='value $n'\"; done > /e/env"
    mount = [{"name": "e", "mountPath": "/e"}]
    keys = [{"volumeName": "e", "path": "env", "key": f"K{n + 1}"} for n in range(COUNT)]
    env = [{"name": f"V{n}", "valueFrom": {"fileKeyRef": key}} for n, key in enumerate(keys)]
    wanted = pod(
        "variables",
        container(env=env),
        initContainers=[container("write", write, volumeMounts=mount)],
        volumes=[{"name": "e", "emptyDir": {}}],
    )
    with health_answers(node2) as took:
        node2.api.create("pods", namespace, wanted)
        node2.wait_running(namespace, "variables")
    assert max(took) < AT_MOST_S


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

    with health_answers(node2) as took:
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
    assert max(took) < AT_MOST_S
