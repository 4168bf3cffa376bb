"""Records kept for each pod: decisions, start errors, and whether the pod is quiet."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    Decision,
    PodRuntimeStatus,
    PodSyncResult,
    SandboxStatus,
    StartError,
    SyncAction,
    SyncResult,
)
from kubeletpy.podworkers.history import DecisionHistory, ReasonCache
from kubeletpy.podworkers.status_cache import PodStatusCache

ONE, TWO, THREE = (Decision(name, "why") for name in ("one", "two", "three"))


def kept(history: DecisionHistory, uid: str = "u") -> list[tuple[str, int]]:
    return [(entry.decision.what, entry.count) for entry in history.decisions(uid)]


def test_repeated_decisions_are_counted() -> None:
    history = DecisionHistory()
    history.add("u", (ONE, TWO), 1.0)
    history.add("u", (ONE,), 2.0)
    assert kept(history) == [("one", 2), ("two", 1)]
    first = history.decisions("u")[0]
    assert (first.at, first.last_at) == (1.0, 2.0)


def test_once_is_once() -> None:
    history = DecisionHistory()
    for now in (1.0, 2.0):
        history.add_once("u", ONE, now)
    history.add_once("u", TWO, 3.0)
    assert kept(history) == [("one", 1), ("two", 1)]


def test_history_is_bounded() -> None:
    history = DecisionHistory(per_pod=2, max_pods=2)
    history.add("u", (ONE, TWO, THREE), 1.0)
    assert kept(history) == [("two", 1), ("three", 1)]
    history.add("v", (ONE,), 2.0)
    history.add("u", (ONE,), 3.0)
    history.add("w", (ONE,), 4.0)
    assert (kept(history, "v"), kept(history, "w")) == ([], [("one", 1)])
    assert kept(history) == [("three", 1), ("one", 1)]


ERROR = StartError("ErrImagePull", "no such image")
LOOP = StartError("CrashLoopBackOff", "back-off")


def result(*steps: tuple[SyncAction, StartError | None], **errors: StartError) -> PodSyncResult:
    return PodSyncResult(
        tuple(SyncResult(action, "a", error) for action, error in steps), start_errors=errors
    )


@pytest.mark.parametrize(
    ("step", "left"),
    [
        ((SyncAction.START_CONTAINER, None), {}),
        ((SyncAction.INIT_CONTAINER, None), {}),
        ((SyncAction.START_CONTAINER, ERROR), {"a": ERROR}),
        ((SyncAction.KILL_CONTAINER, None), {"a": ERROR}),
    ],
)
def test_a_start_error_lasts_until_a_start(step: Any, left: Any) -> None:
    cache = ReasonCache()
    cache.update("u", result(a=ERROR))
    cache.update("u", result(step))
    assert cache.get("u") == left


def test_a_start_in_backoff_repeats_the_previous_error() -> None:
    cache = ReasonCache()
    cache.update("u", result(a=ERROR))
    for _ in range(2):
        cache.update("u", result(a=LOOP))
        assert cache.get("u")["a"].message == "back-off: ErrImagePull: no such image"
    cache.update("u", result(a=ERROR))
    assert cache.get("u")["a"] == ERROR
    for _ in range(2):
        cache.update("v", result(a=LOOP))
        assert cache.get("v")["a"] == LOOP


def test_start_errors_are_bounded_and_forgotten() -> None:
    cache = ReasonCache(max_pods=2)
    for uid in ("u", "v", "u", "w"):
        cache.update(uid, result(a=ERROR))
    assert [uid for uid in "uvw" if cache.get(uid)] == ["u", "w"]
    cache.update("v", result((SyncAction.START_CONTAINER, None)))
    assert [uid for uid in "uvw" if cache.get(uid)] == ["u", "w"], "nothing takes no room"
    cache.forget("u")
    assert cache.get("u") == {}


IDLE = PodRuntimeStatus("u", "p", "d", (SandboxStatus(id="s", ready=False),))
RUNS = replace(
    IDLE,
    containers=(
        ContainerStatus(
            id="c", name="a", state=ContainerState.RUNNING, sandbox_id="s", created_at=0
        ),
    ),
)


@pytest.mark.parametrize(
    ("status", "error", "quiet"),
    [(IDLE, "", True), (RUNS, "", False), (IDLE, "down", False), (RUNS, "down", False)],
)
def test_a_quiet_pod(status: PodRuntimeStatus, error: str, quiet: bool) -> None:
    cache = PodStatusCache()
    cache.set(status)
    if error:
        cache.set_error(status, error)
    assert cache.quiet("u") is quiet


@pytest.mark.parametrize("populated", [True, False])
def test_a_pod_without_entry_is_quiet_only_after_a_relist(populated: bool) -> None:
    cache = PodStatusCache()
    cache.populated = populated
    assert cache.quiet("u") is populated
