"""The part of a pod's status that the API does not show, and since when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.status.store import LATE_S, NO_ANSWER, NO_MIRROR, unreported
from tests.virtual_time import EPOCH, on_virtual_time

from .samples import pod
from .test_status_manager import RecordingApi, manager, phase, settle

READY = {"type": "Ready", "status": "True"}
RUNS = {"name": "main", "state": {"running": {}}, "restartCount": 1}
ENDED = {"name": "main", "state": {"terminated": {"exitCode": 3}}, "restartCount": 1}


def status(name: str = "Running", *entries: Any, **more: Any) -> Any:
    return {"phase": name, "containerStatuses": list(entries), **more}


@pytest.mark.parametrize(
    ("old", "new", "stated"),
    [
        ({}, {}, ""),
        ({}, status("Running", RUNS), "phase Running instead of Pending, container main running"),
        (status("Running", RUNS), status("Running", RUNS), ""),
        (
            status("Running", RUNS, conditions=[READY]),
            status("Running", ENDED),
            "not Ready, container main ended with exit code 3",
        ),
        (status("Running"), status("Running", conditions=[READY]), "Ready"),
        (
            status("Running", RUNS),
            status("Running", {**RUNS, "restartCount": 2}),
            "container main restarted 2 times",
        ),
        (
            status("Running", {"name": "main", "state": {"waiting": {}}}),
            status("Running", RUNS),
            "container main running",
        ),
        (
            status("Pending", initContainerStatuses=[RUNS]),
            status("Pending", initContainerStatuses=[ENDED]),
            "container main ended with exit code 3",
        ),
        (
            {},
            status("Pending", *({**ENDED, "name": f"c{n}"} for n in range(7))),
            ", ".join(f"container c{n} ended with exit code 3" for n in range(5)) + " and 2 more",
        ),
    ],
)
def test_the_text_of_an_unreported_status(old: Any, new: Any, stated: str) -> None:
    assert unreported(old, new) == stated


@on_virtual_time
async def test_a_write_without_an_answer_is_a_problem_after_a_while() -> None:
    """The time is that of the first unreported change, not of the newest."""
    api = RecordingApi()
    api.gate = asyncio.Event()
    of = manager(api)
    of.set_status(pod(), phase("Running"))
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(LATE_S - 1)
    assert of.problem(pod().uid) is None
    of.set_status(pod(), phase("Failed"), containers_may_run=False)
    await asyncio.sleep(2)
    problem = of.problem(pod().uid)
    assert problem is not None
    assert (problem.message, problem.count) == (NO_ANSWER, 0)
    assert problem.since == pytest.approx(EPOCH + began)
    assert "phase Failed instead of Pending" in problem.unreported
    api.gate.set()
    await settle(of)
    assert of.problem(pod().uid) is None


@on_virtual_time
async def test_a_refused_write_counts_from_the_change_also_after_a_success() -> None:
    api = RecordingApi()
    of = manager(api)
    of.set_status(pod(), phase("Running"))
    await settle(of)
    await asyncio.sleep(60)
    api.failures = [Unavailable("refused")] * 3
    changed = EPOCH + asyncio.get_running_loop().time()
    of.set_status(pod(), phase("Failed"), containers_may_run=False)
    await asyncio.sleep(0.1)
    problem = of.problem(pod().uid)
    assert problem is not None
    assert problem.since == pytest.approx(changed)
    assert "phase Failed instead of Running" in problem.unreported
    await settle(of)
    assert of.problem(pod().uid) is None


@on_virtual_time
async def test_a_static_pod_without_a_mirror_pod_is_not_reported() -> None:
    metadata = {**pod().metadata, "annotations": {"kubernetes.io/config.source": "file"}}
    static = type(pod())({**pod().object, "metadata": metadata})  # type: ignore[typeddict-item]
    of = manager(RecordingApi())
    of.set_status(static, phase("Running"))
    await asyncio.sleep(LATE_S + 1)
    problem = of.problem(static.uid)
    assert problem is not None
    assert (problem.message, problem.count) == (NO_MIRROR, 0)
