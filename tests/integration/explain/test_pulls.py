"""How far a pull is, from containerd's content store."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.integration.lifecycle.command import until_verdict
from tests.integration.node.machine import Node
from tests.integration.node.pods import pod
from tests.kit.held_registry import HeldRegistry
from tools.env.images import busybox_image


@pytest.mark.needs("containerd's services")
def test_a_pull_shows_its_bytes_and_the_layer_that_is_stuck(
    node: Node, namespace: str, tmp_path: Path
) -> None:
    registry = HeldRegistry(tmp_path)
    node.containerd.trust(registry.server)
    image = busybox_image(extra={"data": os.urandom(8 << 20)})
    name = registry.add(image, "held.images/a-b:1")
    main = {"name": "main", "image": name, "command": ["sh", "-c", "sleep 1000"]}
    node.apply(pod("pulls", main), namespace=namespace)
    until_verdict(node, namespace, "pulls", f"image {name} is being pulled", " of ", " MiB (")
    verdict = until_verdict(node, namespace, "pulls", "layer 1 of 1 has been stuck for")
    assert re.search(r"[45].\d MiB of .* \([45]\d %\)", verdict), verdict
    done = node.metric("kubeletpy_image_pull_bytes", image=name, state="done")
    assert 4 << 20 <= done < 6 << 20
    registry.release(name)
    node.wait_running(namespace, "pulls")
    assert "kubeletpy_image_pull_bytes{" not in node.http("/metrics")[1]
    registry.close()
