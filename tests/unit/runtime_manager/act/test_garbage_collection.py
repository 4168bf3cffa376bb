"""Container garbage collection: removed containers, and the files removed with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.remote.errors import FailedPrecondition, Internal
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.names import CONTAINER_NAME, POD_UID
from kubeletpy.runtime_manager.plan.gc_selection import (
    DeadContainer,
    GCPolicy,
    containers_to_remove,
    dead_containers,
    dead_links_to_remove,
    log_directories_to_remove,
    sandboxes_to_remove,
)
from tests.unit.runtime_manager.fake_node import FakeNode
from tests.unit.runtime_manager.pods_and_records import make_pod
from tests.virtual_time import on_virtual_time


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
        *("u-a-0", "u-a-1", "u-b-2", "u-b-3", "u-c-4"),
    ]


def test_running_young_and_foreign_containers_are_no_candidates() -> None:
    labels = {POD_UID: "u", CONTAINER_NAME: "a"}
    containers = [
        cri.Container(id="runs", labels=labels, state=cri.CONTAINER_RUNNING),
        cri.Container(id="young", labels=labels, state=cri.CONTAINER_EXITED, created_at=10**18),
        cri.Container(id="foreign", state=cri.CONTAINER_EXITED),
        cri.Container(id="lost", labels=labels, state=cri.CONTAINER_UNKNOWN),
        cri.Container(id="made", labels=labels, state=cri.CONTAINER_CREATED),
    ]
    found = dead_containers(containers, GCPolicy(min_age=1), 1000)
    assert [(c.id, c.unknown) for c in found] == [("lost", True), ("made", False)]


def test_sandboxes() -> None:
    def sandbox(name: str, created: int, uid: str, ready: bool = False) -> cri.PodSandbox:
        state = cri.SANDBOX_READY if ready else cri.SANDBOX_NOTREADY
        return cri.PodSandbox(id=name, labels={POD_UID: uid}, created_at=created, state=state)

    sandboxes = [
        sandbox("old", 1, "u"),
        sandbox("used", 2, "u"),
        sandbox("newest", 3, "u"),
        sandbox("gone", 4, "v"),
        sandbox("ready", 5, "v", ready=True),
        cri.PodSandbox(id="foreign"),
    ]
    chosen = sandboxes_to_remove(sandboxes, frozenset({"used"}), lambda uid: uid == "v")
    assert chosen == [("old", "u"), ("gone", "v")]


def test_files() -> None:
    names = ["ns_pod_u", "ns_pod_v", "u", "not_ours"]
    assert log_directories_to_remove(names, lambda uid: uid in ("u", "ours")) == ["ns_pod_u"]
    links = ["p_ns_c-abcdef123.log", "p_ns_c-fedcba321.log", "other", "x-1.log"]
    assert dead_links_to_remove(links, ["abcdef123456"]) == ["p_ns_c-fedcba321.log"]


@on_virtual_time
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


@on_virtual_time
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


@on_virtual_time
async def test_nothing_running_is_deleted(tmp_path: Path) -> None:
    node = FakeNode(tmp_path)
    await node.sync(make_pod())
    with pytest.raises(FailedPrecondition):
        await node.manager.remover.container("container-app-0")
    await node.manager.remover.container("no-such-container")
    assert node.runtime.running() == ["app"]
