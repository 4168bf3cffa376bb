"""Images and writable layers on a file system of their own: what fills it, and who goes for it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.integration.eviction.eaters import STAY, bound, emptied
from tests.integration.node.fixtures import MakeNode
from tests.integration.node.seen import status
from tools.env.containerd import Containerd, programs
from tools.env.images import PAUSE, busybox_image, write_archive
from tools.env.machine_faults import MI, file_system, free, leave

UNUSED = "docker.io/library/unused:1"


@pytest.fixture(scope="module")
def apart(session_dir: Path) -> Iterator[dict[str, Containerd]]:
    """Two containerds that have a file system of 500 MiB each."""
    with ExitStack() as stack:
        yield {
            f"containerd{generation}": stack.enter_context(_apart(session_dir, generation))
            for generation in (1, 2)
        }


@contextmanager
def _apart(session_dir: Path, generation: int) -> Iterator[Containerd]:
    directory = session_dir / f"i{generation}"
    with file_system(directory / "root", 500 * MI):
        instance = Containerd(directory, programs(generation))
        try:
            instance.start()
            instance.import_images()
            yield instance
        finally:
            instance.stop()
    assert instance.remove() == []


@pytest.fixture(scope="module")
def make_node(apart: dict[str, Containerd], make_node: MakeNode) -> MakeNode:
    """Ends before its containerds do."""
    return make_node


@pytest.mark.timeout(240)
@pytest.mark.parametrize("which", ["containerd1", "containerd2"])
def test_unused_images_are_removed_before_the_pod_whose_layer_fills_the_disk_is_evicted(
    make_node: MakeNode, apart: dict[str, Containerd], which: str, tmp_path: Path
) -> None:
    containerd = apart[which]
    node = make_node(
        containerd,
        config={
            "evictionHard": {"imagefs.available": "100Mi"},
            "evictionPressureTransitionPeriod": "2s",
            "imageMinimumGCAge": "1s",
        },
    )
    ballast = {"ballast": os.urandom(90 * MI)}
    containerd.import_images(write_archive(tmp_path / "i.tar", busybox_image(UNUSED, ballast)))
    root = containerd.directory / "root"
    node.start()
    try:
        node.apply(bound("calm"), namespace="default")
        node.wait_running("default", "calm")
        node.until((node.root_dir / "image_ages.json").exists, "the images are known")
        time.sleep(1)  # the age that protects them
        leave(root / "filler", 90 * MI)
        node.wait_condition("DiskPressure", "True", timeout=30)
        node.until(lambda: UNUSED not in containerd.ctr("images", "ls", "-q"), "it is removed")
        node.wait_condition("DiskPressure", "False", timeout=30)
        assert node.metric("kubelet_evictions") == 0
        assert status(node.pod("default", "calm"))["phase"] == "Running"

        count = (free(root) - 60 * MI) // MI
        fills = f"dd if=/dev/zero of=/f bs=1M count={count} 2>/dev/null; "
        node.apply(bound("writer", fills + STAY), namespace="default")
        # first: a condition of two seconds may be over when the pod has ended
        node.wait_condition("DiskPressure", "True", timeout=60)
        removed = node.wait_phase("default", "writer", "Failed", timeout=60)
        message = status(removed)["message"]
        assert re.match(r"The node was low on resource: ephemeral-storage\. ", message), message
        node.wait_condition("DiskPressure", "False", timeout=60)
        assert status(node.pod("default", "calm"))["phase"] == "Running"
        assert node.metric("kubelet_evictions", eviction_signal="imagefs.available") == 1

        assert PAUSE in containerd.ctr("images", "ls", "-q")
        node.apply(bound("next"), namespace="default")  # what it needs is still there
        node.wait_running("default", "next")
    finally:
        emptied(node)
        node.terminate()
