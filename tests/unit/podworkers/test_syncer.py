"""The three verbs over fake components: order, events, and when the status is updated."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.kubeapi.errors import Forbidden, NotFound
from kubeletpy.kubeapi.protocol import Resource
from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.pods.pod import CONFIG_HASH, CONFIG_MIRROR, Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    Decision,
    PodRuntimeStatus,
    PodSyncResult,
    ProbeResults,
    StartError,
    SyncAction,
    SyncResult,
)
from kubeletpy.podworkers.history import ReasonCache
from kubeletpy.podworkers.records import SyncOutcome
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.status_composer import StatusComposer
from kubeletpy.podworkers.steps.resources import PodCgroup
from kubeletpy.podworkers.steps.runtime import MirrorPod, NetworkGate, Probes, RuntimeSync
from kubeletpy.podworkers.steps.volumes import Directories, PullSecrets, Volumes
from kubeletpy.podworkers.syncer import KubePodSyncer, TerminatingUpdates
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.runtime_manager.protocol import SyncPodRequest
from kubeletpy.volumes.claims.model import VolumeError
from tests.kit.costs import leaves_when_cancelled
from tests.kit.events import Recorder
from tests.kit.pods import make_pod, make_static, runtime_status
from tests.kit.virtual_time import LoopClock

pytestmark = pytest.mark.virtual_time

E, R = ContainerState.EXITED, ContainerState.RUNNING
EMPTY = PodRuntimeStatus("uid-web", "web", "default")


class FakeComponents:
    """Every component of a sync in one object, which records its calls in order."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.statuses: list[tuple[Any, bool]] = []
        self.kept: Any = None
        self.result = PodSyncResult()
        self.more: list[PodSyncResult] = []
        self.takes = 0.0
        self.kill_takes = 0.0
        self.refreshed: list[tuple[float, str]] = []
        """Time and version of the pod at each refresh."""
        self.volume_error: str = ""
        self.node_is_full = False
        self.request: SyncPodRequest | None = None
        self.kill_args: Any = None
        self.ends_with: Any = None
        """The status that kill_pod reports while sandboxes stop."""
        self.finished = False

    # runtime
    async def sync_pod(self, request: SyncPodRequest) -> PodSyncResult:
        self.steps.append("runtime")
        self.request = request
        if self.takes:
            assert request.on_sandbox_ready is not None
            request.on_sandbox_ready(runtime_status(state=None, at=2))
            await asyncio.sleep(self.takes)
            self.takes = 0.0
        if self.more:
            return self.more.pop(0)
        result, self.result = self.result, PodSyncResult()
        return result

    async def kill_pod(
        self,
        pod: Pod,
        status: PodRuntimeStatus,
        grace: int,
        on_stopped: Callable[[PodRuntimeStatus], None] | None,
    ) -> PodSyncResult:
        self.steps.append("kill")
        self.kill_args = (pod, grace)
        await asyncio.sleep(self.kill_takes)
        if self.ends_with is not None:
            assert on_stopped is not None
            on_stopped(self.ends_with)
            self.steps.append("sandbox stops")
        return self.result

    # status
    def get_status(self, uid: str) -> Any:
        return self.kept

    def set_status(self, pod: Pod, status: Any, *, containers_may_run: bool = True) -> None:
        self.steps.append(f"status {status['phase']}")
        self.kept = {"startTime": format_time(LoopClock().now()), **status}
        self.statuses.append((status, containers_may_run))

    def finish(self, pod: Pod) -> None:
        self.steps.append("finish")

    # volumes
    async def set_up(self, pod: Pod) -> dict[str, Any]:
        self.steps.append("volumes")
        if self.volume_error:
            raise VolumeError(self.volume_error, node_is_full=self.node_is_full)
        return {}

    async def refresh(self, pod: Pod) -> None:
        loop = asyncio.get_running_loop()
        self.refreshed.append((round(loop.time(), 3), pod.labels.get("v", "")))
        if self.volume_error:
            raise VolumeError(self.volume_error)

    async def tear_down(self, uid: str) -> None:
        self.steps.append("tear down")
        if self.volume_error:
            raise VolumeError(self.volume_error)

    # probes
    def results(self, pod: Pod) -> ProbeResults:
        return ProbeResults()

    def add_pod(self, pod: Pod) -> None:
        self.steps.append("probes")

    def stop_liveness_and_startup(self, pod: Pod) -> None:
        self.steps.append("probes end")

    def remove_pod(self, uid: str) -> None:
        pass

    def status_stored(self, pod: Pod, status: Any) -> None:
        pass

    # resizes
    def conditions(self, uid: str) -> Any:
        return ()

    def synced(self, pod: Pod, outcome: Any) -> bool:
        return False

    def ended(self, uid: str) -> None:
        pass

    # mirrors
    def reconcile(self, pod: Pod, mirror: Pod | None) -> None:
        self.steps.append("mirror")


