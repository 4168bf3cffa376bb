"""The status cache keeps the later of two statuses, and no reported exit is lost."""

from __future__ import annotations

import pytest

from kubeletpy.base.structs import replace
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
    cache, notified = PodStatusCache(), list[str]()
    began = runtime_status(state=R, at=10)
    cache.set(began, own=True)
    cache.subscribe(notified.append)
    cache.set(runtime_status(state=E, exit_code=3, at=20))
    assert cache.set(with_app(began, at=30), own=True)
    assert states(cache) == {"c1": E, "c2": R}
    entry = cache.get("uid-web")
    assert entry is not None
    assert not entry.own, "the worker has not seen the exit: it must read the status again"
    assert entry.status.containers[1].exit_code == 3
    assert notified == ["uid-web", "uid-web"]


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


def test_the_workers_status_of_a_sandbox_that_it_stopped_wins() -> None:
    own = runtime_status(state=R, ready=False, at=30)
    stale = tuple(replace(each, source="file") for each in own.sandboxes)
    known = replace(own, sandboxes=stale)
    assert with_known_ends(own, known) is own


def test_the_workers_newer_status_replaces_the_cached_one() -> None:
    own = runtime_status(state=E, exit_code=3, at=30)
    known = runtime_status(state=E, exit_code=9, at=20)
    assert with_known_ends(own, known) is own
    running = runtime_status(state=R, at=30)
    elsewhere = tuple(replace(each, ips=("10.0.0.1",)) for each in running.sandboxes)
    assert with_known_ends(running, replace(running, sandboxes=elsewhere)) is running


def test_a_removed_container_does_not_come_back() -> None:
    removed = replace(runtime_status(state=R, at=30), containers=())
    assert with_known_ends(removed, runtime_status(state=E, at=20)).containers == ()


def test_a_pod_that_can_not_be_read_may_run() -> None:
    """Its volumes, devices and CPUs count as in use until a status is read."""
    cache = PodStatusCache()
    cache.set_error(PodRuntimeStatus("uid-web", "web", "default"), "no answer")
    assert cache.running() == {"uid-web"}
    cache.set(runtime_status(state=E, ready=False))
    assert cache.running() == set()
    cache.set_error(PodRuntimeStatus("uid-web", "web", "default"), "no answer")
    assert cache.running() == {"uid-web"}
    cache.set(runtime_status(state=E, ready=False))
    assert cache.running() == set(), "also when it is as it was before"
    cache.set_error(PodRuntimeStatus("uid-web", "web", "default"), "no answer")
    cache.remove("uid-web")
    assert cache.running() == set()


IPS = ("10.0.0.9",)


@pytest.mark.parametrize(
    ("old", "new", "is_new", "ips"),
    [
        (None, runtime_status(), True, IPS),
        (None, runtime_status(state=None, ready=False), True, ()),
        (runtime_status(at=5), runtime_status(at=4, state=E), False, IPS),
        (runtime_status(at=5), runtime_status(at=5, state=E), True, IPS),
        (runtime_status(at=5), runtime_status(at=6), False, IPS),
        (runtime_status(at=5), runtime_status(at=6, exit_code=1), True, IPS),
        (runtime_status(at=5), runtime_status(at=6, container_id="c2"), True, IPS),
        # an ended sandbox keeps its addresses; a new one has its own, or none yet
        (runtime_status(at=5), runtime_status(at=6, ready=False), True, IPS),
        (runtime_status(at=5), replace(runtime_status(at=6), ips=()), True, ()),
        (
            runtime_status(at=5),
            replace(runtime_status(at=6, ready=False), ips=("10.0.0.1",)),
            True,
            ("10.0.0.1",),
        ),
        (runtime_status(at=5, ready=False), runtime_status(at=6, ready=False), False, ()),
        (runtime_status(at=5, ready=False), runtime_status(at=6), True, IPS),
    ],
)
def test_statuses_that_count_as_new(
    old: PodRuntimeStatus | None, new: PodRuntimeStatus, is_new: bool, ips: tuple[str, ...]
) -> None:
    cache = PodStatusCache()
    notified: list[str] = []
    if old is not None:
        cache.set(old)
    cache.subscribe(notified.append)
    assert cache.set(new) is is_new
    assert notified == (["uid-web"] if is_new else [])
    status = cache.status("uid-web")
    assert status is not None
    assert status.ips == ips


