"""A pod with claims waits for them before its sandbox is created, and not afterwards."""

from __future__ import annotations

from typing import Any, cast

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.steps.resources import ClaimsStep
from kubeletpy.podworkers.syncer import PodSync
from kubeletpy.resources.dra.model import ClaimProblem
from tests.unit.podworkers.builders import make_pod, runtime_status
from tests.unit.podworkers.test_workers import Recorder
from tests.virtual_time import LoopClock, on_virtual_time

EMPTY = PodRuntimeStatus("uid-web", "web", "default")
WITH = make_pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}])


class Manager:
    def __init__(self, *problems: str) -> None:
        self.problems = list(problems)
        self.calls: list[str] = []

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        if self.problems and (problem := self.problems.pop(0)):
            raise ClaimProblem(problem)

    async def prepare(self, pod: Pod) -> None:
        self._answer("prepare")

    async def unprepare(self, pod: Pod) -> None:
        self._answer("unprepare")


def made(manager: Manager) -> tuple[ClaimsStep, Recorder]:
    recorder = Recorder()
    return ClaimsStep(cast(Any, manager), cast(Any, recorder), LoopClock()), recorder


def sync(pod: Pod, status: PodRuntimeStatus = EMPTY) -> PodSync:
    return PodSync(pod, None, status, lambda: False)


@on_virtual_time
async def test_it_backs_off_and_reports_the_error() -> None:
    step, recorder = made(Manager("no driver", "no driver", "", "no driver"))
    waits = []
    for _ in range(4):
        outcome = await step.run(sync(WITH))
        waits.append(outcome and outcome.retry_at and round(outcome.retry_at - LoopClock().now()))
        if outcome is not None:
            assert outcome.error == "Failed to prepare dynamic resources: no driver"
    assert waits == [1, 2, None, 1]
    assert "FailedPrepareDynamicResources" in str(recorder.events)


@on_virtual_time
async def test_a_pod_without_claims_and_one_with_its_sandbox_are_left_alone() -> None:
    manager = Manager("never asked")
    step, _ = made(manager)
    assert await step.run(sync(make_pod())) is None
    assert await step.run(sync(WITH, runtime_status())) is None
    assert manager.calls == []


@on_virtual_time
async def test_a_failed_release_is_retried() -> None:
    step, _ = made(Manager("no driver", ""))
    outcome = await step.release(WITH)
    assert outcome is not None
    assert "no driver" in outcome.error
    assert await step.release(WITH) is None
