"""Volumes in memory are remounted around the change of memory limits, and retried after errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import VolumeSizeError
from kubeletpy.pods.runtime_status import ResizeOutcome
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from tests.kit.records import make_pod
from tests.unit.runtime_manager.act.test_resize_pod import MI, Resized
from tests.unit.runtime_manager.plan.test_resize import SMALL, res, sized

pytestmark = pytest.mark.virtual_time

BIG = res("200m", "64Mi", "400m", "256Mi")


@dataclass
class Volumes:
    """Volumes whose remounts are added to the list of the runtime's calls."""

    calls: list[str]
    error: str = ""
    sizes: dict[str, int] = field(default_factory=dict)

    async def resize(self, pod: Pod, volume: str, size: int) -> None:
        self.calls.append(f"remount {volume} {size // MI}Mi")
        if self.error:
            raise VolumeSizeError(self.error)
        self.sizes[volume] = size


class Node(Resized):
    """A node with volumes whose size can be changed."""

    def __init__(self, tmp_path: Path, *, gate: bool = True) -> None:
        super().__init__(tmp_path)
        self.volumes = Volumes(self.runtime.calls)
        self.node.settings = RuntimeSettings(resizes_memory_volumes=gate)
        self.node.options["resize_volume"] = self.volumes.resize
        self.node.restart_agent()


def pod(resources: Any, **sizes: str) -> Pod:
    volumes = [
        {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
        for name, size in sizes.items()
    ]
    return make_pod(sized("app", resources), volumes=volumes)


async def test_shrinking_comes_before_memory_and_growing_after_it(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.sync(pod(SMALL, a="64Mi", b="64Mi"))
    assert node.records.volumes("uid-1") == {"a": "64Mi", "b": "64Mi"}
    assert not node.volumes.sizes, "new volumes are not remounted"
    node.request_limits(memory=200 * MI, shares=200)
    result = await node.sync(pod(BIG, a="128Mi", b="32Mi"))
    assert not result.failed, result.error_message()
    assert [change for change in node.changes if not change.startswith("s ")] == [
        "remount b 32Mi",
        f"cgroup memory={200 * MI}",
        "u app-0",
        "remount a 128Mi",
        "cgroup shares=200",
        "u app-0",
    ]
    assert node.records.volumes("uid-1") == {"a": "128Mi", "b": "32Mi"}
    assert result.resize == ResizeOutcome(in_progress=False, done=("app",))
    assert not (await node.sync(pod(BIG, a="128Mi", b="32Mi"))).acted


async def test_a_volume_alone_is_resized_without_a_restart(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.sync(pod(SMALL, a="64Mi"))
    result = await node.sync(pod(SMALL, a="128Mi"))
    assert node.changes == ["remount a 128Mi"]
    assert result.resize == ResizeOutcome(in_progress=False)
    assert [(d.what, d.why) for d in result.decisions] == [
        ("resize volume a", "sizeLimit 64Mi -> 128Mi")
    ]


@pytest.mark.parametrize(("size", "grown"), [("32Mi", False), ("128Mi", True)])
async def test_a_refused_size_stays_in_progress_and_is_retried(
    tmp_path: Path, size: str, grown: bool
) -> None:
    node = Node(tmp_path)
    await node.sync(pod(SMALL, a="64Mi"))
    node.volumes.error = "remount with size=1: Invalid argument"
    node.request_limits(memory=200 * MI)
    result = await node.sync(pod(BIG, a=size))
    error = "failed to resize volume a: remount with size=1: Invalid argument"
    assert result.resize == ResizeOutcome(
        in_progress=True, error=error, done=("app",) if grown else ()
    )
    assert ("u app-0" in node.changes) is grown
    assert node.records.volumes("uid-1") == {"a": "64Mi"}
    node.volumes.error = ""
    again = await node.sync(pod(BIG, a=size))
    assert again.resize == ResizeOutcome(in_progress=False, done=("app",))
    assert node.records.volumes("uid-1") == {"a": size}


async def test_a_restarted_agent_compares_with_its_records(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.sync(pod(SMALL, a="64Mi"))
    node.node.restart_agent()
    await node.sync(pod(SMALL, a="64Mi"))
    assert node.changes == []
    await node.sync(pod(SMALL, a="128Mi"))
    assert node.changes == ["remount a 128Mi"]


async def test_without_the_gate_no_volume_is_touched(tmp_path: Path) -> None:
    node = Node(tmp_path, gate=False)
    await node.sync(pod(SMALL, a="64Mi"))
    await node.sync(pod(SMALL, a="128Mi"))
    assert node.changes == []
    assert node.records.volumes("uid-1") == {}