@pytest.mark.parametrize(
    ("status", "runs"),
    [
        (runtime_status(), True),
        (runtime_status(state=E), True),
        (runtime_status(ready=False), True),
        (runtime_status(state=E, ready=False), False),
        (runtime_status(state=None, ready=False), False),
    ],
)
def test_pods_that_count_as_running(status: PodRuntimeStatus, runs: bool) -> None:
    for before in (None, runtime_status(at=0), runtime_status(state=E, ready=False, at=0)):
        cache = PodStatusCache()
        if before is not None:
            cache.set(before)
        cache.set(status)
        assert cache.running() == ({"uid-web"} if runs else set())
        assert cache.quiet("uid-web") is not runs


def test_an_older_status_is_better_than_an_error() -> None:
    cache = PodStatusCache()
    notified: list[str] = []
    cache.subscribe(notified.append)
    nothing = PodRuntimeStatus("uid-web", "web", "default", observed_at=9)
    cache.set_error(nothing, "no answer")
    assert (notified, cache.usable("uid-web")) == (["uid-web"], None)
    cache.set_error(nothing, "no answer")
    assert notified == ["uid-web"], "the same error is no news"
    cache.set_error(nothing, "another")
    assert notified == ["uid-web"] * 2
    assert cache.set(runtime_status(at=3))
    assert notified == ["uid-web"] * 3
    assert cache.usable("uid-web") == runtime_status(at=3)
    cache.set_error(nothing, "no answer")
    entry = cache.get("uid-web")
    assert entry is not None
    assert (entry.status, entry.error) == (runtime_status(at=3), "no answer")
    # read again without a change: news for those who wait
    assert cache.set(runtime_status(at=3))
    assert len(notified) == 5


@pytest.mark.parametrize("populated", [False, True])
def test_absent_pods(populated: bool) -> None:
    cache = PodStatusCache()
    assert not cache.populated
    cache.populated = populated
    assert (cache.known_absent("u"), cache.quiet("u")) == (populated, populated)
    cache.invalidate("u")
    assert (cache.known_absent("u"), cache.quiet("u")) == (False, False)
    cache.confirm_absent("u")
    assert (cache.known_absent("u"), cache.quiet("u")) == (populated, populated)
    cache.invalidate("uid-web")
    cache.set(runtime_status())
    assert not cache.known_absent("uid-web")
    assert cache.remove("uid-web")
    assert not cache.remove("uid-web")
    assert cache.known_absent("uid-web") is populated


def test_a_pod_that_was_acted_on_has_no_usable_status() -> None:
    cache = PodStatusCache()
    cache.set(runtime_status())
    assert cache.usable("uid-web") == runtime_status()
    cache.invalidate("uid-web")
    assert cache.usable("uid-web") is None
    assert cache.status("uid-web") == runtime_status()
    assert not cache.set(runtime_status(at=2)), "it contains nothing new, but is fresh"
    assert cache.usable("uid-web") == runtime_status(at=2)
    assert (len(cache), list(cache)) == (1, ["uid-web"])
    assert (cache.usable("x"), cache.status("x")) == (None, None)


@pytest.mark.parametrize(
    ("first_own", "second", "own", "known"),
    [
        (True, runtime_status(at=2), False, True),
        (True, runtime_status(at=2, state=E), False, False),
        (False, runtime_status(at=2), False, False),
        (False, runtime_status(at=2), True, True),
        (False, runtime_status(at=2, state=E), True, True),
    ],
)
def test_an_entry_is_its_workers_own_until_another_status_differs(
    first_own: bool, second: PodRuntimeStatus, own: bool, known: bool
) -> None:
    cache = PodStatusCache()
    cache.set(runtime_status(), own=first_own)
    cache.set(second, own=own)
    entry = cache.get("uid-web")
    assert entry is not None
    assert entry.own is known


def test_counts_for_metrics() -> None:
    cache = PodStatusCache()
    assert cache.counts() == (0, {})
    cache.set(runtime_status("a"))
    cache.set(runtime_status("b", state=E, ready=False))
    cache.set(runtime_status("c", state=E))
    assert cache.counts() == (2, {"running": 1, "exited": 2})


def test_a_status_is_doubtful_after_an_action_or_error() -> None:
    cache = PodStatusCache()
    assert not cache.is_doubtful("uid-web")
    cache.invalidate("uid-web")
    assert cache.is_doubtful("uid-web")
    cache.set(runtime_status())
    assert not cache.is_doubtful("uid-web")
    cache.invalidate("uid-web")
    assert cache.is_doubtful("uid-web")
    cache.set(runtime_status(at=2))
    cache.set_error(runtime_status(at=3), "no answer")
    assert cache.is_doubtful("uid-web")