class Api:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requested: list[str] = []

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Any:
        self.requested.append(f"{resource.plural}/{namespace}/{name}")
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Setup:
    def __init__(
        self,
        tmp_path: Path,
        *,
        network_error: Callable[[], str] = lambda: "",
        kube_api: Any = None,
        cgroups: Any = None,
    ) -> None:
        self.fakes, self.recorder, self.cache = FakeComponents(), Recorder(), PodStatusCache()
        self.rejected: list[str] = []
        fakes: Any = self.fakes
        reasons = ReasonCache()
        self.composer = StatusComposer(
            fakes,
            self.cache,
            self.recorder,
            LoopClock(),
            probes=fakes,
            reasons=reasons,
            resizes=fakes,
            actuated=ResourceState(),
            runtime_name="fake",
            metrics=Metrics().workers,
        )
        runtime = RuntimeSync(
            fakes.sync_pod,
            self.composer,
            self.cache,
            probes=fakes,
            reasons=reasons,
            resizes=fakes,
            is_reported=lambda uid: True,
            decided=lambda uid, decisions: None,
        )
        groups = [PodCgroup(cgroups, fakes.kill_pod, self.cache, self.recorder)] if cgroups else []
        self.pull_secrets = PullSecrets(kube_api, self.recorder)
        steps = [
            NetworkGate(network_error, self.recorder),
            *groups,
            MirrorPod(fakes.reconcile),
            Directories(tmp_path / "pods", self.recorder),
            Volumes(fakes, self.recorder, self.rejected.append),
            self.pull_secrets,
            Probes(fakes),
            runtime,
        ]
        self.updates = TerminatingUpdates(steps, 60.0, random.Random(1))
        self.syncer = KubePodSyncer(
            steps,
            self.composer,
            self.cache,
            read_pod=cast(Any, None),
            kill_pod=fakes.kill_pod,
            probes=fakes,
            recorder=self.recorder,
            clock=LoopClock(),
            updates=self.updates,
            traces=Traces(),
        )
        self.terminating = False

    async def sync(
        self, pod: Pod | None = None, status: PodRuntimeStatus = EMPTY, mirror: Pod | None = None
    ) -> SyncOutcome:
        return await self.syncer.sync_pod(
            pod or make_pod(), mirror, status, lambda: self.terminating
        )


