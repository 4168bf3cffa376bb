"""A pod's cgroup is created first and removed last; its failures are reported."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.resources.cgroups.values import CgroupError
from tests.kit.pods import make_pod, runtime_status
from tests.unit.podworkers.test_syncer import EMPTY, Setup

pytestmark = pytest.mark.virtual_time


class Cgroups:
    def __init__(self, steps: list[str], *, there: bool = False, error: str = "") -> None:
        self.steps, self.there, self.error = steps, there, error

    def exists(self, pod: Pod) -> bool:
        return self.there

    async def ensure(self, pod: Pod) -> None:
        self.steps.append("cgroup")
        if self.error:
            raise CgroupError(self.error)

    async def destroy(self, pod: Pod) -> None:
        self.steps.append("cgroup removed")
        if self.error:
            raise CgroupError(self.error)


def setup_with(tmp_path: Any, **how: Any) -> Setup:
    steps: list[str] = []
    made = Setup(tmp_path, cgroups=Cgroups(steps, **how))
    made.fakes.steps = steps
    return made


async def sync(made: Setup, status: Any) -> Any:
    return await made.syncer.sync_pod(make_pod(), None, status, lambda: False)


async def test_it_is_there_before_anything_else_of_the_pod(tmp_path: Any) -> None:
    made = setup_with(tmp_path)
    outcome = await sync(made, EMPTY)
    assert outcome.error == ""
    steps = made.fakes.steps
    assert steps.index("cgroup") < steps.index("volumes") < steps.index("runtime")
    assert "kill" not in steps


async def test_without_it_nothing_starts_and_it_is_reported(tmp_path: Any) -> None:
    made = setup_with(tmp_path, error="cgroup /kubepods/x: full")
    outcome = await sync(made, EMPTY)
    message = "unable to ensure pod container exists: cgroup /kubepods/x: full"
    assert outcome.error == message
    assert ("FailedCreatePodContainer", message) in made.recorder.events
    assert "runtime" not in made.fakes.steps


async def test_containers_that_run_without_it_are_stopped_first(tmp_path: Any) -> None:
    made = setup_with(tmp_path)
    await sync(made, runtime_status())
    steps = made.fakes.steps
    assert steps.index("kill") < steps.index("cgroup")
    assert made.fakes.kill_args[1] is None
    kept = setup_with(tmp_path, there=True)
    await sync(kept, runtime_status())
    assert "kill" not in kept.fakes.steps


async def test_it_is_removed_after_the_volumes(tmp_path: Any) -> None:
    made = setup_with(tmp_path)
    outcome = await made.syncer.sync_terminated_pod(make_pod(), EMPTY)
    assert outcome.error == ""
    steps = made.fakes.steps
    assert steps.index("tear down") < steps.index("cgroup removed") < steps.index("finish")
    stuck = setup_with(tmp_path, error="busy")
    outcome = await stuck.syncer.sync_terminated_pod(make_pod(), EMPTY)
    assert outcome.error == "cgroup not removed: busy"
    assert "finish" not in stuck.fakes.steps
