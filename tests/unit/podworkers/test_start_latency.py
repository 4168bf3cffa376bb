"""Which starts of pods are measured, when, and which times are deducted."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeletpy.base.api.times import format_time
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.podworkers.start_latency import MAX_SPANS, StartLatency, covered, is_stateful, runs
from tests.kit.pods import make_static, pod_object

EPOCH = 1_700_000_000
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
WAITING = {"waiting": {"reason": "ContainerCreating"}}
ENDED = {"terminated": {"exitCode": 0}}
INIT = [{"name": "init", "image": "i"}, {"name": "side", "image": "i", "restartPolicy": "Always"}]


def pod(*states: Any, uid: str = "u", status: Any = None, **spec: Any) -> Pod:
    """A pod created at EPOCH whose containers are in these states."""
    obj = pod_object("web", uid, **spec)
    obj["metadata"]["creationTimestamp"] = format_time(EPOCH)
    obj["metadata"]["annotations"] = {"kubernetes.io/config.source": "api"}
    found = [{"name": f"c{n}", "state": state} for n, state in enumerate(states)]
    obj["status"] = {**({"containerStatuses": found} if found else {}), **(status or {})}
    return Pod(obj)


def ran(container_id: str, name: str, began: float, ended: float) -> ContainerStatus:
    """A container of the runtime; times in seconds after EPOCH, 0: not yet."""
    at = [int((EPOCH + t) * 1e9) if t else 0 for t in (began, ended)]
    return ContainerStatus(
        container_id, name, ContainerState.EXITED, started_at=at[0], finished_at=at[1]
    )


class Setup:
    """A node at EPOCH."""

    def __init__(self) -> None:
        self.at = 0.0
        self.metrics = Metrics()
        self.starts = StartLatency(self.metrics.workers, self)

    def now(self) -> float:
        return EPOCH + self.at

    def play(self, events: Any) -> None:
        """(seconds, method, arguments) in turn."""
        for at, what, *arguments in events:
            self.at = at
            getattr(self.starts, what)(*arguments)

    def histogram(self, which: str) -> tuple[int, float]:
        """Count and sum of kubelet_pod_start_WHICH_duration_seconds."""
        text = self.metrics.render().decode()
        name = f"\nkubelet_pod_start_{which}_duration_seconds"
        count, total = (re.search(rf"{name}_{what} (\S+)", text) for what in ("count", "sum"))
        assert count and total
        return int(count[1]), round(float(total[1]), 6)

    @property
    def first_network(self) -> float:
        """The gauge."""
        name = "kubelet_first_network_pod_start_sli_duration_seconds"
        found = re.search(rf"\n{name} (\S+)", self.metrics.render().decode())
        assert found
        return float(found[1])


NEW = (1, "reported", pod())
UP = (9, "reported", pod(RUNNING))
UNSCHEDULED = {"conditions": [{"type": "PodScheduled", "status": "False"}]}
HOST_PATH = [{"name": "v", "hostPath": {"path": "/"}}]

CASES: dict[str, tuple[list[Any], int, float, int, float]] = {
    # events -> starts and their seconds; those of the SLI and theirs
    "a pod": ([NEW, (5, "reported", pod(WAITING)), UP], 1, 9, 1, 9),
    "once only": ([NEW, UP, (20, "reported", pod(RUNNING))], 1, 9, 1, 9),
    "not before all run": ([NEW, (5, "reported", pod(RUNNING, WAITING))], 0, 0, 0, 0),
    "all run": ([NEW, (5, "reported", pod(RUNNING, WAITING)),
                 (8, "reported", pod(RUNNING, RUNNING))],
                1, 8, 1, 8),
    "not without statuses of containers": ([NEW, (5, "reported", pod())], 0, 0, 0, 0),
    "ran before this agent": ([(1, "reported", pod(status={"startTime": format_time(EPOCH)})), UP],
                              0, 0, 0, 0),
    "first seen running": ([UP], 0, 0, 0, 0),
    "waited to be scheduled": ([(1, "reported", pod(status=UNSCHEDULED)), UP], 0, 0, 0, 0),
    "turns out to have waited": ([NEW, (2, "reported", pod(status=UNSCHEDULED)), UP], 0, 0, 0, 0),
    "ended at once": ([NEW, (2, "reported", pod(ENDED)), (3, "reported",
                       pod(ENDED, status={"phase": "Succeeded"})), UP], 0, 0, 0, 0),
    "a refused pod": ([NEW, (2, "reported", pod(status={"phase": "Failed"})), UP], 0, 0, 0, 0),
    "a static pod": ([(1, "reported", make_static("web", "u")),
                      (2, "reported", make_static("web", "u"))],
                     0, 0, 0, 0),
    "a stateful pod": ([NEW, (9, "reported", pod(RUNNING, volumes=HOST_PATH))], 1, 9, 0, 0),
    "a pull": ([NEW, (2, "pull_began", "u", "a"), (6, "image_present", "u", "a"), UP], 1, 9, 1, 5),
    "pulls that overlap": (
        [NEW, (2, "pull_began", "u", "a"), (3, "pull_began", "u", "b"),
         (5, "image_present", "u", "a"), (7, "image_present", "u", "b"), UP], 1, 9, 1, 4),
    "a pull that fails first is one pull": (
        [NEW, (2, "pull_began", "u", "a"), (5, "pull_began", "u", "a"),
         (7, "image_present", "u", "a"), UP], 1, 9, 1, 4),
    "an image that was there": ([NEW, (6, "image_present", "u", "a"), UP], 1, 9, 1, 9),
    "a pull of another pod": (
        [NEW, (2, "pull_began", "other", "a"), (6, "image_present", "other", "a"), UP], 1, 9, 1, 9),
    "an init container": (
        [NEW, (5, "observe_runtime", pod(initContainers=INIT),
               PodRuntimeStatus("u", "web", "d", containers=(ran("1", "init", 2, 4.5),))), UP],
        1, 9, 1, 6.5),
    "an init container is seen again and fails first": (
        [NEW, (3, "observe_runtime", pod(initContainers=INIT),
               PodRuntimeStatus("u", "web", "d", containers=(ran("1", "init", 2, 3),))),
         (6, "observe_runtime", pod(initContainers=INIT),
          PodRuntimeStatus("u", "web", "d",
                           containers=(ran("2", "init", 5, 6), ran("1", "init", 2, 3)))),
         (7, "observe_runtime", pod(initContainers=INIT),
          PodRuntimeStatus("u", "web", "d", containers=(ran("2", "init", 5, 6),))), UP],
        1, 9, 1, 7),
    "sidecars, those that run and containers are no init containers": (
        [NEW, (5, "observe_runtime", pod(initContainers=INIT),
               PodRuntimeStatus("u", "web", "d", containers=(
                   ran("1", "init", 2, 0), ran("2", "side", 2, 4), ran("3", "main", 2, 4)))), UP],
        1, 9, 1, 9),
    "a pull while an init container runs counts once": (
        [NEW, (2, "pull_began", "u", "a"), (6, "image_present", "u", "a"),
         (7, "observe_runtime", pod(initContainers=INIT),
          PodRuntimeStatus("u", "web", "d", containers=(ran("1", "init", 3, 7),))), UP],
        1, 9, 1, 4),
    "a clock that goes back": ([NEW, (-5, "reported", pod(RUNNING))], 1, 0, 1, 0),
    "forgotten and back": ([NEW, (2, "forget_except", []), UP], 0, 0, 0, 0),
    "others are forgotten": ([NEW, (2, "forget_except", ["u"]), UP], 1, 9, 1, 9),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_starts(name: str) -> None:
    events, starts, seconds, measured, sli = CASES[name]
    setup = Setup()
    setup.play(events)
    assert setup.histogram("total") == (starts, seconds)
    assert setup.histogram("sli") == (measured, sli)
    assert setup.first_network == sli


def test_the_first_pod_with_a_network_of_its_own_is_shown() -> None:
    setup = Setup()
    host = {"hostNetwork": True}
    stateful = {"volumes": HOST_PATH}
    for at, uid, spec in ((3, "a", host), (4, "b", stateful), (5, "c", {}), (6, "d", {})):
        setup.play([(1, "reported", pod(uid=uid)), (at, "reported", pod(RUNNING, uid=uid, **spec))])
        assert setup.first_network == (5 if at >= 5 else 0)


def test_a_pod_that_fails_for_hours_does_not_use_more_memory() -> None:
    setup = Setup()
    setup.play([NEW])
    for turn in range(1000):
        containers = (ran(str(turn), "init", turn + 1, turn + 1.5),)
        status = PodRuntimeStatus("u", "web", "d", containers=containers)
        setup.play(
            [
                (turn + 1, "pull_began", "u", f"{turn} again"),
                (turn + 1, "pull_began", "u", f"{turn}"),
                (turn + 1.5, "image_present", "u", f"{turn}"),
                (turn + 2, "observe_runtime", pod(initContainers=INIT), status),
            ]
        )
    start = setup.starts._starts["u"]
    assert start is not None
    assert len(start.inits) == len(start.pulls) + len(start.pulling) == MAX_SPANS


@pytest.mark.parametrize(
    ("states", "answer"),
    [
        ((), False),
        ((RUNNING,), True),
        ((RUNNING, WAITING), False),
        ((RUNNING, ENDED), False),
        (({"running": {}},), False),
        ((None,), False),
    ],
)
def test_runs(states: Any, answer: bool) -> None:
    assert runs(pod(*states)) is answer


@pytest.mark.parametrize(
    ("volumes", "answer"),
    [
        (None, False),
        ([], False),
        ([{"name": "v", "emptyDir": {}}], False),
        ([{"secret": {}}, {"configMap": {}}, {"downwardAPI": {}}, {"projected": {}}], False),
        ([{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/"}}], True),
        ([{"name": "v", "persistentVolumeClaim": {}}], True),
        ([{"name": "v", "image": {}}], True),
    ],
)
def test_stateful(volumes: Any, answer: bool) -> None:
    assert is_stateful(pod(volumes=volumes)) is answer


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0),
        ([(1, 3)], 2),
        ([(5, 6), (1, 3)], 3),
        ([(1, 5), (2, 3)], 4),
        ([(1, 3), (2, 5), (4, 6)], 5),
        ([(3, 1)], 0),
    ],
)
def test_covered(spans: Any, seconds: float) -> None:
    assert covered(spans) == seconds
