"""Pods that are bound to the node, and what they do there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tools.env.images import Image, busybox_image
from tools.env.process import run

STAY = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"


def bound(
    name: str, script: str = "", volume: JSON | None = None, places: Sequence[str] = ("/mem",)
) -> JSON:
    """A pod that has such a volume at each of these places (volumes v, vv, …)."""
    mounts = [{"name": "v" * n, "mountPath": place} for n, place in enumerate(places, start=1)]
    if volume is None:
        mounts = []
    made = container(script=script, volumeMounts=mounts) if script else container()
    volumes = [{"name": mount["name"], "emptyDir": volume} for mount in mounts]
    return pod(name, made, nodeName="test-node", volumes=volumes)


STRESS = "docker.io/library/stress:1"


def stress_image() -> Image:
    """stress-ng with the libraries that it needs."""
    program = Path("/usr/bin/stress-ng")
    needs = [word for word in run("ldd", program).split() if word.startswith("/")]
    files = {path[1:]: (0o755, Path(path).read_bytes()) for path in (str(program), *needs)}
    made = busybox_image(STRESS)
    return replace(made, files={**made.files, **files})


def emptied(node: Node) -> None:
    for made in node.api.all("pods", "default"):
        node.api.delete("pods", "default", made["metadata"]["name"], grace=0)
    node.until(lambda: not node.sandboxes("default"), "no pods left")
