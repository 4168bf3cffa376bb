"""Dead containers, calls with an unknown effect, and work that an earlier agent left unfinished."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.pods.runtime_status import ContainerState
from kubeletpy.remote.errors import DeadlineExceeded, FailedPrecondition, Internal
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.names import CONFIG_HASH
from kubeletpy.runtime_manager.plan.gc_selection import (
    DeadContainer,
    GCPolicy,
    containers_to_remove,
    dead_links_to_remove,
    log_directories_to_remove,
)
from tests.kit.records import container, make_pod, sidecar
from tests.kit.runtime import FakeNode, FakeRuntime

pytestmark = pytest.mark.virtual_time


class Forgetful(FakeRuntime):
    """Makes the sandbox, and answers that it failed."""

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig, runtime_handler: str) -> str:
        made = await super().run_pod_sandbox(config, runtime_handler)
        if config.metadata.attempt:
            raise DeadlineExceeded("RunPodSandbox", f"no answer about {made}")
        return made


async def test_a_sandbox_made_by_a_call_that_failed_is_known(tmp_path: Path) -> None:
    node = FakeNode(tmp_path, runtime=Forgetful())
    pod = make_pod("a")
    await node.sync(pod)
    for sandbox in node.runtime.sandboxes.values():
        sandbox.state = cri.SANDBOX_NOTREADY
    await node.refresh(pod)
    result = await node.sync(pod)
    assert result.failed
    assert result.status is not None
    assert {s.attempt for s in result.status.sandboxes} == {0, 1}
    await node.kill(pod)
    assert not any(s.state == cri.SANDBOX_READY for s in node.runtime.sandboxes.values())


async def left_unstarted(tmp_path: Path, *, hash_changed: bool) -> FakeNode:
    """A node that finds a container which an earlier agent has made and not started, and syncs."""
    node = FakeNode(tmp_path)
    pod = make_pod("a")
    await node.sync(pod)
    left = node.runtime.containers["container-a-0"]
    left.state, left.started_at = cri.CONTAINER_CREATED, 0
    if hash_changed:
        left.annotations[CONFIG_HASH] = "of another configuration"
    await node.refresh(pod)
    node.runtime.calls.clear()
    result = await node.sync(pod)
    assert not result.failed
    return node


async def test_a_container_never_started_is_started_if_it_is_the_same(tmp_path: Path) -> None:
    node = await left_unstarted(tmp_path, hash_changed=False)
    assert "start_container container-a-0" in node.runtime.calls
    assert not [each for each in node.runtime.calls if each.startswith(("create_", "remove_"))]


async def test_a_container_that_never_started_is_replaced(tmp_path: Path) -> None:
    node = await left_unstarted(tmp_path, hash_changed=True)
    assert "remove_container container-a-0" in node.runtime.calls
    (made,) = node.runtime.containers.values()
    assert made.metadata.attempt == 0, "it was no attempt"
    assert made.annotations["io.kubernetes.container.restartCount"] == "0"


async def test_one_that_can_not_be_started_is_not_tried_again(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a")
    node.runtime.errors["start_container"] = Internal("StartContainer", "no such program")
    assert (await node.sync(pod)).start_errors["a"].code == "RunContainerError"
    del node.runtime.errors["start_container"]
    await node.refresh(pod)
    await node.sync(pod)
    assert "remove_container container-a-0" in node.runtime.calls
    (made,) = node.runtime.containers.values()
    assert made.metadata.attempt == 1


async def test_a_container_that_starts_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """The runtime still works off the requests of an agent that has exited."""
    node = FakeNode(tmp_path)
    pod = make_pod("a")
    await node.sync(pod)
    left = node.runtime.containers["container-a-0"]
    left.state = cri.CONTAINER_CREATED
    await node.refresh(pod)
    left.state = cri.CONTAINER_RUNNING
    result = await node.sync(pod)
    assert node.runtime.running() == ["a"]
    assert list(node.runtime.containers) == ["container-a-0"]
    assert result.status is not None
    assert [c.id for c in result.status.running_containers] == ["container-a-0"]


async def test_nothing_is_made_beside_a_container_that_is_being_started(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a")
    await node.sync(pod)
    node.runtime.containers["container-a-0"].state = cri.CONTAINER_CREATED
    node.runtime.containers["container-a-0"].annotations[CONFIG_HASH] = "of another configuration"
    await node.refresh(pod)
    node.runtime.errors["remove_container"] = Internal("RemoveContainer", "in starting state")
    result = await node.sync(pod)
    assert result.start_errors["a"].code == "CreateContainerError"
    assert "create_container a" not in node.runtime.calls[-3:]


async def test_a_pod_that_may_not_run_again_has_ended(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod(container("a"), init=[sidecar("s")], restartPolicy="Never")
    result = await node.sync(pod)
    assert not result.ended
    for sandbox in node.runtime.sandboxes.values():
        sandbox.state, sandbox.metadata.attempt = cri.SANDBOX_NOTREADY, 1
    await node.refresh(pod)
    assert (await node.sync(pod)).ended


def abandon(node: FakeNode, container_id: str) -> None:
    """The agent is killed while the runtime starts a container, and another one takes over."""
    left = node.runtime.containers[container_id]
    left.state, left.started_at, left.finished_at = cri.CONTAINER_EXITED, 0, 5
    left.exit_code, left.reason, left.message = 128, "StartError", "failed to: context canceled"
    node.restart_agent()
    node.runtime.calls.clear()


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
async def test_a_start_that_an_agent_left_behind_is_made_again(tmp_path: Path, policy: str) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a", policy=policy)
    await node.sync(pod)
    abandon(node, "container-a-0")
    result = await node.sync(pod)
    assert not result.failed
    assert "remove_container container-a-0" in node.runtime.calls
    (made,) = node.runtime.containers.values()
    assert (made.state, made.metadata.attempt) == (cri.CONTAINER_RUNNING, 0)
    assert result.status is not None
    assert [c.restart_count for c in result.status.containers] == [0]


async def test_one_that_the_runtime_does_not_remove_leaves_the_count(tmp_path: Path) -> None:
    """containerd 1.6 keeps the task of a canceled start, and with it the container's name."""
    node = FakeNode(tmp_path)
    pod = make_pod("a")
    await node.sync(pod)
    abandon(node, "container-a-0")
    node.runtime.errors["remove_container"] = Internal("RemoveContainer", "running task")
    result = await node.sync(pod)
    assert not result.failed
    assert result.status is not None
    found = {c.id: (c.restart_count, c.attempt) for c in result.status.containers}
    assert found == {"container-a-0": (0, 0), "container-a-1": (0, 1)}
    node.runtime.end("container-a-1", 3)
    await node.refresh(pod)
    await node.sync(pod)
    after = await node.refresh(pod)
    newest = after.newest("a")
    assert newest is not None
    assert (newest.id, newest.restart_count, newest.attempt) == ("container-a-2", 1, 2)


