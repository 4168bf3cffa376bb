"""The runtime manager on real containerds of both generations."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus
from kubeletpy.runtime_manager.protocol import SyncPodRequest
from tests.integration.runtime_node import make_container, make_pod, runtime_node
from tools.env.containerd import Containerd


async def test_two_containers_run_and_stop(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        pod = make_pod(
            "web", [make_container("a", env=[{"name": "A", "value": "1"}]), make_container("b")]
        )
        seen: list[PodRuntimeStatus] = []
        status = await node.refresh(pod)
        assert status.empty
        result = await node.manager.executor.sync_pod(
            SyncPodRequest(pod, status, on_sandbox_ready=seen.append)
        )
        assert not result.failed, result.error_message()
        assert result.status is not None
        assert {c.name for c in result.status.running_containers} == {"a", "b"}
        assert result.status.ips
        assert seen[0].ips == result.status.ips
        assert seen[0].containers == ()
        node.statuses[pod.uid] = result.status
        assert (await node.refresh(pod)).containers == result.status.containers
        assert not (await node.sync(pod)).acted
        log = work_dir / "pods" / f"default_web_{pod.uid}" / "a" / "0.log"
        assert log.exists()
        a = result.status.newest("a")
        assert a is not None
        link = work_dir / "containers" / f"web_default_a-{a.id}.log"
        assert link.resolve() == log
        assert node.events.reasons.count("Started") == 2
        await node.up(pod, "a", "b")
        killed = await node.kill(pod, pod.uid)
        assert not killed.failed, killed.error_message()
        assert killed.status is not None
        assert not killed.status.has_ready_sandbox
        assert killed.status.ips == result.status.ips
        assert [c.exit_code for c in killed.status.containers] == [0, 0]
        assert {c.state for c in killed.status.containers} == {ContainerState.EXITED}


async def test_exit_codes_and_messages(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        pod = make_pod(
            "ends",
            [
                make_container("file", "echo -n 'last words' > /dev/termination-log; exit 7"),
                make_container(
                    "logs",
                    "echo one; echo two; exit 3",
                    terminationMessagePolicy="FallbackToLogsOnError",
                ),
                make_container("link", "rm -f /x; ln -s /etc/passwd /x; exit 0"),
                make_container("missing", command=["/no/such/program"]),
            ],
            restartPolicy="Never",
        )
        result = await node.sync(pod)
        assert set(result.start_errors) == {"missing"}
        assert result.start_errors["missing"].code == "RunContainerError"
        status = await node.until(
            pod, lambda s: all(c.state is ContainerState.EXITED for c in s.containers)
        )
        ended = {c.name: (c.exit_code, c.message) for c in status.containers}
        assert ended["file"] == (7, "last words")
        assert ended["logs"] == (3, "one\ntwo\n")
        assert ended["link"] == (0, "")
        assert ended["missing"][0] == 128
        after = await node.sync(pod)
        assert after.acted, "a pod whose containers are done is stopped"
        assert not (node.statuses[pod.uid]).has_ready_sandbox


async def test_init_containers_in_order_and_restart_counts(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        pod = make_pod(
            "init",
            [make_container("main", "exit 1")],
            initContainers=[make_container("one", "exit 0"), make_container("two", "exit 0")],
            restartPolicy="OnFailure",
        )
        for expected in (["one"], ["one", "two"], ["one", "two", "main"]):
            result = await node.sync(pod)
            assert not result.failed, result.error_message()
            status = await node.until(
                pod, lambda s: all(c.state is ContainerState.EXITED for c in s.containers)
            )
            assert [c.name for c in reversed(status.containers)] == expected
        second = await node.sync(pod)
        assert second.acted, "the first restart is immediate"
        status = await node.until(
            pod, lambda s: all(c.state is ContainerState.EXITED for c in s.containers)
        )
        main = status.newest("main")
        assert main is not None
        assert main.restart_count == 1
        third = await node.sync(pod)
        assert not third.acted
        assert third.start_errors["main"].code == "CrashLoopBackOff"
        assert third.start_errors["main"].message == (
            f"back-off 10s restarting failed container=main pod=init_default({pod.uid})"
        )
        assert third.retry_at == pytest.approx(main.finished_at / 1e9 + 10)
        assert "BackOff" in node.events.reasons


async def test_a_new_manager_adopts_what_runs(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    pod = make_pod("stays", [make_container("a")])
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        before = (await node.sync(pod)).status
        assert before is not None
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        assert not (await node.sync(pod)).acted
        pods = await node.manager.source.list_pods()
        assert [(p.uid, p.name, p.namespace) for p in pods] == [(pod.uid, "stays", "default")]
        assert list(pods[0].containers) == [before.containers[0].id]
        result = await node.kill(None, pod.uid, None)
        assert not result.failed
        assert node.events.seen == ["Killing: Stopping container a"]


async def test_cancelled_sync_leaves_nothing_unknown(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        pod = make_pod("torn", [make_container("a")])
        empty = await node.refresh(pod)
        sync = asyncio.create_task(node.manager.executor.sync_pod(SyncPodRequest(pod, empty)))
        await asyncio.sleep(0.05)
        sync.cancel()
        await asyncio.wait([sync])
        assert sync.cancelled()
        result = await node.manager.executor.sync_pod(SyncPodRequest(pod, empty))
        assert not result.failed, result.error_message()
        status = await node.refresh(pod)
        assert len(status.sandboxes) == 1
        assert len(status.running_containers) == 1


async def test_sidecars_end_last(containerd: Containerd, work_dir: Path, cgroup_root: str) -> None:
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        slow = "trap 'sleep 0.5; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        pod = make_pod(
            "side",
            [make_container("main", slow)],
            initContainers=[make_container("proxy", restartPolicy="Always")],
        )
        await node.sync(pod)
        await node.until(pod, lambda s: s.newest("proxy") is not None)
        await node.sync(pod)
        assert {c.name for c in node.statuses[pod.uid].running_containers} == {"main", "proxy"}
        await node.up(pod, "main", "proxy")
        result = await node.kill(pod, pod.uid, 10)
        assert result.status is not None
        main, proxy = result.status.newest("main"), result.status.newest("proxy")
        assert main is not None
        assert proxy is not None
        assert (main.exit_code, proxy.exit_code) == (0, 0)
        assert proxy.finished_at > main.finished_at


async def test_changed_sandbox_is_replaced(
    containerd: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        pod = make_pod("again", [make_container("a")])
        first = (await node.sync(pod)).status
        assert first is not None
        await node.runtime.stop_pod_sandbox(first.sandboxes[0].id)
        await node.refresh(pod)
        result = await node.sync(pod)
        assert not result.failed, result.error_message()
        status = await node.refresh(pod)
        assert [s.attempt for s in status.sandboxes] == [1, 0]
        newest = status.newest("a")
        assert newest is not None
        assert (newest.restart_count, newest.running) == (1, True)
        assert "SandboxChanged" in node.events.reasons


async def test_garbage_collection(containerd: Containerd, work_dir: Path, cgroup_root: str) -> None:
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        removed = make_pod("gone", [make_container("a")])
        kept = make_pod("kept", [make_container("a", "exit 0")], restartPolicy="Never")
        await node.sync(removed)
        await node.sync(kept)
        await node.until(kept, lambda s: not s.running_containers)
        await node.kill(removed, removed.uid)
        files = work_dir / "root" / "pods" / removed.uid / "containers" / "a"
        assert len(list(files.iterdir())) == 1
        await node.manager.collector.collect(
            all_sources_ready=True, removable=lambda uid: uid == removed.uid
        )
        assert (await node.refresh(removed)).empty
        assert len((await node.refresh(kept)).containers) == 1
        assert [p.name for p in (work_dir / "pods").iterdir()] == [f"default_kept_{kept.uid}"]
        assert len(list((work_dir / "containers").iterdir())) == 1
        assert list(files.iterdir()) == []


async def test_health(containerd: Containerd, work_dir: Path, cgroup_root: str) -> None:
    async with runtime_node(containerd, work_dir, cgroup_root) as node:
        health = await node.manager.source.health()
        assert (health.runtime_ready, health.network_ready) == (True, True)
        assert (health.message, health.network_message) == ("", "")


async def test_events_carry_the_whole_status(
    containerd2: Containerd, work_dir: Path, cgroup_root: str
) -> None:
    async with runtime_node(containerd2, work_dir, cgroup_root) as node:
        pod = make_pod("events", [make_container("a", "exit 5")], restartPolicy="Never")
        found: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        async def watch() -> None:
            async for event in node.runtime.get_container_events():
                status = await node.manager.source.event_to_status(event)
                if status is None or status.uid != pod.uid:
                    continue
                ended = status.newest("a")
                if ended and ended.state is ContainerState.EXITED and not found.done():
                    found.set_result(status)

        watcher = asyncio.create_task(watch())
        await node.sync(pod)
        status = await asyncio.wait_for(found, 10)
        watcher.cancel()
        await asyncio.wait([watcher])
        assert (await node.refresh(pod)).containers == status.containers  # type: ignore[attr-defined]