async def test_the_steps_in_order_and_running_is_written_at_once(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.result = PodSyncResult(
        status=runtime_status(at=5), decisions=(Decision("start main", "it does not run"),)
    )
    outcome = await s.sync()
    assert s.fakes.steps == [
        "status Pending",
        "volumes",
        "probes",
        "runtime",
        "status Running",
        "runtime",
    ]
    assert (outcome.error, outcome.terminal, len(outcome.decisions)) == ("", False, 1)
    entry = s.cache.get("uid-web")
    assert entry is not None
    assert entry.own
    assert (tmp_path / "pods" / "uid-web" / "volumes").is_dir()
    assert (tmp_path / "pods" / "uid-web").stat().st_mode & 0o777 == 0o750


async def test_a_pod_that_has_ended_is_reported_before_it_is_taken_down(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    pod = make_pod(restartPolicy="Never")
    outcome = await s.sync(pod, runtime_status(state=E))
    assert outcome.terminal
    assert s.fakes.steps == ["status Succeeded"]
    assert s.fakes.statuses[0][1] is False


async def test_an_exit_within_the_sync_ends_the_pod_too(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.result = PodSyncResult(status=runtime_status(state=E, exit_code=3, at=5))
    outcome = await s.sync(make_pod(restartPolicy="Never"))
    assert outcome.terminal
    assert s.fakes.statuses[-1][0]["phase"] == "Failed"
    assert s.fakes.statuses[-1][1] is False


async def test_a_deadline_wakes_and_ends_the_pod_while_it_runs(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    pod = make_pod(activeDeadlineSeconds=30)
    outcome = await s.sync(pod, runtime_status())
    assert outcome.deadline == pytest.approx(LoopClock().now() + 30)
    await asyncio.sleep(30)
    outcome = await s.sync(pod, runtime_status())
    assert outcome.terminal
    assert s.fakes.statuses[-1][0]["reason"] == "DeadlineExceeded"
    assert s.fakes.statuses[-1][1] is True
    assert [reason for reason, _ in s.recorder.events] == ["DeadlineExceeded"]


async def test_a_deadline_does_not_wait_for_a_slow_pull(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.takes = 1000.0
    started = asyncio.get_running_loop().time()
    outcome = await s.sync(make_pod(activeDeadlineSeconds=30), EMPTY)
    assert asyncio.get_running_loop().time() - started == pytest.approx(30, abs=1)
    assert outcome.terminal
    assert s.fakes.statuses[-1][0]["reason"] == "DeadlineExceeded"
    # a container may have been started during the pull: the API is not shown the end yet
    assert s.fakes.statuses[-1][1] is True


async def test_a_timeout_inside_a_step_is_not_taken_for_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = Setup(tmp_path)

    async def slow(_pod: Pod) -> None:
        raise TimeoutError("its own")

    monkeypatch.setattr(s.fakes, "set_up", slow)
    with pytest.raises(TimeoutError, match="its own"):
        await s.sync(make_pod(activeDeadlineSeconds=30), EMPTY)


async def test_no_network_no_sandbox(tmp_path: Path) -> None:
    s = Setup(tmp_path, network_error=lambda: "cni is not there")
    outcome = await s.sync()
    assert outcome.network_not_ready
    assert s.recorder.events == [("NetworkNotReady", "network is not ready: cni is not there")]
    assert "runtime" not in s.fakes.steps
    assert not (await s.sync(make_pod(hostNetwork=True))).error


async def test_volumes_that_cannot_be_mounted(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.volume_error = 'volume "data": no such type here'
    outcome = await s.sync()
    reason, message = s.recorder.events[0]
    assert reason == "FailedMount"
    assert 'volume "data"' in message
    assert outcome.error == message
    assert "runtime" not in s.fakes.steps


async def test_a_pod_that_a_full_node_refuses_fails(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.volume_error, s.fakes.node_is_full = "Node has reached its limit", True
    outcome = await s.sync()
    assert s.recorder.events == [("VolumeAttachmentLimitExceeded", "Node has reached its limit")]
    assert (outcome.terminal, outcome.error, s.rejected) == (
        True,
        "",
        ["VolumeAttachmentLimitExceeded"],
    )
    assert outcome.status_override is not None
    status = outcome.status_override({"phase": "Pending", "hostIP": "10.0.0.1"})
    assert status["phase"] == "Failed"
    assert status["reason"] == "VolumeAttachmentLimitExceeded"
    assert status["message"] == "Pod was rejected: Node has reached its limit"
    assert status["hostIP"] == "10.0.0.1"


async def test_directories_that_can_not_be_made(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    (tmp_path / "pods").write_text("a file")
    outcome = await s.sync()
    assert outcome.error
    assert s.recorder.events[0][0] == "Failed"


async def test_a_crash_loop_has_a_time_of_retry_and_an_error(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    error = StartError("CrashLoopBackOff", "back-off 10s restarting failed container")
    s.fakes.result = PodSyncResult(
        results=(SyncResult(SyncAction.START_CONTAINER, "main", error),),
        start_errors={"main": error},
        retry_at=123.0,
    )
    outcome = await s.sync(status=runtime_status(state=E, exit_code=1))
    assert outcome.retry_at == 123.0
    assert "CrashLoopBackOff" in outcome.error
    waiting = s.fakes.statuses[-1][0]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "CrashLoopBackOff"


async def test_the_ip_is_shown_early_only_when_containers_take_long(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.takes = 3.0
    s.fakes.result = PodSyncResult(status=runtime_status(at=5))
    task = asyncio.ensure_future(s.sync())
    await asyncio.sleep(1)
    assert [status.get("podIP") for status, _ in s.fakes.statuses] == [None, "10.0.0.9"]
    await task
    assert len(s.fakes.statuses) == 3


async def test_a_sync_cut_short_shows_nothing_early_any_more(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.takes = 3.0
    task = asyncio.ensure_future(s.sync())
    await asyncio.sleep(0.1)
    s.terminating = True
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(1)
    assert len(s.fakes.statuses) == 1


async def test_a_canceled_sync_is_freed_with_its_last_reference(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.takes = 3.0
    assert await leaves_when_cancelled(s.sync(), asyncio.sleep(0.1))


async def test_the_runtime_is_synced_until_nothing_is_left_to_do(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.more = [
        PodSyncResult(status=runtime_status(state=None, at=5)),
        PodSyncResult(status=runtime_status(at=6)),
    ]
    await s.sync()
    assert s.fakes.steps.count("runtime") == 3
    assert s.fakes.request is not None
    assert s.fakes.request.status.running_containers


async def test_a_sync_of_a_static_pod_reconciles_its_mirror(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    await s.sync(make_static("web"))
    assert "mirror" in s.fakes.steps


def mirror_of(static: Pod, status: Any) -> Pod:
    notes = {**static.annotations, CONFIG_MIRROR: static.annotations[CONFIG_HASH]}
    about: Any = {**static.metadata, "uid": "mirror", "annotations": notes}
    return Pod({"metadata": about, "spec": static.spec, "status": status})


@pytest.mark.parametrize(("reported", "restarts"), [("uid-1", 4), ("uid-2", 0)])
async def test_only_a_mirror_of_the_same_manifest_has_the_last_status(
    tmp_path: Path, reported: str, restarts: int
) -> None:
    """Containers of an earlier manifest of that name are not counted as lost or restarted."""
    s = Setup(tmp_path)
    running = {"name": "main", "restartCount": 3, "state": {"running": {}}}
    mirror = mirror_of(make_static("web", reported), {"containerStatuses": [running]})
    await s.sync(make_static("web", "uid-1"), mirror=mirror)
    (entry,) = s.fakes.statuses[0][0]["containerStatuses"]
    assert entry["restartCount"] == restarts
    assert bool(entry.get("lastState")) == bool(restarts)


async def test_terminating(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.result = PodSyncResult(status=runtime_status(state=E, ready=False, at=9, exit_code=137))
    s.cache.set(runtime_status(at=1), own=True)
    outcome = await s.syncer.sync_terminating_pod(make_pod(), runtime_status(), 7, None)
    assert not outcome.error
    assert s.fakes.steps == ["status Running", "probes end", "kill", "status Failed"]
    assert s.fakes.kill_args[1] == 7
    final, may_run = s.fakes.statuses[-1]
    assert may_run is False
    assert final["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert final["podIP"] == "10.0.0.9"


async def test_the_status_of_an_eviction_counts(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.result = PodSyncResult(status=runtime_status(state=E, ready=False, at=9))

    def evicted(status: api.PodStatus) -> api.PodStatus:
        return {**status, "phase": "Failed", "reason": "Evicted"}

    await s.syncer.sync_terminating_pod(make_pod(), runtime_status(), 7, evicted)
    assert s.fakes.statuses[0][0]["reason"] == "Evicted"
    assert s.fakes.statuses[0][1] is True
    assert s.fakes.statuses[-1][0]["reason"] == "Evicted"


async def test_an_end_is_not_shown_while_more_may_run_than_is_known(tmp_path: Path) -> None:
    """The container was started, and the runtime then gave no status."""
    s = Setup(tmp_path)
    s.fakes.result = PodSyncResult(
        status=runtime_status(state=None, at=2), sync_error=StartError("Status", "no answer")
    )
    await s.sync()
    assert s.cache.usable("uid-web") is None
    s.fakes.result = PodSyncResult(sync_error=StartError("KillContainer", "no answer"))

    def evicted(status: api.PodStatus) -> api.PodStatus:
        return {**status, "phase": "Failed"}

    await s.syncer.sync_terminating_pod(make_pod(), runtime_status(state=None), 7, evicted)
    assert s.fakes.statuses[-1][0]["phase"] == "Failed"
    assert s.fakes.statuses[-1][1] is True
    # the status was read again
    s.cache.set(runtime_status(state=None, at=3), own=True)
    await s.syncer.sync_terminating_pod(make_pod(), runtime_status(state=None), 7, evicted)
    assert s.fakes.statuses[-1][1] is False


@pytest.mark.parametrize("deleting", [None, 7])
async def test_a_pod_that_failed_shows_it_before_its_sandbox_has_stopped(
    tmp_path: Path, deleting: int | None
) -> None:
    s = Setup(tmp_path)
    s.fakes.ends_with = runtime_status(state=E, at=8, exit_code=137)
    s.fakes.result = PodSyncResult(status=runtime_status(state=E, ready=False, at=9, exit_code=137))
    pod = make_pod(deleting=deleting)

    def failed(status: api.PodStatus) -> api.PodStatus:
        return {**status, "phase": "Failed"}

    await s.syncer.sync_terminating_pod(pod, runtime_status(), 7, failed)
    early = ["status Failed"] if deleting is None else []
    assert s.fakes.steps[3:] == [*early, "sandbox stops", "status Failed"]
    assert s.fakes.statuses[0][1] is True
    if deleting is None:
        reported, may_run = s.fakes.statuses[1]
        assert may_run is False
        assert reported["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


async def test_a_kill_that_fails_or_leaves_something_running(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.cache.set(runtime_status(), own=True)
    s.fakes.result = PodSyncResult(sync_error=StartError("KillContainer", "runtime says no"))
    outcome = await s.syncer.sync_terminating_pod(make_pod(), runtime_status(), 1, None)
    assert s.recorder.events == [("FailedKillPod", "error killing pod: runtime says no")]
    assert outcome.error
    assert s.cache.usable("uid-web") is None
    s.fakes.result = PodSyncResult(status=runtime_status(at=9))
    outcome = await s.syncer.sync_terminating_pod(make_pod(), runtime_status(), 1, None)
    assert "main" in outcome.error


async def test_finishing(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.volume_error = "busy"
    status = runtime_status(state=E, ready=False)
    assert (await s.syncer.sync_terminated_pod(make_pod(), status)).error
    assert "finish" not in s.fakes.steps
    s.fakes.volume_error = ""
    assert not (await s.syncer.sync_terminated_pod(make_pod(), status)).error
    assert s.fakes.steps[-2:] == ["tear down", "finish"]


SECRET = {
    "type": "kubernetes.io/dockerconfigjson",
    "metadata": {"uid": "s1"},
    "data": {
        ".dockerconfigjson": base64.b64encode(
            json.dumps({"auths": {"reg": {"username": "u", "password": "hunter2"}}}).encode()
        ).decode()
    },
}


async def test_pull_secrets_by_name_with_a_quick_second_try(tmp_path: Path) -> None:
    api = Api(Forbidden("not yet", code=403), SECRET, NotFound("none", code=404))
    s = Setup(tmp_path, kube_api=api)
    pod = make_pod(imagePullSecrets=[{"name": "one"}, {"name": "two"}, {"name": "one"}])
    await s.sync(pod)
    assert api.requested == ["secrets/default/one"] * 2 + ["secrets/default/two"]
    assert s.fakes.request is not None
    assert [secret.name for secret in s.fakes.request.pull_secrets] == ["one"]
    assert s.recorder.events == []
    assert s.pull_secrets.missing(pod.uid) == ("two",)
    assert s.pull_secrets.missing("other") == ()
    assert asyncio.get_running_loop().time() < 0.1
    assert "hunter2" not in repr(s.fakes.request)


@pytest.mark.parametrize(
    ("code", "reported"), [("ErrImagePull", True), ("ImagePullBackOff", False), ("", False)]
)
async def test_missing_pull_secrets_are_reported_when_a_pull_has_failed(
    tmp_path: Path, code: str, *, reported: bool
) -> None:
    s = Setup(tmp_path, kube_api=Api(NotFound("none", code=404)))
    error = StartError(code, "refused") if code else None
    s.fakes.result = PodSyncResult(
        results=(SyncResult(SyncAction.START_CONTAINER, "main", error),),
        start_errors={"main": error} if error else {},
    )
    await s.sync(make_pod(imagePullSecrets=[{"name": "two"}]))
    event = (
        "FailedToRetrieveImagePullSecret",
        "Unable to retrieve some image pull secrets (two); attempting to pull the image may not "
        "succeed.",
    )
    assert s.recorder.events.count(event) == (1 if reported else 0)


async def test_pull_secrets_are_not_read_while_all_containers_run(tmp_path: Path) -> None:
    api = Api()
    s = Setup(tmp_path, kube_api=api)
    await s.sync(make_pod(imagePullSecrets=[{"name": "one"}]), runtime_status())
    assert api.requested == []


@pytest.mark.parametrize("problem", ["", "no answer"])
async def test_volumes_are_refreshed_while_containers_end(tmp_path: Path, problem: str) -> None:
    """A second after the stop began, after each change, and once or less in 60 s otherwise."""
    s = Setup(tmp_path)
    s.fakes.kill_takes, s.fakes.volume_error = 300.0, problem
    pod = make_pod()
    labels = {"metadata": {**pod.object["metadata"], "labels": {"v": "2"}}}
    newer = Pod({**pod.object, **labels})  # type: ignore[typeddict-item]
    s.updates.touch(newer)  # the pod does not terminate yet
    loop = asyncio.get_running_loop()
    begun = loop.time()
    ending = asyncio.create_task(s.syncer.sync_terminating_pod(pod, runtime_status(), 300, None))
    await asyncio.sleep(30)
    s.updates.touch(newer)
    s.updates.touch(newer)
    await ending
    took = [(at - begun, version) for at, version in s.fakes.refreshed]
    assert took[:2] == [(1.0, ""), (30.0, "2")]
    gaps = [after[0] - before[0] for before, after in itertools.pairwise(took[1:])]
    assert len(gaps) in (3, 4)
    assert all(60 <= gap <= 90 for gap in gaps)
    assert {version for _, version in took[1:]} == {"2"}
    assert s.updates._pods == {}
    await asyncio.sleep(600)
    assert len(s.fakes.refreshed) == len(took)


async def test_volumes_of_a_pod_that_ends_at_once_are_not_refreshed(tmp_path: Path) -> None:
    s = Setup(tmp_path)
    s.fakes.kill_takes = 0.9
    await s.syncer.sync_terminating_pod(make_pod(), runtime_status(), 30, None)
    await asyncio.sleep(100)
    assert s.fakes.refreshed == []
