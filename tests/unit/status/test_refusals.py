"""Refused statuses are retried and reported, and in the end do not keep a pod Terminating."""

from __future__ import annotations

import asyncio

import pytest

from kubeletpy.kubeapi.errors import ApiError, Forbidden, Invalid, Unavailable
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.pods.pod import Pod
from kubeletpy.status.status_manager import GIVE_UP_AFTER, SAY_AFTER
from tests.kit.status import pod
from tests.kit.virtual_time import eventually

from .test_status_manager import RecordingApi, manager, phase, settle

pytestmark = pytest.mark.virtual_time

INVALID = Invalid("status.x: Required value", code=422)
FORBIDDEN = Forbidden("may not patch pods/status", code=403)


def deleted() -> Pod:
    obj = dict(pod().object)
    obj["metadata"] = {**pod().metadata, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    return Pod(obj)  # type: ignore[arg-type]


async def test_a_deleted_pod_is_removed_although_its_last_status_is_never_accepted() -> None:
    api, stated = RecordingApi(), list[str]()
    api.failures = [INVALID] * GIVE_UP_AFTER
    of = manager(api, on_refused=lambda pod, why: stated.append(f"{pod.name}: {why}"))
    of.set_status(deleted(), phase("Running"), containers_may_run=False)
    of.finish(deleted())
    await settle(of)
    assert [call[0] for call in api.calls] == ["delete"]
    assert stated == [f"{pod().name}: {INVALID}"]


@pytest.mark.parametrize("error", [FORBIDDEN, Unavailable("no answer")])
async def test_a_status_that_may_be_accepted_later_is_retried(error: ApiError) -> None:
    api = RecordingApi()
    api.failures = [error] * (GIVE_UP_AFTER + 5)
    of = manager(api)
    of.set_status(deleted(), phase("Running"), containers_may_run=False)
    of.finish(deleted())
    await settle(of)
    assert [call[0] for call in api.calls] == ["patch", "delete"]


async def test_an_invalid_status_of_a_live_pod_is_retried() -> None:
    api = RecordingApi()
    api.failures = [INVALID] * (GIVE_UP_AFTER + 5)
    of = manager(api)
    of.set_status(pod(), phase("Running"))
    await settle(of)
    assert [call[0] for call in api.calls] == ["patch"]


async def test_the_problem_can_be_read_until_the_write_succeeds() -> None:
    api, stated, traces = RecordingApi(), list[str](), Traces()
    traces.enter(pod().uid, "default", "x")
    api.failures = [Unavailable("down")] + [FORBIDDEN] * SAY_AFTER
    of = manager(api, on_refused=lambda _pod, why: stated.append(why), traces=traces)
    of.set_status(pod(), phase("Running"))
    await asyncio.sleep(0.02)
    problem = of.problem(pod().uid)
    assert problem is not None
    assert (problem.message, problem.count) == ("down", 1)
    await eventually(lambda: not api.failures)
    problem = of.problem(pod().uid)
    assert problem is not None
    assert (problem.message, problem.count) == (str(FORBIDDEN), 1 + SAY_AFTER)
    await settle(of)
    assert of.problem(pod().uid) is None
    assert of.problem("unknown") is None
    assert stated == [str(FORBIDDEN)]
    trace = traces.pod_trace(pod().uid)
    assert trace is not None
    (span,) = trace.start
    assert (span.name, span.detail) == ("write status", "Running, Ready")
