"""Ways to die on a simulated node: the agent finds the cause of each, as the catalogue has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.node.guards.oom_watch import Kill
from kubeletpy.observe.explain.death_watch import MAX_CAUSES, SETTLE_S, CgroupCounters, DeathWatch
from kubeletpy.observe.explain.deaths import Actor, DeathCause, DeathKind
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy_up.requests import ADMIN
from tests.kit.deaths import WAYS
from tests.sim import scripts, test_shutdowns
from tests.sim.loop import run
from tests.sim.records import Container, Sandbox
from tests.sim.test_endings import event_messages, until
from tests.sim.test_scenarios import manifest
from tests.sim.troubles_endings import _evicted as evict
from tests.sim.user import container, pod, sidecar
from tests.sim.world import World

NAME, APP = "web", "app"
Make = Callable[[World], Awaitable[None]]
FAILS = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}


def watch(world: World) -> DeathWatch:
    assert world.agent is not None
    found: DeathWatch = world.agent.component(DeathWatch)
    return found


async def start(world: World, *made: Any, **more: Any) -> None:
    """Create the pod, and wait until its containers run."""
    world.user.create(pod(NAME, list(made) or [container(APP, "run")], **more))
    await until(world, lambda: len(world.runtime.running()) >= len(made or (1,)), 30)
    await asyncio.sleep(2)


def app(world: World) -> Container:
    """The newest container of the pod with that name."""
    return [each for each in world.runtime.containers.values() if each.name == APP][-1]


async def _deleted(world: World) -> None:
    await start(world)
    world.user.delete(NAME)


async def _deaf(world: World) -> None:
    await start(world, container(APP, "stubborn"))
    world.user.delete(NAME)


async def _pre_stop(world: World) -> None:
    world.runtime.commands["wait"] = (1e6, cri.ExecSyncResponse())
    hook = {"preStop": {"exec": {"command": ["wait"]}}}
    await start(world, container(APP, "run", lifecycle=hook))
    world.user.delete(NAME)


async def _probe(world: World, **probe: Any) -> None:
    world.runtime.commands["false"] = (0.0, cri.ExecSyncResponse(exit_code=1))
    world.user.create(pod(NAME, [container(APP, "run", **probe)]))


async def _post_start(world: World) -> None:
    await _probe(world, lifecycle={"postStart": {"exec": {"command": ["false"]}}})


async def _changed(world: World) -> None:
    await start(world)
    world.user.set_image(NAME, 0, f"{scripts.LOCAL}/run:2")


async def _sandbox(world: World) -> None:
    await start(world)
    world.runtime.kill_sandbox(next(each for each in world.runtime.sandboxes.values()))


async def _over(world: World) -> None:
    made = [container("main", "doneslow")]
    world.user.create(pod(NAME, made, init=[sidecar(APP)], restart="Never"))


async def _beside(world: World) -> None:
    init = [sidecar(APP), container("setup", "failslow")]
    world.user.create(pod(NAME, [container("main", "run")], init=init, restart="Never"))


async def _ends(world: World, what: str) -> None:
    world.user.create(pod(NAME, [container(APP, what)], restart="Never"))


async def _deadline(world: World) -> None:
    await start(world, restart="Never", activeDeadlineSeconds=20)


async def _removed(world: World) -> None:
    assert world.static_dir is not None
    path = world.static_dir / "web.yaml"
    path.write_text(manifest(NAME))
    await until(world, world.runtime.running, 60)
    await asyncio.sleep(2)
    path.unlink()


async def _oom(world: World) -> None:
    await start(world, restart="Never")
    group = f"/kubepods/pod{app(world).uid}/{app(world).id}"
    watch(world).killed(Kill(1, "hog", 71, group, group, True))
    world.runtime.kill_container(app(world))


async def _oom_unlogged(world: World, **more: Any) -> None:
    await start(world, restart="Never", **more)
    world.runtime.kill_container(app(world))


async def _preempted(world: World) -> None:
    await start(world, container(APP, "run", resources={"requests": {"cpu": "3"}}))
    urgent = pod("urgent", [container("main", "run", resources={"requests": {"cpu": "3"}})])
    last = {**urgent, **test_shutdowns.critical(urgent)}
    world.registry.create(ADMIN, "pods", last, "kube-system")


PLAYS: Mapping[str, tuple[Make, dict[str, Any]]] = {
    "deleted": (_deleted, {}),
    "deleted-and-deaf": (_deaf, {}),
    "prestop-hook-too-long": (_pre_stop, {}),
    "liveness-probe": (lambda world: _probe(world, livenessProbe=FAILS), {}),
    "startup-probe": (lambda world: _probe(world, startupProbe=FAILS), {}),
    "poststart-hook-fails": (_post_start, {}),
    "definition-changed": (_changed, {}),
    "sandbox-killed": (_sandbox, {}),
    "sidecar-of-a-pod-that-has-ended": (_over, {}),
    "container-beside-a-failed-init-container": (_beside, {}),
    "exit-0": (lambda world: _ends(world, "done"), {}),
    "exit-1": (lambda world: _ends(world, "fail"), {}),
    "program-missing": (lambda world: _ends(world, "badstart"), {}),
    "deadline": (_deadline, {}),
    "manifest-removed": (_removed, {"static": True}),
    "oom-at-its-limit": (_oom, {}),
    "oom-without-kernel-log": (_oom_unlogged, {}),
    "preempted": (_preempted, {}),
    "evicted": (evict, {"pressure": True}),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", PLAYS)
def test_the_agent_finds_the_cause(tmp_path: Path, name: str) -> None:
    make, options = PLAYS[name]
    found = cause_of(make, tmp_path, **options)
    assert (found.kind, found.actor) == (WAYS[name].kind, WAYS[name].actor), found.text


def test_the_stop_of_a_sandbox_is_no_cause_of_the_end_before_it(tmp_path: Path) -> None:
    """The agent stops the sandbox of a pod that has ended, before the cause is decided."""
    found = cause_of(lambda world: _oom_unlogged(world, shareProcessNamespace=True), tmp_path)
    assert found.kind == WAYS["oom-without-kernel-log"].kind, found.text


class Process(CgroupCounters):
    """The main process of each container is 77, until it ends."""

    runs = True

    def main_process(self, path: str) -> int | None:
        return 77

    def alive(self, pid: int | None) -> bool:
        return self.runs


@pytest.mark.parametrize(
    ("outlives", "way"), [(True, "shim-killed"), (False, "sigkill-from-outside")]
)
def test_a_signal_that_arrives_last_is_known_to_the_decision(
    tmp_path: Path, outlives: bool, way: str
) -> None:
    """The kernel's report waits to be read, and a lost process has ended since the runtime's."""

    async def killed(world: World) -> None:
        process, deaths = Process(None, lambda uid: None), watch(world)
        deaths.counters, deaths.signals_since = process, lambda: 0.0
        deaths.log_followed = lambda: True
        deaths.read_reports = lambda: None if outlives else deaths.signaled(77, 9)
        await start(world, restart="Never")
        process.runs = outlives
        world.runtime.kill_container(app(world))
        asyncio.get_running_loop().call_later(SETTLE_S * 0.9, setattr, process, "runs", False)

    found = cause_of(killed, tmp_path)
    assert (found.kind, found.actor) == (WAYS[way].kind, WAYS[way].actor), found.text


def test_each_of_many_containers_has_one_cause_and_event(tmp_path: Path) -> None:
    """No bound of what is kept makes the end of a container that is still there be decided anew."""
    names = [f"c{number}" for number in range(MAX_CAUSES + 5)]

    async def main() -> tuple[int, int]:
        world = World(1, tmp_path)
        world.start()
        await asyncio.sleep(5)
        world.user.create(pod(NAME, [container(name, "run") for name in names], restart="Never"))
        await until(world, lambda: len(world.runtime.running()) == len(names), 60)
        (uid,) = (each["metadata"]["uid"] for each in world.user.pods())
        decided = []
        happened = watch(world).traces.happened

        def count(*facts: Any, **more: Any) -> None:
            decided.append(facts)
            happened(*facts, **more)

        watch(world).traces.happened = count  # type: ignore[method-assign]
        for each in world.runtime.running():
            world.runtime.kill_container(each)
            await asyncio.sleep(1)
        await asyncio.sleep(30)
        found = len(watch(world).causes(uid)), len(decided)
        await world.kill()
        return found

    assert run(main()) == (len(names), len(names))


def cause_of(make: Make, tmp_path: Path, **options: Any) -> DeathCause:
    """The first cause that the agent finds for a container of the pod."""

    async def main() -> DeathCause:
        world, apps = World(1, tmp_path, **options), {}

        def seen(_what: str, whom: Container | Sandbox) -> None:
            if isinstance(whom, Container) and whom.name in (APP, "c"):
                apps[whom.id] = whom.uid

        world.runtime.observers.append(seen)
        world.start()
        await asyncio.sleep(5)
        await make(world)

        def first() -> list[DeathCause]:
            causes = ((key, watch(world).causes(uid)) for key, uid in apps.items())
            return [found[key] for key, found in causes if key in found]

        await until(world, first, 120)
        found = first()[0]
        await world.kill()
        return found

    found: DeathCause = run(main())
    return found


def test_a_shutdown_is_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(down: test_shutdowns.Shutdown) -> None:
        await start(down.world)
        (uid,) = (each["metadata"]["uid"] for each in down.world.user.pods())
        await down.begin()
        await until(down.world, lambda: watch(down.world).causes(uid), 30)
        (found,) = watch(down.world).causes(uid).values()
        assert (found.kind, found.actor) == (DeathKind.SHUTDOWN, Actor.NODE)

    test_shutdowns.play(scenario, tmp_path, monkeypatch)


def test_killed_children_are_one_event_a_minute(tmp_path: Path) -> None:
    """The main process lives on: nothing but the event, explain and the timeline shows it."""

    async def main() -> tuple[list[str], list[str]]:
        world = World(1, tmp_path)
        world.start()
        await asyncio.sleep(5)
        await start(world)
        group = f"/kubepods/pod{app(world).uid}/{app(world).id}"
        for number in range(90):
            watch(world).killed(Kill(number, f"worker\n{number}", 100 + number, group, group, True))
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        assert watch(world).causes(app(world).uid) == {}
        (trace,) = (t for t in watch(world).traces if t.name == NAME)
        spans = [f"{each.name} {each.error}" for each in trace.later if each.error]
        await world.kill()
        return event_messages(world, NAME, "ProcessOOMKilled"), spans

    messages, spans = run(main())
    what = "killed in container app at the memory limit of the container"
    assert [each.partition(what)[0] for each in messages] == [
        "A process was ",
        "59 processes were ",
        "30 processes were ",
    ]
    assert messages[0].endswith(", and its main process lives on: process worker 0, pid 100")
    assert len(spans) == 3


@pytest.mark.parametrize("logged", [True, False])
def test_killed_children_of_a_killed_container_are_no_event(tmp_path: Path, logged: bool) -> None:
    """The runtime of a busy node reports the end of its main process a second later."""

    async def main() -> tuple[list[str], list[str]]:
        world = World(1, tmp_path)
        process = Process(None, lambda uid: None)
        world.start()
        await asyncio.sleep(5)
        watch(world).counters = process
        await start(world)
        group = f"/kubepods/pod{app(world).uid}/{app(world).id}"
        for pid in (100, 77) if logged else (100,):
            watch(world).killed(Kill(pid, "sh", pid, group, group, True))
        process.runs = logged  # its process id may be in use again
        await asyncio.sleep(1)
        world.runtime.kill_container(app(world))
        await asyncio.sleep(90)
        await world.kill()
        found = [
            event_messages(world, NAME, each) for each in ("ProcessOOMKilled", "ContainerDied")
        ]
        return found[0], found[1]

    killed, died = run(main())
    assert killed == []
    (message,) = died
    assert message.startswith("Container app ended: ")