async def test_a_pod_that_never_ran_gets_another_sandbox(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a", restartPolicy="Never")
    await node.sync(pod)
    abandon(node, "container-a-0")
    for sandbox in node.runtime.sandboxes.values():
        sandbox.state, sandbox.metadata.attempt = cri.SANDBOX_NOTREADY, 1
    result = await node.sync(pod)
    assert not result.ended
    assert node.runtime.running() == ["a"]


async def test_an_equal_exit_counts_for_its_own_run(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a", restartPolicy="Never")
    node.runtime.errors["start_container"] = Internal("StartContainer", "context canceled")
    await node.sync(pod)
    left = node.runtime.containers["container-a-0"]
    left.state, left.exit_code, left.reason = cri.CONTAINER_EXITED, 128, "StartError"
    left.message, left.finished_at = "context canceled", 5
    status = await node.refresh(pod)
    assert [(c.state, c.exit_code) for c in status.containers] == [(ContainerState.EXITED, 128)]


async def test_an_ephemeral_container_that_never_started_is_started(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a", ephemeral=("debug",))
    await node.sync(pod)
    await node.sync(pod)
    abandon(node, "container-debug-0")
    await node.sync(pod)
    assert sorted(node.runtime.running()) == ["a", "debug"]


async def test_an_end_before_an_abandoned_start_is_kept(tmp_path: Path) -> None:
    """Only a container that ran can replace the record of an older end."""
    node = FakeNode(tmp_path)
    pod = make_pod("a")
    await node.sync(pod)
    node.runtime.end("container-a-0", 3)
    await node.refresh(pod)
    await node.sync(pod)
    abandon(node, "container-a-1")
    await node.manager.collector.collect(all_sources_ready=True, removable=lambda uid: False)
    assert "remove_container container-a-0" not in node.runtime.calls


# Container garbage collection: removed containers, and the files removed with them.


def dead(name: str, created: int, uid: str = "u") -> DeadContainer:
    return DeadContainer(f"{uid}-{name}-{created}", uid, name, created, unknown=False)


def removed_by(
    policy: GCPolicy, *containers: DeadContainer, removable: str = "", ready: bool = True
) -> list[str]:
    chosen = containers_to_remove(
        containers, policy, lambda uid: uid == removable, all_sources_ready=ready
    )
    return [container.id for container in chosen]


def test_newest_of_each_name_stays() -> None:
    units = [dead("a", n) for n in (3, 1, 2)] + [dead("b", 1), dead("a", 5, "v")]
    assert removed_by(GCPolicy(), *units) == ["u-a-1", "u-a-2"]
    assert removed_by(GCPolicy(max_per_container=2), *units) == ["u-a-1"]
    assert removed_by(GCPolicy(max_per_container=-1), *units) == []
    assert len(removed_by(GCPolicy(max_per_container=0), *units)) == 5


def test_all_of_a_removable_pod_go_once_all_sources_are_ready() -> None:
    units = [dead("a", 1), dead("a", 2), dead("b", 3)]
    assert removed_by(GCPolicy(), *units, removable="u") == ["u-a-1", "u-a-2", "u-b-3"]
    assert removed_by(GCPolicy(), *units, removable="u", ready=False) == ["u-a-1"]


def test_global_cap_is_spread_then_takes_the_oldest() -> None:
    units = [dead(name, n) for n, name in enumerate("aabbcc")]
    assert removed_by(GCPolicy(max_per_container=-1, max_total=3), *units) == [
        "u-a-0",
        "u-b-2",
        "u-c-4",
    ]
    assert removed_by(GCPolicy(max_per_container=-1, max_total=1), *units) == [
        *("u-a-0", "u-a-1", "u-b-2", "u-b-3", "u-c-4")
    ]


def test_files() -> None:
    names = ["ns_pod_u", "ns_pod_v", "u", "not_ours"]
    assert log_directories_to_remove(names, lambda uid: uid in ("u", "ours")) == ["ns_pod_u"]
    links = ["p_ns_c-abcdef123.log", "p_ns_c-fedcba321.log", "other", "x-1.log"]
    assert dead_links_to_remove(links, ["abcdef123456"]) == ["p_ns_c-fedcba321.log"]


async def test_a_round(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod()
    await node.sync(pod)
    node.runtime.end("container-app-0", 0)
    await node.refresh(pod)
    await node.sync(pod)
    node.runtime.containers["container-app-1"].state = cri.CONTAINER_UNKNOWN
    assert node.known is not None
    log_directory = tmp_path / "pods" / "prod_web_uid-1"
    for name in ("0.log", "0.log.20260101", "1.log"):
        (log_directory / "app" / name).touch()
    link = tmp_path / "containers" / "web_prod_app-container-app-0.log"
    link.parent.mkdir()
    link.symlink_to(log_directory / "app" / "gone.log")
    left = link.with_name("x_y_z-abcdef123456.log")
    left.symlink_to("/nowhere/else.log")
    rotated = link.with_name("x_y_z-fedcba654321.log")
    rotated.symlink_to(tmp_path / "else.log")
    no_log = link.with_name("something-else")
    no_log.symlink_to("/nowhere/else")
    await node.manager.collector.collect(all_sources_ready=True, removable=lambda uid: False)
    assert list(node.runtime.containers) == ["container-app-1"]
    assert [p.name for p in (log_directory / "app").iterdir()] == ["1.log"]
    assert not link.is_symlink()
    assert not left.is_symlink(), "of a node that no longer exists"
    assert rotated.is_symlink(), "of somebody else, whose folder is there"
    assert no_log.is_symlink()
    assert list(node.runtime.sandboxes) == ["sandbox-web-0"]
    node.runtime.sandboxes["sandbox-web-0"].state = cri.SANDBOX_NOTREADY
    await node.manager.collector.collect(all_sources_ready=True, removable=lambda uid: True)
    assert "stop_container container-app-1 2" in node.runtime.calls
    assert not node.runtime.containers
    assert not node.runtime.sandboxes
    assert not log_directory.exists()


async def test_a_failed_removal_is_retried_later(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    pod = make_pod("a", "b")
    await node.sync(pod)
    for name in ("a", "b"):
        node.runtime.end(f"container-{name}-0", 0)
    node.runtime.errors["remove_container container-a-0"] = Internal("RemoveContainer", "busy")
    await node.manager.collector.collect(all_sources_ready=True, removable=lambda uid: True)
    assert list(node.runtime.containers) == ["container-a-0"]
    assert list(node.runtime.sandboxes) == ["sandbox-web-0"], "it still has a container"


async def test_nothing_running_is_deleted(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    await node.sync(make_pod())
    with pytest.raises(FailedPrecondition):
        await node.manager.remover.container("container-app-0")
    await node.manager.remover.container("no-such-container")
    assert node.runtime.running() == ["app"]


# Records whose end has not been reported to the API are not removed.

RUNS = [dead("a", n) for n in (1, 2, 3, 4)] + [dead("b", 1), dead("b", 2), dead("b", 9, "v")]


@pytest.mark.parametrize("policy", [GCPolicy(), GCPolicy(0, 0, 0), GCPolicy(0, 1, 1)])
@pytest.mark.parametrize("removable", [True, False])
def test_records_for_the_status_stay_until_it_is_reported(
    policy: GCPolicy, removable: bool
) -> None:
    going = containers_to_remove(
        RUNS, policy, lambda uid: removable, all_sources_ready=True, reported=lambda uid: uid != "u"
    )
    assert {"u-a-4", "u-a-3", "u-b-2", "u-b-1"}.isdisjoint(each.id for each in going)
    if removable:
        assert [each.id for each in going] == ["u-a-1", "u-a-2", "v-b-9"]


def test_once_it_is_reported_they_go() -> None:
    going = containers_to_remove(RUNS, GCPolicy(), lambda uid: True, all_sources_ready=True)
    assert len(going) == len(RUNS)
