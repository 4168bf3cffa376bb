"""The writer of statuses: one write in flight, the newest wins, nothing is lost."""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext
from typing import Any

import pytest

from kubeletpy.base.tasks import Backlog
from kubeletpy.kubeapi.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.pods.pod import CONFIG_HASH, CONFIG_MIRROR, CONFIG_SOURCE, Pod
from kubeletpy.status.status_manager import TOGETHER_IN_BURSTS_S, TOGETHER_S, ApiStatusManager
from tests.kit.status import pod, reported
from tests.kit.virtual_time import LoopClock, eventually

pytestmark = pytest.mark.virtual_time


class RecordingApi:
    """Takes patches and deletes of one pod; raises the errors in `failures` first."""

    alone = False

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.failures: list[ApiError] = []
        self.object: dict[str, Any] = {"metadata": dict(pod().metadata), "spec": dict(pod().spec)}
        self.found: dict[str, Any] | None = self.object
        self.gate: asyncio.Event | None = None
        self.in_flight = self.most_in_flight = 0

    async def patch(self, resource: Any, name: str, patch: Any, namespace: Any, **_: Any) -> Any:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.gate is not None:
                await self.gate.wait()
            await asyncio.sleep(0.01)
            self._fail()
        finally:
            self.in_flight -= 1
        self.calls.append(("patch", patch["status"]))
        status = {**self.object.get("status", {}), **patch["status"]}
        self.object = {**self.object, "status": status}
        return self.object

    async def get(self, resource: Any, name: str, namespace: Any, **_: Any) -> Any:
        self.calls.append(("get", name))
        if self.found is None:
            raise NotFound("gone")
        return self.found

    async def delete(self, resource: Any, name: str, namespace: Any, **options: Any) -> Any:
        await asyncio.sleep(0.01)
        self._fail()
        self.calls.append(("delete", options))
        return {}

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)


def manager(api: RecordingApi, **options: Any) -> ApiStatusManager:
    options.setdefault("mirror_of", lambda _: None)
    return ApiStatusManager(
        api,  # type: ignore[arg-type]
        LoopClock(),
        rng=random.Random(1),
        **options,
    )


def phase(name: str, **more: Any) -> Any:
    return {"phase": name, "conditions": [{"type": "Ready", "status": "True"}], **more}


async def settle(of: ApiStatusManager) -> None:
    """Let every writer finish."""
    await eventually(lambda: not of.pending)


async def test_the_newest_of_several_wins() -> None:
    api = RecordingApi()
    api.gate = asyncio.Event()
    of = manager(api)
    for name in ("Pending", "Running", "Pending", "Running"):
        of.set_status(pod(), phase(name))
        await asyncio.sleep(0.001)
    api.gate.set()
    await settle(of)
    assert api.most_in_flight == 1
    assert [call[1].get("phase") for call in api.calls] == ["Pending", "Running"]


async def test_an_unchanged_status_is_not_written_again() -> None:
    api = RecordingApi()
    of = manager(api)
    for _ in range(3):
        of.set_status(pod(), phase("Running"))
        await settle(of)
    assert len(api.calls) == 1


async def test_the_generation_of_a_deletion_is_written_with_the_pods_end() -> None:
    api = RecordingApi()
    statuses = manager(api)
    statuses.set_status(pod(), phase("Running", observedGeneration=1))
    await settle(statuses)
    statuses.set_status(pod(), phase("Running", observedGeneration=2))
    await asyncio.sleep(TOGETHER_S / 2)
    statuses.set_status(pod(), phase("Succeeded", observedGeneration=2), containers_may_run=False)
    await settle(statuses)
    written = [(call[1]["phase"], call[1].get("observedGeneration")) for call in api.calls]
    assert written == [("Running", 1), ("Succeeded", 2)]


@pytest.mark.parametrize(
    ("deleted", "burst", "after"),
    [
        (False, False, TOGETHER_S),
        (True, False, TOGETHER_IN_BURSTS_S),
        (False, True, TOGETHER_IN_BURSTS_S),
    ],
)
async def test_a_generation_is_written_soon_if_nothing_follows(
    deleted: bool, burst: bool, after: float
) -> None:
    api, backlog = RecordingApi(), Backlog()
    statuses = manager(api, backlog=backlog)
    statuses.set_status(pod(), phase("Running", observedGeneration=1))
    await settle(statuses)
    began = asyncio.get_running_loop().time()
    changed = pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}) if deleted else pod()
    with backlog.waiting() if burst else nullcontext():
        statuses.set_status(changed, phase("Running", observedGeneration=2))
        await settle(statuses)
    assert api.calls[-1] == ("patch", {"observedGeneration": 2})
    assert asyncio.get_running_loop().time() - began == pytest.approx(after, abs=0.1)


