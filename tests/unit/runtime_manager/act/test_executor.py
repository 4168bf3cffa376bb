"""A sync carried out: the order of calls, the errors that stop it, and its report."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.pods.pod import Mount
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.remote.errors import CRIError, DeadlineExceeded, Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.protocol import HookFailed, SyncPodRequest
from kubeletpy.runtime_manager.read.host_dns import host_dns
from tests.kit.records import IMAGE, container, make_pod, sidecar
from tests.kit.runtime import FakeNode
from tests.kit.virtual_time import on_virtual_time

pytestmark = pytest.mark.virtual_time


async def test_new_pod(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    notified: list[PodRuntimeStatus] = []
    result = await node.sync(make_pod("a", "b"), on_sandbox_ready=notified.append)
    assert not result.failed
    assert node.runtime.changes()[:2] == ["run_pod_sandbox web", "create_container a"]
    assert node.runtime.running() == ["a", "b"]
    assert notified[0].ips == ("10.0.0.9",)
    assert sorted(node.events.seen) == [
        *["Normal Created: Container created"] * 2,
        *[
            'Normal Pulled: Container image "registry.example/app:1" already present on machine '
            "and can be accessed by the pod"
        ]
        * 2,
        *["Normal Started: Container started"] * 2,
    ]
    assert result.status is not None
    assert {c.name for c in result.status.running_containers} == {"a", "b"}
    assert all(step.reason for step in result.results)
    assert node.metrics.starts.started_pods._value.get() == 1
    assert node.metrics.starts.started_containers.labels("container")._value.get() == 2


async def test_a_sandbox_has_the_groups_of_its_volumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FakeNode(tmp_path)
    context = {"fsGroup": 5, "supplementalGroups": [6, 7]}
    mounts = {
        "a": [Mount("/x", "/y", group=7), Mount("/x", "/y", group=9), Mount("/x", "/y")],
        "b": [Mount("/x", "/y", group=9), Mount("/x", "/y", group=0)],
    }
    made: list[cri.PodSandboxConfig] = []
    run_pod_sandbox = node.runtime.run_pod_sandbox

    async def run(config: cri.PodSandboxConfig, handler: str = "") -> str:
        made.append(config)
        return await run_pod_sandbox(config, handler)

    monkeypatch.setattr(node.runtime, "run_pod_sandbox", run)
    await node.sync(make_pod("a", "b", securityContext=context), volume_mounts=mounts)
    groups = [list(each.linux.security_context.supplemental_groups) for each in made]
    assert groups == [[5, 9, 0, 6, 7]]


async def test_nothing_is_listed_within_a_sync(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod()
    status = await node.refresh(pod)
    before = len(node.runtime.calls)
    await node.manager.executor.sync_pod(SyncPodRequest(pod, status))
    reads = [c for c in node.runtime.calls[before:] if c not in node.runtime.changes()]
    assert reads == ["pod_sandbox_status sandbox-web-0", "container_status container-app-0"]


@pytest.mark.parametrize("error", [None, CRIError("CreateContainer", "no")])
async def test_an_image_is_held_until_its_container_is_created(
    tmp_path: Path, error: CRIError | None
) -> None:
    node = FakeNode(tmp_path)
    node.runtime.seconds["create_container"] = 5
    if error is not None:
        node.runtime.errors["create_container"] = error
    image = node.images.present[IMAGE].id
    sync = asyncio.create_task(node.sync(make_pod("a")))
    await asyncio.sleep(4)
    node.uses.begin_round()
    assert node.uses.used(image)
    await sync
    assert node.uses.used(image)
    node.uses.begin_round()
    assert not node.uses.used(image)


async def test_created_in_order_started_side_by_side(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    names = [f"c{n}" for n in range(5)]
    node.runtime.seconds["start_container"] = 1
    await node.sync(make_pod(*names))
    created = [c.split()[1] for c in node.runtime.calls if c.startswith("create_container")]
    assert created == names
    assert node.runtime.most_at_once["start_container"] == 5


async def test_sandbox_failure(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.runtime.errors["run_pod_sandbox"] = CRIError("RunPodSandbox", "no network")
    result = await node.sync(make_pod())
    assert [(r.action, r.error and r.error.code) for r in result.results] == [
        ("CreatePodSandbox", "CreatePodSandboxError")
    ]
    assert node.events.seen == [
        "Warning FailedCreatePodSandBox: Failed to create pod sandbox: no network"
    ]
    assert node.metrics.starts.started_pods_errors._value.get() == 1
    assert node.metrics.starts.sync_result_errors.labels("CreatePodSandbox")._value.get() == 1
    node.runtime.errors.clear()
    assert not (await node.sync(make_pod())).failed


async def test_sandbox_failure_of_a_pod_that_ends_is_silent(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    ending = False

    def is_terminating() -> bool:
        return ending

    node.runtime.errors["run_pod_sandbox"] = CRIError("RunPodSandbox", "no network")
    node.runtime.seconds["run_pod_sandbox"] = 1
    sync = asyncio.create_task(node.sync(make_pod(), is_terminating=is_terminating))
    await asyncio.sleep(0.5)
    ending = True
    result = await sync
    assert node.events.seen == []
    assert not result.failed
    assert node.metrics.starts.started_pods_errors._value.get() == 0


async def test_unchecked_sandbox_is_found_by_the_next_sync(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.runtime.errors["pod_sandbox_status"] = Unavailable("PodSandboxStatus", "gone")
    result = await node.sync(make_pod())
    assert result.sync_error is not None
    assert node.events.seen == [
        "Warning FailedPodSandBoxStatus: Unable to get pod sandbox status: gone"
    ]
    node.runtime.errors.clear()
    assert not (await node.sync(make_pod())).failed
    assert list(node.runtime.sandboxes) == ["sandbox-web-0"]


async def test_runtime_class_that_is_not_there(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    result = await node.sync(make_pod(runtimeClassName="fast"))
    assert result.cause() == Cause(CauseKind.RUNTIME_CLASS)
    assert node.runtime.changes() == []
    assert node.events.seen == [
        'Warning FailedCreatePodSandBox: Failed to create pod sandbox: RuntimeClass "fast" not '
        "found"
    ]


def _node_with_resolv_conf(directory: Path) -> tuple[FakeNode, Path]:
    file = directory / "resolv.conf"
    return FakeNode(directory, options={"host_dns": lambda: host_dns(str(file))}), file


@pytest.mark.parametrize("policy", ["Default", "ClusterFirst"])
async def test_pods_wait_for_a_resolv_conf_that_cannot_be_read(policy: str, tmp_path: Path) -> None:
    node, file = _node_with_resolv_conf(tmp_path)
    pod = make_pod(dnsPolicy=policy)
    result = await node.sync(pod)
    assert result.cause() == Cause(CauseKind.RESOLV_CONF)
    assert node.runtime.changes() == []
    assert node.events.seen == [
        f"Warning FailedCreatePodSandBox: Failed to create pod sandbox: resolvConf {file} cannot "
        "be used: No such file or directory; correct the file, or resolvConf in the node's "
        "configuration"
    ]
    file.write_text("nameserver 192.0.2.53\n")
    assert not (await node.sync(pod)).failed


async def test_containers_restart_while_the_resolv_conf_cannot_be_read(tmp_path: Path) -> None:
    node, file = _node_with_resolv_conf(tmp_path)
    file.touch()
    await node.sync(make_pod())
    node.runtime.end("container-app-0", 1)
    file.unlink()
    await node.refresh(make_pod())
    result = await node.sync(make_pod())
    assert not result.failed
    assert node.runtime.running() == ["app"]


async def test_a_pod_with_its_own_name_servers_needs_no_resolv_conf(tmp_path: Path) -> None:
    node, _ = _node_with_resolv_conf(tmp_path)
    pod = make_pod(dnsPolicy="None", dnsConfig={"nameservers": ["192.0.2.53"]})
    assert not (await node.sync(pod)).failed


async def test_one_failing_container_does_not_stop_the_others(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.runtime.errors["create_container a"] = CRIError("CreateContainer", "bad mount")
    node.runtime.errors["start_container container-b-0"] = CRIError(
        "StartContainer", "failed to start container-b-0: no such file"
    )
    result = await node.sync(make_pod("a", "b", "c"))
    assert node.runtime.running() == ["c"]
    errors = {n: (e.code, e.message) for n, e in result.start_errors.items()}
    assert errors == {
        "a": ("CreateContainerError", "bad mount"),
        "b": ("RunContainerError", "failed to start b: no such file"),
    }
    assert "Warning Failed: Error: failed to start b: no such file" in node.events.seen
    code = node.metrics.starts.started_containers_errors.labels("container", "RunContainerError")
    assert code._value.get() == 1


async def test_config_error(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]
    result = await node.sync(make_pod(container("app", env=env)))
    assert result.start_errors["app"].code == "CreateContainerConfigError"
    assert node.events.seen[-1].startswith("Warning Failed: Error: ")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"securityContext": {"seccompProfile": {"type": "Strict"}}},
            'container app: seccompProfile.type is "Strict", not one of RuntimeDefault, Localhost, '
            "Unconfined; correct the pod's spec",
        ),
        (
            {"imagePullPolicy": "always"},
            'container app has a malformed field: imagePullPolicy is "always", not one of Always, '
            "IfNotPresent, Never; correct the pod's spec",
        ),
    ],
)
async def test_an_unknown_value_is_a_config_error(
    tmp_path: Path, fields: Any, message: str
) -> None:
    node = FakeNode(tmp_path)
    result = await node.sync(make_pod(container("app", **fields)))
    error = result.start_errors["app"]
    assert (error.code, error.message) == ("CreateContainerConfigError", message)
    assert node.events.seen[-1] == f"Warning Failed: Error: {message}"


async def test_init_failure_stops_the_sync_but_a_sidecars_does_not(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    node.runtime.errors["create_container side"] = CRIError("CreateContainer", "no")
    node.runtime.errors["create_container init"] = CRIError("CreateContainer", "no")
    pod = make_pod("app", init=(sidecar("side"), "init"))
    await node.sync(pod)
    assert node.runtime.running() == []
    assert [c for c in node.runtime.calls if c.startswith("create_container")] == [
        "create_container side"
    ]


@pytest.mark.parametrize(("last_count", "made"), [(None, "app-3"), (3, "app-4")])
async def test_an_empty_log_of_a_creation_that_was_cut_off_is_not_counted(
    tmp_path: Path, last_count: int | None, made: str
) -> None:
    node = FakeNode(tmp_path)
    logs = tmp_path / "pods" / "prod_web_uid-1" / "app"
    logs.mkdir(parents=True)
    (logs / "2.log").write_text("said")
    (logs / "3.log").touch()
    reported: Any = {}
    if last_count is not None:
        reported["containerStatuses"] = [{"name": "app", "restartCount": last_count}]
    await node.sync(make_pod(), api_status=reported)
    assert list(node.runtime.containers) == [f"container-{made}"]


async def test_replaced_sandbox(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("app", init=("init",))
    await node.sync(pod)
    node.runtime.end("container-init-0", 0)
    await node.refresh(pod)
    await node.sync(pod)
    await node.runtime.stop_pod_sandbox("sandbox-web-0")
    await node.refresh(pod)
    result = await node.sync(pod)
    assert not result.failed
    assert "Normal SandboxChanged: Pod sandbox changed, it will be killed and re-created." in (
        node.events.seen
    )
    assert "container-init-0" not in node.runtime.containers
    assert node.runtime.running() == ["init"]
    assert node.known is not None
    assert [s.attempt for s in node.known.sandboxes] == [1, 0]


async def test_termination_between_steps(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    ending = False
    sync = asyncio.create_task(node.sync(make_pod(), is_terminating=lambda: ending))
    node.runtime.seconds["run_pod_sandbox"] = 1
    await asyncio.sleep(0.5)
    ending = True
    result = await sync
    assert node.runtime.changes() == ["run_pod_sandbox web"]
    assert result.status is not None
    assert result.status.has_ready_sandbox
    killed = await node.kill(make_pod())
    assert killed.status is not None
    assert not killed.status.has_ready_sandbox


async def test_nothing_is_done_for_a_pod_that_is_to_end(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    await node.sync(make_pod())
    await node.runtime.stop_pod_sandbox("sandbox-web-0")
    await node.refresh(make_pod())
    before = len(node.runtime.calls)
    assert not (await node.sync(make_pod(), is_terminating=lambda: True)).acted
    assert node.runtime.calls[before:] == []


async def test_termination_during_a_pull_creates_nothing(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    ending = False
    node.images.registry = {"r.io/slow:1": ""}
    node.images.pull_seconds = 10
    pod = make_pod(container("app", image="r.io/slow:1"))
    sync = asyncio.create_task(node.sync(pod, is_terminating=lambda: ending))
    await asyncio.sleep(5)
    ending = True
    assert not (await sync).failed
    assert node.runtime.changes() == ["run_pod_sandbox web"]


@pytest.mark.parametrize("moment", [0.5, 1.5, 2.5])
def test_a_canceled_sync_is_continued_by_the_next(tmp_path: Path, moment: float) -> None:
    @on_virtual_time
    async def scenario() -> None:
        node = FakeNode(tmp_path)
        pod = make_pod()
        for call in ("run_pod_sandbox", "create_container", "start_container"):
            node.runtime.seconds[call] = 1
        stale = await node.refresh(pod)
        sync = asyncio.create_task(node.manager.executor.sync_pod(SyncPodRequest(pod, stale)))
        await asyncio.sleep(moment)
        sync.cancel()
        await asyncio.wait([sync])
        result = await node.manager.executor.sync_pod(SyncPodRequest(pod, stale))
        assert not result.failed
        assert node.runtime.running() == ["app"]
        assert list(node.runtime.sandboxes) == ["sandbox-web-0"]

    scenario()


async def test_kill_waits_for_a_sandbox_under_way(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod()
    node.runtime.seconds["run_pod_sandbox"] = 5
    stale = await node.refresh(pod)
    sync = asyncio.create_task(node.manager.executor.sync_pod(SyncPodRequest(pod, stale)))
    await asyncio.sleep(1)
    sync.cancel()
    killed = await node.manager.killer.kill_pod(pod, stale, 1)
    assert killed.status is not None
    assert not killed.status.has_ready_sandbox
    assert "stop_pod_sandbox sandbox-web-0" in node.runtime.calls


async def test_after_a_timed_out_call_containers_are_listed_again(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod()
    await node.sync(pod)
    node.runtime.end("container-app-0", 1)
    await node.refresh(pod)
    node.runtime.errors["create_container"] = DeadlineExceeded("CreateContainer", "too slow")
    assert (await node.sync(pod)).start_errors["app"].code == "CreateContainerError"
    before = len(node.runtime.calls)
    await node.sync(pod)
    assert "list_containers " in node.runtime.calls[before:]


async def test_post_start(tmp_path: Path) -> None:
    order: list[str] = []

    class Hooks:
        async def post_start(self, pod: Any, container: Any, container_id: str) -> None:
            await asyncio.sleep(1)
            order.append(f"hook {container['name']} {sorted(node.runtime.running())}")
            if container["name"] == "bad":
                raise HookFailed("secret reason")

        async def pre_stop(self, *_: Any) -> None:
            raise AssertionError

    node = FakeNode(tmp_path, options={"hooks": Hooks()})
    hook: Any = {"postStart": {"exec": {"command": ["x"]}}}
    pod = make_pod(container("first", lifecycle=hook), "second", container("bad", lifecycle=hook))
    result = await node.sync(pod)
    assert order == ["hook first ['first']", "hook bad ['bad', 'first', 'second']"]
    assert result.start_errors["bad"].code == "PostStartHookError"
    assert sorted(node.runtime.running()) == ["first", "second"]
    assert "Warning FailedPostStartHook: PostStartHook failed" in node.events.seen
    assert "Normal Killing: FailedPostStartHook" in node.events.seen
    assert "secret reason" not in " ".join(node.events.seen)


async def test_start_slots(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, options={"concurrent_starts": 3})
    node.runtime.seconds["run_pod_sandbox"] = 1
    pods = [make_pod(f"c{n}", metadata={"uid": f"u{n}", "name": f"p{n}"}) for n in range(6)]

    async def run(pod: Any) -> None:
        status = await node.manager.source.read_pod_status(pod.uid, pod.name, pod.namespace)
        await node.manager.executor.sync_pod(SyncPodRequest(pod, status))

    syncs = [asyncio.create_task(run(pod)) for pod in pods]
    await asyncio.sleep(1.9)
    assert len(node.runtime.running()) == 2, "containers go before the next sandboxes"
    await asyncio.gather(*syncs)
    assert node.runtime.most_at_once["run_pod_sandbox"] == 2
    assert len(node.runtime.running()) == 6


async def test_restart_of_all_containers(tmp_path: Path) -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    source = container("source", restartPolicy="Never", restartPolicyRules=[rule])
    node = FakeNode(tmp_path)
    pod = make_pod(source, "other", init=("init",))
    await node.sync(pod)
    node.runtime.end("container-init-0", 0)
    await node.refresh(pod)
    await node.sync(pod)
    logs = tmp_path / "pods" / "prod_web_uid-1"
    for name in ("source", "other", "init"):
        (logs / name / "0.log").touch()
    node.runtime.end("container-source-0", 42)
    await node.refresh(pod)
    before = len(node.runtime.calls)
    result = await node.sync(pod)
    assert not result.failed
    assert [c for c in node.runtime.changes() if c in node.runtime.calls[before:]] == [
        "stop_container container-other-0 2",
        "remove_container container-other-0",
        "remove_container container-init-0",
        "remove_container container-source-0",
    ]
    assert result.status is not None
    assert result.status.containers == ()
    assert result.status.has_ready_sandbox
    assert "Normal Killing: killing" in node.events.seen
    await node.sync(pod)
    assert list(node.runtime.containers) == ["container-init-1"], "counts go on, from the logs"


async def test_old_records_of_init_containers_are_removed(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("app", init=("init",))
    await node.sync(pod)
    for attempt in range(3):
        node.runtime.end(f"container-init-{attempt}", 1)
        await node.refresh(pod)
        await asyncio.sleep(400)
        await node.sync(pod)
    assert list(node.runtime.containers) == ["container-init-2", "container-init-3"]


async def test_records_of_unreported_ends_are_kept(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("app", init=("one", "two"))
    untold: dict[str, Any] = {"reported": lambda: False}
    await node.sync(pod)
    for attempt in range(3):
        node.runtime.end(f"container-one-{attempt}", 1)
        await node.refresh(pod)
        await asyncio.sleep(400)
        await node.sync(pod, **untold)
    assert list(node.runtime.containers) == [f"container-one-{n}" for n in (1, 2, 3)]
    node.runtime.end("container-one-3", 0)
    await node.refresh(pod)
    await node.sync(pod)
    node.runtime.end("container-two-0", 0)
    await node.runtime.stop_pod_sandbox("sandbox-web-0")
    await node.refresh(pod)
    await node.sync(pod, **untold)
    # a new sandbox does not bypass the backoff
    assert set(node.runtime.containers) == {"container-one-3", "container-two-0"}
    await asyncio.sleep(400)
    await node.refresh(pod)
    await node.sync(pod, **untold)
    # both ends are still there for the status, and initialization starts again anyway
    assert {"container-one-3", "container-two-0"} < set(node.runtime.containers)
    assert node.runtime.running() == ["one"]
    node.runtime.end("container-one-4", 0)
    await node.refresh(pod)
    await node.sync(pod)
    assert node.runtime.running() == ["two"]
    node.runtime.end("container-two-1", 0)
    await node.refresh(pod)
    await node.sync(pod)
    assert node.runtime.running() == ["app"]
    assert sorted(node.runtime.containers) == [
        "container-app-0",
        "container-one-4",
        "container-two-1",
    ]


async def test_unwanted_containers_are_killed_side_by_side(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    await node.sync(make_pod("a", "b", terminationGracePeriodSeconds=30))
    node.runtime.stop_seconds = {"a": 5, "b": 5}
    changed = [container(name, image="registry.example/app:2") for name in ("a", "b")]
    node.images.add("registry.example/app:2")
    pod = make_pod(*changed, terminationGracePeriodSeconds=30)
    before = asyncio.get_running_loop().time()
    result = await node.sync(pod)
    assert asyncio.get_running_loop().time() - before == pytest.approx(5, abs=0.2)
    assert not result.failed
    assert "Normal Killing: Container a definition changed, will be restarted" in node.events.seen
    assert node.known is not None
    assert sorted(c.restart_count for c in node.known.running_containers) == [1, 1]
    node.runtime.errors["stop_container container-a-1"] = CRIError("StopContainer", "stuck")
    failed = await node.sync(make_pod("a", "b"))
    assert failed.failed
    assert "container-b-2" not in node.runtime.containers, "a failed kill ends the sync"


async def test_an_error_is_cleared_of_secrets_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have thousands of values that the runtime's text must not show."""
    cleared: list[str] = []

    def hide(text: str, *_: object) -> str:
        cleared.append(threading.current_thread().name)
        return text

    monkeypatch.setattr("kubeletpy.runtime_manager.act.start_container.hide_secrets", hide)
    for call in ("create_container app", "start_container container-app-0"):
        node = FakeNode(tmp_path)
        node.runtime.errors[call] = CRIError(call, "no")
        await node.sync(make_pod(container("app")))
    assert len(cleared) == 2
    assert threading.main_thread().name not in cleared
