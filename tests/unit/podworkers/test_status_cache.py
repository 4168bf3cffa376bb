"""The status cache: of two statuses the later wins, and no end that was told is forgotten."""

from __future__ import annotations

from dataclasses import replace

from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache, with_known_ends
from tests.unit.podworkers.builders import runtime_status

R, E = ContainerState.RUNNING, ContainerState.EXITED


def with_app(status: PodRuntimeStatus, *, at: int) -> PodRuntimeStatus:
    """The same with a container that the worker has just started."""
    app = ContainerStatus(id="c2", name="app", state=R, sandbox_id="s1")
    return replace(status, containers=(app, *status.containers), observed_at=at)


def states(cache: PodStatusCache) -> dict[str, ContainerState]:
    status = cache.status("uid-web")
    assert status is not None
    return {c.id: c.state for c in status.containers}


def test_an_exit_that_was_reported_during_a_sync_is_not_undone_by_its_result() -> None:
    cache, told = PodStatusCache(), list[str]()
    began = runtime_status(state=R, at=10)
    cache.set(began, own=True)
    cache.subscribe(told.append)
    cache.set(runtime_status(state=E, exit_code=3, at=20))
    assert cache.set(with_app(began, at=30), own=True)
    assert states(cache) == {"c1": E, "c2": R}
    entry = cache.get("uid-web")
    assert entry is not None
    assert not entry.own, "the worker does not know of the exit: it must look again"
    assert entry.status.containers[1].exit_code == 3
    assert told == ["uid-web", "uid-web"]


def test_a_sandbox_that_died_during_a_sync_stays_dead() -> None:
    cache = PodStatusCache()
    began = runtime_status(state=R, at=10)
    cache.set(runtime_status(state=R, ready=False, at=20))
    cache.set(with_app(began, at=30), own=True)
    status = cache.status("uid-web")
    assert status is not None
    assert not status.has_ready_sandbox


def test_nothing_new_leaves_the_workers_status_its_own() -> None:
    cache = PodStatusCache()
    began = runtime_status(state=R, at=10)
    cache.set(began, own=True)
    done = with_app(began, at=30)
    assert with_known_ends(done, began) is done
    cache.set(done, own=True)
    entry = cache.get("uid-web")
    assert entry is not None
    assert entry.own
    assert entry.status is done


def test_what_was_removed_does_not_come_back() -> None:
    removed = replace(runtime_status(state=R, at=30), containers=())
    assert with_known_ends(removed, runtime_status(state=E, at=20)).containers == ()