async def test_an_ended_pod_that_is_deleted_waits_for_nothing() -> None:
    api = RecordingApi()
    statuses = manager(api)
    statuses.set_status(pod(), phase("Succeeded", observedGeneration=1), containers_may_run=False)
    await settle(statuses)
    began = asyncio.get_running_loop().time()
    deleted = pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    statuses.set_status(deleted, phase("Succeeded", observedGeneration=2), containers_may_run=False)
    statuses.finish(deleted)
    await settle(statuses)
    assert api.calls[-1][0] == "delete"
    assert asyncio.get_running_loop().time() - began < TOGETHER_S / 2


@pytest.mark.parametrize("error", [Unavailable("gone"), Forbidden("not yet")])
async def test_a_refused_write_comes_again(error: ApiError) -> None:
    api = RecordingApi()
    api.failures = [error] * 5
    of = manager(api)
    of.set_status(pod(), phase("Running"))
    await settle(of)
    assert [call[0] for call in api.calls] == ["patch"]


async def test_a_long_outage_loses_nothing_and_sends_only_the_newest() -> None:
    api = RecordingApi()
    api.failures = [Unavailable("down")] * 20
    of = manager(api)
    for code in range(5):
        of.set_status(pod(), phase("Running", message=str(code)))
        await asyncio.sleep(5)
    await settle(of)
    assert [call[1].get("message") for call in api.calls] == ["4"]


