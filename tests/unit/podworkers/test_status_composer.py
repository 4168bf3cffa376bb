"""When a status is composed again, and when the kept one is known to be current."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.facts import NodeAddresses
from kubeletpy.pods.pod import CONFIG_MIRROR, Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    PodRuntimeStatus,
    ProbeOutcome,
    ProbeResults,
)
from kubeletpy.podworkers.history import ReasonCache
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.status_composer import StatusComposer
from kubeletpy.podworkers.steps.resources import ClaimsStep
from kubeletpy.podworkers.syncer import PodSync
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.resources.dra.model import ClaimProblem
from tests.kit.events import Recorder
from tests.kit.pods import make_pod, make_static, pod_object, runtime_status
from tests.kit.virtual_time import LoopClock

pytestmark = pytest.mark.virtual_time


class FakeComponents:
    """Keeps statuses as the status manager does: an equal status does not replace the object."""

    def __init__(self) -> None:
        self.kept: Any = None
        self.reported = True
        self.may_run: list[bool] = []
        self.notified = 0
        self.probed = ProbeResults()
        self.claims = False
        self.resizes: tuple[Any, ...] = ()

    def get_status(self, uid: str) -> Any:
        return self.kept

    def is_reported(self, uid: str) -> bool:
        return self.reported

    def set_status(self, pod: Pod, status: Any, *, containers_may_run: bool) -> None:
        self.may_run.append(containers_may_run)
        if self.kept != status:
            self.kept = status

    def results(self, pod: Pod) -> ProbeResults:
        return self.probed

    def status_stored(self, pod: Pod, status: Any) -> None:
        assert status == self.kept
        self.notified += 1

    def conditions(self, uid: str) -> Any:
        return self.resizes

    def ended(self, uid: str) -> None:
        pass


class Setup:
    def __init__(self) -> None:
        self.fakes, self.composed = FakeComponents(), 0
        self.addresses = NodeAddresses(["192.0.2.1"])
        self.cache = PodStatusCache()
        recorder = Recorder()
        self.events = recorder.events
        fakes: Any = self.fakes
        self.composer = StatusComposer(
            fakes,
            self.cache,
            recorder,
            LoopClock(),
            probes=fakes,
            reasons=ReasonCache(),
            resizes=fakes,
            actuated=ResourceState(),
            runtime_name="fake",
            metrics=Metrics().workers,
            host_ips=self.addresses,
            holds_claims=lambda uid: self.fakes.claims,
            status_log=lambda inputs, status: self.count(),
        )
        self.pod, self.status = make_pod(), runtime_status()

    def count(self) -> None:
        self.composed += 1

    def store(self, **kwargs: Any) -> bool:
        return self.composer.store(self.pod, None, self.status, **kwargs)

    def rest(self) -> None:
        """Store until nothing changes, then reset the counters."""
        for _ in range(3):
            self.store()
        self.composed, self.fakes.may_run, self.fakes.notified = 0, [], 0


async def test_an_unchanged_status_is_not_composed_again() -> None:
    s = Setup()
    assert [s.store() for _ in range(5)] == [False] * 5
    assert s.composed == 2, "once to compose it, once to find it unchanged"
    assert (len(s.fakes.may_run), s.fakes.notified) == (2, 5)


def _pod(s: Setup) -> None:
    s.pod = make_pod()


def _runtime(s: Setup) -> None:
    s.status = replace(s.status)


def _probes(s: Setup) -> None:
    s.fakes.probed = ProbeResults(readiness={"c": ProbeOutcome.FAILURE})


def _kept(s: Setup) -> None:
    s.fakes.kept = {**s.fakes.kept}


def _unreported(s: Setup) -> None:
    s.fakes.reported = False


def _resize(s: Setup) -> None:
    s.fakes.resizes = ({"type": "PodResizePending", "status": "True"},)


def _address(s: Setup) -> None:
    s.addresses.replace(["192.0.2.2"])


CHANGES = (_address, _pod, _runtime, _probes, _kept, _unreported, _resize)


@pytest.mark.parametrize("change", CHANGES)
async def test_any_change_has_it_composed(change: Callable[[Setup], None]) -> None:
    s = Setup()
    s.rest()
    change(s)
    s.store()
    assert s.composed == 1


@pytest.mark.parametrize(
    ("addresses", "noticed"), [(["192.0.2.2"], 0), (["2001:db8::1", "192.0.2.1"], 1), ([], 0)]
)
async def test_another_family_of_the_nodes_address_is_noticed(
    addresses: list[str], noticed: int
) -> None:
    s = Setup()
    s.rest()
    s.addresses.replace(addresses)
    s.rest()
    found = [message for reason, message in s.events if reason == "HostIPsIPFamilyMismatch"]
    assert len(found) == noticed
    assert all("192.0.2.1 (IPv4)" in each and "2001:db8::1 (IPv6)" in each for each in found)


async def test_a_pod_that_holds_claims_counts_as_running() -> None:
    s = Setup()
    s.status = runtime_status(state=None)
    s.rest()
    s.fakes.claims = True
    s.store()
    assert s.fakes.may_run == [True]


@pytest.mark.parametrize("how", [{"terminated": True}, {"override": lambda status: status}])
async def test_an_end_is_always_composed(how: Any) -> None:
    s = Setup()
    s.rest()
    for _ in range(3):
        s.store(**how)
    assert s.composed == 3
    s.store()
    assert s.composed == 4, "what was known of its rest is no longer"


REFUSAL = Rejection(AdmissionReason("UnexpectedAdmissionError"), "no healthy devices present")
RAN: Any = {
    "phase": "Running",
    "startTime": "2026-01-01T00:00:00Z",
    "hostIP": "192.0.2.1",
    "podIP": "10.0.0.9",
    "podIPs": [{"ip": "10.0.0.9"}],
    "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"},
        {"type": "example.com/gate", "status": "True"},
    ],
    "containerStatuses": [
        {
            "name": "main",
            "containerID": "fake://c0",
            "image": "i",
            "imageID": "id",
            "ready": True,
            "restartCount": 7,
            "state": {"running": {"startedAt": "2026-01-01T00:00:04Z"}},
            "lastState": {
                "terminated": {"exitCode": 3, "reason": "Error", "containerID": "fake://x"}
            },
        }
    ],
}


@pytest.mark.parametrize("recorded", [False, True])
async def test_a_refused_pod_keeps_what_is_known_of_it(recorded: bool) -> None:
    """The pod ran before a reboot, and the runtime may have lost its containers."""
    s = Setup()
    s.pod = Pod({**s.pod.object, "status": RAN})
    if recorded:
        ended = runtime_status(state=ContainerState.EXITED, exit_code=255, container_id="c0")
        s.cache.set(ended, own=True)
    s.composer.show_held(s.pod)
    held = s.fakes.kept
    assert {c["type"]: c["status"] for c in held["conditions"]}["Ready"] == "False"
    assert (held["phase"], held["podIP"]) == ("Running", "10.0.0.9")
    s.composer.reject(s.pod, REFUSAL)
    kept = s.fakes.kept
    assert (kept["phase"], kept["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert kept["message"] == "Pod was rejected: no healthy devices present"
    (entry,) = kept["containerStatuses"]
    ended = entry["state"]["terminated"]
    assert ended["exitCode"] == (255 if recorded else 137)
    assert entry["restartCount"] >= 7
    assert entry["ready"] is False
    assert (kept["podIP"], kept["podIPs"]) == ("10.0.0.9", [{"ip": "10.0.0.9"}])
    reported = {c["type"]: c["status"] for c in kept["conditions"]}
    assert reported["example.com/gate"] == "True"
    assert (reported["Ready"], reported["PodScheduled"]) == ("False", "True")
    assert s.fakes.may_run[-1] is False


async def test_a_pod_that_never_ran_is_refused_with_reason_and_message_only() -> None:
    s = Setup()
    s.composer.show_held(s.pod)
    assert s.fakes.may_run == [], "nothing is written"
    s.composer.reject(s.pod, REFUSAL)
    assert set(s.fakes.kept) <= {"phase", "reason", "message", "qosClass", "observedGeneration"}


async def test_a_refused_pod_that_runs_is_not_shown_as_lost() -> None:
    s = Setup()
    s.pod = Pod({**s.pod.object, "status": RAN})
    s.cache.set(runtime_status(container_id="c0"), own=True)
    s.composer.reject(s.pod, REFUSAL)
    assert (s.fakes.kept["phase"], s.fakes.kept["podIP"]) == ("Failed", "10.0.0.9")
    assert "containerStatuses" not in s.fakes.kept


@pytest.mark.parametrize("ran", [False, True])
async def test_an_ended_pod_gets_the_containers_that_its_record_lacked(ran: bool) -> None:
    s = Setup()
    s.status = runtime_status(state=ContainerState.EXITED, exit_code=3, ready=False)
    s.store(terminated=True)
    last = s.fakes.kept
    late = replace(s.status.containers[0], id="c2", name="debug", exit_code=7)
    s.cache.set(replace(s.status, containers=(late, *s.status.containers) if ran else ()))
    s.composer.complete(make_pod(ephemeralContainers=[{"name": "debug", "image": "i"}]))
    shown = {**s.fakes.kept}
    added = shown.pop("ephemeralContainerStatuses", [])
    assert [each["state"]["terminated"]["exitCode"] for each in added] == ([7] if ran else [])
    assert (shown, s.fakes.may_run) == (last, [False, False])


async def test_a_held_pod_that_runs_shows_what_it_showed() -> None:
    s = Setup()
    s.pod = Pod({**s.pod.object, "status": RAN})
    s.cache.set(runtime_status(container_id="c0"), own=True)
    s.composer.show_held(s.pod)
    assert s.fakes.kept is None


STARTED = "2026-11-01T00:00:00Z"


async def test_a_static_pod_shows_what_its_newest_mirror_shows() -> None:
    static, found = make_static("p", "s"), pod_object("p", "m", phase="Running")
    found["metadata"]["annotations"] = {CONFIG_MIRROR: "s"}
    mirror, s = Pod(found), Setup()
    assert s.composer.reported(static, None) == {}
    s.composer.mirror_of = lambda pod: mirror
    assert s.composer.reported(static, None) == {"phase": "Running"}
    found["status"] |= {"phase": "Failed", "reason": "Terminated", "startTime": STARTED}
    mirror = Pod(found)
    reported = s.composer.reported(static, None)
    assert reported == {"startTime": STARTED}, "it has not ended for good"
    mirror.annotations[CONFIG_MIRROR] = "another manifest"  # type: ignore[index]
    assert s.composer.reported(static, None) == {}


@pytest.mark.parametrize(("policy", "ends"), [("Always", False), ("Never", True)])
async def test_a_static_pod_that_a_shutdown_ended_runs_again(policy: str, ends: bool) -> None:
    static, found = make_static("p", "s", restartPolicy=policy), pod_object("p", "m")
    found["metadata"]["annotations"] = {CONFIG_MIRROR: "s"}
    found["status"] = {"phase": "Failed", "reason": "Terminated"}
    status = runtime_status("s", ContainerState.EXITED, ready=False)
    s = Setup()
    assert s.composer.store(static, Pod(found), status) is ends
    assert (s.fakes.kept["phase"], "reason" in s.fakes.kept) == (
        "Succeeded" if ends else "Running",
        False,
    )


# A pod with claims waits for them before its sandbox is created, and not afterwards.

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


async def test_a_pod_without_claims_and_one_with_its_sandbox_are_left_alone() -> None:
    manager = Manager("never asked")
    step, _ = made(manager)
    assert await step.run(sync(make_pod())) is None
    assert await step.run(sync(WITH, runtime_status())) is None
    assert manager.calls == []


async def test_a_failed_release_is_retried() -> None:
    step, _ = made(Manager("no driver", ""))
    outcome = await step.release(WITH)
    assert outcome is not None
    assert "no driver" in outcome.error
    assert await step.release(WITH) is None
