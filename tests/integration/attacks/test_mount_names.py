"""A pod chooses names that stand in the kernel's mount table: nobody else's pod may suffer."""

from __future__ import annotations

from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.volumes.test_kinds import mount

SEPARATORS = ("\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\r")
"""Line boundaries of str.splitlines(), besides a newline."""


def test_names_that_look_like_ends_of_lines_block_no_tear_down_and_no_start(
    node2: Node, namespace: str
) -> None:
    forged = "9 1 0:1 / /etc rw - tmpfs tmpfs rw"
    mounts = [
        mount("e", f"/{at}", subPath=f"a{separator}{forged}".replace("/", "_") + separator)
        for at, separator in enumerate(SEPARATORS)
    ]
    odd = container("main", FOREVER, volumeMounts=mounts)
    plain = container("main", FOREVER, volumeMounts=[mount("e", "/e", subPath="a")])
    volumes = [{"name": "e", "emptyDir": {}}]
    node2.apply(pod("odd", odd, volumes=volumes), namespace=namespace)
    node2.wait_running(namespace, "odd")
    node2.apply(pod("plain", plain, volumes=volumes), namespace=namespace)
    node2.wait_running(namespace, "plain")

    node2.api.delete("pods", namespace, "plain", grace=1)
    node2.wait_removed(namespace, "plain")

    node2.terminate()
    node2.start_agent()
    node2.wait_ready()

    node2.api.delete("pods", namespace, "odd", grace=1)
    node2.wait_removed(namespace, "odd")