async def test_exit_codes_reach_the_api_before_the_pod_is_deleted() -> None:
    api = RecordingApi()
    of = manager(api)
    dying = pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, restartPolicy="Never")
    ended: Any = phase("Running", containerStatuses=[reported("a", terminated={"exitCode": 5})])
    of.set_status(dying, ended)
    of.finish(dying)
    await settle(of)
    kinds = [call[0] for call in api.calls]
    assert kinds[-1] == "delete" and kinds.count("delete") == 1
    assert api.calls[-1][1] == {"grace_period_seconds": 0, "uid": "u"}
    assert api.object["status"]["phase"] == "Failed"
    assert api.object["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 5
    assert of.get_status("u") is None


async def test_a_status_from_a_record_is_not_taken_for_the_apis() -> None:
    """The API does not have what the agent computed before a reboot without an API server."""
    api = RecordingApi()
    api.alone = True
    of = manager(api)
    ended: Any = phase("Failed", containerStatuses=[reported("a", terminated={"exitCode": 5})])
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    dying = pod(metadata=metadata, restartPolicy="Never", status=ended)
    of.set_status(dying, ended)
    of.finish(dying)
    await settle(of)
    assert [call[0] for call in api.calls][-1] == "delete"
    assert api.object["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 5


async def test_a_first_status_is_compared_with_the_newest_object() -> None:
    """The worker of a pod still has the object of a record; the API never had its status."""
    api, ended = RecordingApi(), phase("Failed")
    of = manager(api, newest=lambda _: pod())
    of.set_status(pod(status=ended), ended, containers_may_run=False)
    await settle(of)
    assert api.object["status"]["phase"] == "Failed"


async def test_a_finished_pod_is_deleted_when_its_deletion_comes_later() -> None:
    api = RecordingApi()
    of = manager(api)
    of.finish(pod())
    await settle(of)
    assert [call[0] for call in api.calls] == ["patch"]
    late = pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, status=api.object["status"])
    of.reconcile(late)
    await settle(of)
    assert [call[0] for call in api.calls] == ["patch", "delete"]


async def test_a_removed_pod_is_forgotten() -> None:
    api = RecordingApi()
    api.failures = [NotFound("gone")]
    of = manager(api)
    of.set_status(pod(), phase("Running"))
    await settle(of)
    assert of.get_status("u") is None


async def test_listeners_are_notified_of_each_change() -> None:
    """A pod is shown with its status until its worker is done with it."""
    notified: list[Any] = []
    api = RecordingApi()

    def seen(uid: str) -> None:
        reported = of.reported(uid)
        notified.append(
            None if reported is None else (reported[0].labels.get("a"), reported[1]["phase"])
        )

    of = manager(api, on_change=seen)
    of.set_status(pod(), phase("Running"))
    assert (notified, of.uids()) == ([(None, "Running")], ["u"])
    await settle(of)
    labelled = pod(status=phase("Running"))
    labelled.object["metadata"]["labels"] = {"a": "b"}
    of.reconcile(labelled)
    assert notified[-1] == ("b", "Running")
    of.finish(labelled)
    assert (notified[-1], of.uids()) == (None, ["u"])
    notified.clear()
    of.forget_except([])
    assert (notified, of.uids()) == ([None], [])


async def test_a_status_that_another_writer_changed_is_restored() -> None:
    api = RecordingApi()
    of = manager(api)
    of.set_status(pod(), phase("Running"))
    await settle(of)
    api.object["status"] = {"phase": "Pending"}
    of.reconcile(pod(status={"phase": "Pending"}))
    await settle(of)
    assert api.calls[-1][1]["phase"] == "Running"


async def test_terminations_are_counted_once() -> None:
    seen: list[tuple[str, int, str]] = []
    of = manager(RecordingApi(), on_termination=lambda *event: seen.append(event))
    ended: Any = {"exitCode": 5, "reason": "Error"}
    for message in ("x", "y"):
        status = phase(
            "Failed", message=message, containerStatuses=[reported("a", terminated=ended)]
        )
        of.set_status(pod(restartPolicy="Never"), status)
    assert seen == [("containerStatuses", 5, "Error")]
    await settle(of)


async def test_a_conflict_is_no_farewell() -> None:
    """An API server also answers 409 when writers conflict."""
    api = RecordingApi()
    api.failures = [Conflict("try again")]
    of = manager(api)
    of.set_status(pod(), phase("Running"))
    await asyncio.sleep(1)
    assert of.get_status("u") is not None
    assert of.is_reported("u")


ANOTHER_UID = Invalid(
    'Pod "p" is invalid: metadata.uid: Invalid value: "u": field is immutable',
    code=422,
    details={"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]},
)


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        ("patch", Conflict("the object has been modified")),
        ("patch", ANOTHER_UID),
        ("delete", Conflict("the UID in the precondition does not match")),
    ],
)
@pytest.mark.parametrize(
    "found", [None, {**dict(pod().object), "metadata": {**pod().metadata, "uid": "v"}}]
)
async def test_a_pod_whose_name_another_pod_has_now_is_forgotten(
    call: str, refusal: ApiError, found: dict[str, Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A pod was deleted by force and recreated: the error is expected and not reported."""
    api, notified = RecordingApi(), list[str]()
    of = manager(api, on_refused=lambda _, why: notified.append(why))
    of.set_status(pod(), phase("Running"))
    await settle(of)
    api.found = found
    if call == "patch":
        api.failures = [refusal for _ in range(9)]
        of.set_status(pod(), phase("Running", message="more"))
    else:
        leaving = pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        of.set_status(leaving, phase("Failed"), containers_may_run=False)
        await settle(of)
        api.failures = [Conflict("the UID in the precondition does not match") for _ in range(9)]
        of.finish(leaving)
    await settle(of)
    assert of.get_status("u") is None
    assert len(api.failures) == 8, "one answer is enough"
    assert not notified
    assert not [record for record in caplog.records if record.levelname != "DEBUG"]


async def test_a_removed_pod_whose_name_a_pod_of_another_node_has_is_forgotten() -> None:
    """The Node authorizer forbids the write: a StatefulSet's new pod is not bound to this node."""
    api, notified = RecordingApi(), list[str]()
    known = {"u"}
    of = manager(
        api,
        on_refused=lambda _, why: notified.append(why),
        newest=lambda pod: pod if pod.uid in known else None,
    )
    of.set_status(pod(), phase("Running"))
    await settle(of)
    known.clear()
    api.failures = [Forbidden("no relationship found") for _ in range(9)]
    of.set_status(pod(), phase("Failed"), containers_may_run=False)
    await settle(of)
    assert of.get_status("u") is None
    assert len(api.failures) == 8, "one answer is enough"
    assert not notified


def static_pod() -> Pod:
    return pod(metadata={"annotations": {CONFIG_SOURCE: "file", CONFIG_HASH: "h"}})


def mirror(**status: Any) -> Pod:
    about = {"uid": "m", "annotations": {CONFIG_SOURCE: "api", CONFIG_MIRROR: "h"}}
    return pod(metadata=about, status=status)


def shown_as(ready: str, at: str) -> Any:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": at}]
    containers = [reported("a", running={}, extra={"ready": ready == "True"})]
    return {"phase": "Running", "conditions": conditions, "containerStatuses": containers}


BEFORE = "2026-11-01T00:00:00Z"


async def test_a_mirror_that_is_seen_late_is_the_base_of_the_next_status() -> None:
    api, mirrors = RecordingApi(), list[Pod]()
    statuses = manager(api, mirror_of=lambda _: mirrors[0] if mirrors else None)
    statuses.set_status(static_pod(), shown_as("False", ""))
    await settle(statuses)
    mirrors.append(mirror(startTime=BEFORE, **shown_as("True", BEFORE)))
    assert statuses.get_status("u") == mirrors[0].status
    statuses.reconcile(static_pod())
    await settle(statuses)
    assert api.calls == [], "the first status is never written"
    statuses.set_status(static_pod(), shown_as("True", ""))
    assert statuses.get_status("u") == mirrors[0].status, "with its times"
    statuses.reconcile(static_pod())
    await settle(statuses)
    assert api.calls == []
    statuses.set_status(static_pod(), shown_as("False", ""))
    await settle(statuses)
    assert [sorted(status) for _, status in api.calls] == [["conditions", "containerStatuses"]]


async def test_the_end_of_a_static_pod_is_written_to_a_mirror_that_is_seen_late() -> None:
    api, mirrors = RecordingApi(), list[Pod]()
    statuses = manager(api, mirror_of=lambda _: mirrors[0] if mirrors else None)
    statuses.set_status(static_pod(), {"phase": "Failed"}, containers_may_run=False)
    mirrors.append(mirror(startTime=BEFORE, **shown_as("True", BEFORE)))
    statuses.reconcile(static_pod())
    await settle(statuses)
    assert [status["phase"] for _, status in api.calls] == ["Failed"]


async def test_the_end_of_a_static_pod_waits_for_another_mirror() -> None:
    """Its mirror was deleted, which the watch has not shown yet."""
    api, mirrors = RecordingApi(), [mirror()]
    statuses = manager(api, mirror_of=lambda _: mirrors[0] if mirrors else None)
    api.failures.append(NotFound("gone"))
    statuses.set_status(static_pod(), {"phase": "Failed"}, containers_may_run=False)
    statuses.finish(static_pod())
    await settle(statuses)
    assert not api.calls
    assert not statuses.is_reported("u")
    again = mirror()
    mirrors[0] = Pod({**again.object, "metadata": {**again.metadata, "uid": "another"}})
    statuses.reconcile(static_pod())
    await settle(statuses)
    assert api.calls[-1][1]["phase"] == "Failed"
    assert statuses.is_reported("u")


async def test_an_end_that_the_mirror_shows_is_not_that_of_the_pod_now() -> None:
    """The mirror was written before a shutdown of the node, and is seen late."""
    api, mirrors = RecordingApi(), list[Pod]()
    statuses = manager(api, mirror_of=lambda _: mirrors[0] if mirrors else None)
    statuses.set_status(static_pod(), shown_as("False", ""))
    containers = [reported("a", terminated={"exitCode": 0})]
    ended = {"phase": "Failed", "reason": "Terminated", "message": "node shutdown"}
    mirrors.append(mirror(startTime=BEFORE, containerStatuses=containers, **ended))
    assert statuses.get_status("u") == {"startTime": BEFORE, "containerStatuses": containers}
    statuses.set_status(static_pod(), shown_as("True", ""))
    kept = statuses.get_status("u")
    assert kept is not None
    assert (kept["phase"], kept["startTime"]) == ("Running", BEFORE)
    await settle(statuses)
    assert [(status["phase"], status["reason"]) for _, status in api.calls] == [("Running", None)]


@pytest.mark.parametrize("status", [{}, {"phase": "Pending"}])
async def test_a_mirror_without_containers_is_no_base(status: Any) -> None:
    api, mirrors = RecordingApi(), list[Pod]()
    statuses = manager(api, mirror_of=lambda _: mirrors[0] if mirrors else None)
    statuses.set_status(static_pod(), shown_as("True", "") | {"startTime": BEFORE})
    mirrors.append(mirror(**status))
    statuses.set_status(static_pod(), shown_as("True", ""))
    kept = statuses.get_status("u")
    assert kept is not None
    assert kept["startTime"] == BEFORE
    await settle(statuses)


async def test_a_phase_is_held_back_by_what_runs_now() -> None:
    """Nothing ran at first, but containers may run now."""
    api = RecordingApi()
    of = manager(api)
    of.set_status(pod(), phase("Pending"), containers_may_run=False)
    await settle(of)
    of.set_status(pod(), phase("Failed"), containers_may_run=True)
    await settle(of)
    assert api.object["status"]["phase"] == "Pending"
    of.set_status(pod(), phase("Failed"), containers_may_run=False)
    await settle(of)
    assert api.object["status"]["phase"] == "Failed"


@pytest.mark.parametrize("how", ["there is no API", "the API is absent", "the API has it"])
async def test_a_start_is_over_when_its_status_needs_no_write(how: str) -> None:
    api: Any = RecordingApi() if how != "there is no API" else None
    shown, traces = pod(), Traces()
    if how == "the API is absent":
        api.alone, api.gate = True, asyncio.Event()
    elif how == "the API has it":
        earlier = manager(api)
        earlier.set_status(shown, phase("Running"))
        await settle(earlier)
        shown = Pod(api.object)
        api.calls.clear()
    of = manager(api, traces=traces)
    trace = traces.enter(shown.uid, "default", "x")
    of.set_status(shown, phase("Running"))
    await asyncio.sleep(1)
    assert trace.ready_at is not None
    assert api is None or not api.calls
    await of.close()
