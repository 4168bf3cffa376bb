"""The history of a worker's decisions, and the reason why it ends a pod."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod
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
from kubeletpy.podworkers.history import (
    MAX_TROUBLED_PODS,
    OVER_S,
    DecisionHistory,
    ReasonCache,
    Troubles,
    why_terminating,
)
from kubeletpy.podworkers.records import UpdateType, Work, WorkerRecord
from kubeletpy.podworkers.status_cache import PodStatusCache, with_known_ends
from tests.kit.pods import make_pod, runtime_status

DECISIONS = [Decision(str(number), "why") for number in range(600)]


@pytest.mark.parametrize(
    ("before", "repeated", "counted"),
    [(1, 0, True), (6, 0, True), (6, 5, True), (7, 0, False), (7, 1, True), (9, 2, False)],
)
def test_repeats_among_the_last_six_are_counted(before: int, repeated: int, counted: bool) -> None:
    history = DecisionHistory()
    history.add("u", DECISIONS[:before], 1.0)
    history.add("u", [DECISIONS[repeated]], 2.0)
    history.add("u", [DECISIONS[repeated]], 3.0)
    entries = history.decisions("u")
    assert len(entries) == (before if counted else before + 1)
    entry = entries[repeated if counted else -1]
    assert entry.decision == DECISIONS[repeated]
    assert (entry.at, entry.last_at) == ((1.0, 3.0) if counted else (2.0, 3.0))
    assert entry.count == (3 if counted else 2)


def test_how_much_is_kept() -> None:
    history = DecisionHistory()
    history.add("0", DECISIONS, 1.0)
    assert [entry.decision for entry in history.decisions("0")] == DECISIONS[-50:]
    for uid in range(500):
        history.add(str(uid), DECISIONS[:1], 2.0)
    assert history.decisions("0")
    history.add("0", DECISIONS[:1], 2.5)
    history.add("500", DECISIONS[:1], 3.0)
    left = [uid for uid in range(501) if not history.decisions(str(uid))]
    assert left == [1], "the least recently seen"


def test_add_once_does_not_count_repetitions() -> None:
    history = DecisionHistory()
    history.add("u", DECISIONS[:20], 1.0)
    history.add_once("u", DECISIONS[0], 2.0)
    assert [entry.count for entry in history.decisions("u")] == [1] * 20
    history.add_once("u", DECISIONS[20], 2.0)
    assert len(history.decisions("u")) == 21
    assert history.decisions("v") == ()


def record(pod: Pod | None, **more: Any) -> WorkerRecord:
    work = None if pod is None else Work(UpdateType.SYNC, pod=pod)
    return WorkerRecord("u", "p_d", active=work, **more)


GOING = make_pod(deleting=5)


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (record(None, evicted=True, deleted=True), "no source has this pod any more"),
        (record(GOING, evicted=True, deleted=True), "the node ends it"),
        (record(GOING, deleted=True), "it was deleted in the API"),
        (record(make_pod(), deleted=True), "it is in no source of pods any more"),
        (record(make_pod(phase="Failed"), deleted=True), "it is in no source of pods any more"),
        (record(make_pod(phase="Failed")), "the API shows that it has ended"),
        (record(make_pod()), "it has run to its end"),
    ],
)
def test_why_a_pod_ends(of: WorkerRecord, why: str) -> None:
    found = why_terminating(of, 7)
    assert found == Decision("terminate the pod within 7 s", found.why, ends_pod=True)
    assert found.why.startswith(why)


# The status cache keeps the later of two statuses, and no reported exit is lost.

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


# Records kept for each pod: decisions, start errors, and whether the pod is quiet.


ERROR = StartError("ErrImagePull", "no such image")
LOOP = StartError("CrashLoopBackOff", "back-off")


def result(*steps: tuple[SyncAction, StartError | None], **errors: StartError) -> PodSyncResult:
    return PodSyncResult(
        tuple(SyncResult(action, "a", error) for action, error in steps), start_errors=errors
    )


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ([(SyncAction.START_CONTAINER, None)], {}),
        ([(SyncAction.INIT_CONTAINER, None)], {}),
        ([(SyncAction.START_CONTAINER, ERROR)], {"a": ERROR}),
        ([(SyncAction.KILL_CONTAINER, None)], {"a": ERROR}),
        ([], {"a": ERROR}),
    ],
)
def test_a_start_error_lasts_until_a_start(steps: Any, left: Any) -> None:
    cache = ReasonCache()
    cache.update("u", result(a=ERROR))
    cache.update("u", result(*steps))
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


# Since when the syncs of a pod have failed.


@pytest.mark.parametrize(
    ("failures", "now", "since"),
    [
        ([], 0.0, None),
        ([100.0], 100.0, 100.0),
        ([100.0, 160.0, 220.0], 250.0, 100.0),
        ([100.0, 100.0 + OVER_S], 100.0 + 2 * OVER_S, 100.0),
        ([100.0, 101.0 + OVER_S], 101.0 + OVER_S, 101.0 + OVER_S),
        ([100.0], 101.0 + OVER_S, None),
        ([100.0, 100.0], 110.0, 100.0),
        ([100.0, 100.5], 110.0, 100.0),
        ([100.0, 50.0], 60.0, 50.0),
        ([100.0, 99.5], 110.0, 99.5),
    ],
)
def test_since(failures: list[float], now: float, since: float | None) -> None:
    troubles = Troubles()
    for at in failures:
        troubles.failed("a", at)
    assert troubles.since("a", now) == since
    assert troubles.since("b", now) is None


def test_the_oldest_failures_are_dropped_first_and_removed_pods_at_once() -> None:
    troubles = Troubles()
    for number in range(MAX_TROUBLED_PODS):
        troubles.failed(str(number), number / 1000)
    troubles.failed("0", 2.0)
    troubles.failed("one more", 2.0)
    assert troubles.since("0", 2.0) == 0.0
    assert troubles.since("1", 2.0) is None
    troubles.removed("0")
    troubles.removed("never known")
    assert troubles.since("0", 2.0) is None


@pytest.mark.parametrize(
    ("kept", "since"),
    [
        ({"a": [100.0, 500.0]}, 100.0),
        ({"a": [100, 500]}, 100.0),
        ({"a": [100.0, 600.0 - OVER_S]}, 100.0),
        ({"a": [100.0, 600.0 - OVER_S - 1]}, 600.0),
        ({"a": "x", "b": [1]}, 600.0),
        ({"a": [1, 2, 3]}, 600.0),
        ({"a": ["1", None]}, 600.0),
    ],
)
def test_troubles_restored_from_an_earlier_agent(kept: dict[str, object], since: float) -> None:
    troubles = Troubles()
    troubles.failed("a", 600.0)
    troubles.restore({"failing": kept})
    assert troubles.since("a", 600.0) == since


def test_troubles_survive_a_round_trip() -> None:
    before, after = Troubles(), Troubles()
    before.failed("a", 1.0)
    before.failed("a", 2.0)
    before.ends("b", 3.0)
    after.restore(before.as_json())
    assert after.as_json() == {"failing": {"a": [1.0, 2.0]}, "ends": {"b": 3.0}}


def test_the_first_end_of_a_pod_counts_also_that_of_an_earlier_agent() -> None:
    troubles = Troubles()
    troubles.ends("a", 5.0)
    troubles.ends("a", 6.0)
    troubles.ends("b", 7.0)
    assert (troubles.ended_at("a"), troubles.ended_at("none")) == (5.0, None)
    troubles.restore({"ends": {"a": 2, "c": 4.5, "d": "x", "e": None}})
    assert [troubles.ended_at(uid) for uid in "abcde"] == [2.0, 7.0, 4.5, None, None]
    troubles.no_end("a")
    troubles.no_end("never known")
    assert troubles.ended_at("a") is None


@pytest.mark.parametrize("kept", [{"ends": [1]}, {"failing": 3, "ends": None}, {"x": {"a": 1}}])
def test_malformed_notes_are_ignored(kept: dict[str, object]) -> None:
    troubles = Troubles()
    troubles.restore(kept)
    assert troubles.as_json() == {}


def test_the_oldest_ends_go_first() -> None:
    troubles = Troubles()
    for number in range(MAX_TROUBLED_PODS + 1):
        troubles.ends(str(number), float(number))
    assert troubles.ended_at("0") is None
    assert troubles.ended_at("1") == 1.0
    troubles.restore({"ends": {f"old-{number}": 1.0 for number in range(MAX_TROUBLED_PODS)}})
    assert len(troubles.as_json()["ends"]) == MAX_TROUBLED_PODS
