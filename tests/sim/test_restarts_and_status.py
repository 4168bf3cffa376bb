"""Restarts and their causes, and how the API shows them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy_up.requests import ADMIN
from tests.sim import scripts
from tests.sim.invariants import entries
from tests.sim.scripts import SLOW
from tests.sim.test_probes_and_hooks import ExecWorld, exec_probe, live
from tests.sim.test_scenarios import both, play, state, status, until
from tests.sim.user import NAMESPACE, container, pod, resources, sidecar
from tests.sim.world import World


def on_exit(action: str, *values: int, operator: str = "In") -> JSON:
    """A container that doesn't restart but for these exit codes."""
    rule = {"action": action, "exitCodes": {"operator": operator, "values": list(values)}}
    return {"restartPolicy": "Never", "restartPolicyRules": [rule]}


def condition(world: World, name: str, kind: str) -> str:
    """Status of a condition of a pod; empty when it has none."""
    found = status(world, name).get("conditions") or ()
    return next((c["status"] for c in found if c["type"] == kind), "")


@both
def test_a_rule_restarts_what_the_policy_would_not(tmp_path: Path, events: bool) -> None:
    """`flaky` exits with 1 twice, then with 0; `fail` with 3, which no rule names."""

    async def scenario(world: World) -> None:
        again = container("again", "flaky", **on_exit("Restart", 1))
        world.user.create(pod("a", [again], restart="Never"))
        stays = container("stays", "fail", **on_exit("Restart", 3, operator="NotIn"))
        world.user.create(pod("b", [stays], restart="Always"))
        never = container("never", "failslow", restartPolicy="Never")
        world.user.create(pod("c", [never, container("on", "run")], restart="Always"))
        await until(world, lambda: status(world, "a").get("phase") == "Succeeded", 120)
        assert entries(status(world, "a"))["again"]["restartCount"] == 2
        await until(world, lambda: status(world, "b").get("phase") == "Failed", 5)
        assert entries(status(world, "b"))["stays"]["restartCount"] == 0
        await asyncio.sleep(60)
        reported = entries(status(world, "c"))
        assert reported["never"]["state"]["terminated"]["exitCode"] == 7
        assert reported["never"]["restartCount"] == 0
        assert status(world, "c")["phase"] == "Running"

    play(scenario, tmp_path, events=events)


@both
def test_one_exit_restarts_all(tmp_path: Path, events: bool) -> None:
    """Init containers too, in the same sandbox; also when the agent dies in the middle of it."""

    async def scenario(world: World) -> None:
        asks_for_it = container("asks", "flakyrun", **on_exit("RestartAllContainers", 1))
        init = [container("i", "done"), sidecar("s")]
        seen: list[str] = []
        world.registry.store.subscribe(
            lambda change: seen.append(condition(world, "a", "AllContainersRestarting"))
        )

        def on_step(where: str, what: str, number: int) -> None:
            if (where, what) == ("answer", "RemoveContainer"):
                world.on_step = None
                world.die()

        world.on_step = on_step
        world.user.create(pod("a", [asks_for_it, container("other", "run")], init=init))
        await until(world, lambda: not world.alive, 30)
        await world.buried()
        world.start()
        await until(
            world,
            lambda: (
                condition(world, "a", "Ready") == "True"
                and {e["restartCount"] for e in entries(status(world, "a")).values()} == {2}
            ),
            60,
        )
        assert "True" in seen
        assert condition(world, "a", "AllContainersRestarting") == "False"
        assert len(world.runtime.sandboxes) == 1

    play(scenario, tmp_path, events=events)


@both
@pytest.mark.parametrize("code", [0, 9], ids=["they run on", "they die with it"])
def test_a_lost_sandbox_counts_as_a_restart_of_each(
    tmp_path: Path, events: bool, code: int
) -> None:
    async def scenario(world: World) -> None:
        init = [container("i", "done"), sidecar("s")]
        world.user.create(pod("a", [container("c", "run"), container("d", "run")], init=init))
        await world.converges(10)
        for sandbox in list(world.runtime.sandboxes.values()):
            for each in world.runtime.running() if code else ():
                world.runtime.kill_container(each, code)
            world.runtime.kill_sandbox(sandbox)
        await until(
            world,
            lambda: {e["restartCount"] for e in entries(status(world, "a")).values()} == {1},
            30,
        )
        await world.converges(30)
        for name in ("c", "d", "s"):
            last = entries(status(world, "a"))[name]["lastState"]["terminated"]
            assert last["exitCode"] == code
        await world.kill()
        world.start()
        await asyncio.sleep(30)
        assert {e["restartCount"] for e in entries(status(world, "a")).values()} == {1}

    play(scenario, tmp_path, events=events)


@both
def test_gates_of_readiness(tmp_path: Path, events: bool) -> None:
    """The pod becomes Ready only when its gate is true, too, and then at once."""

    def set_gate(world: World, what: str) -> None:
        gate = {"type": "example.com/gate", "status": what}
        patch = {"status": {"conditions": [gate]}}
        world.registry.patch(ADMIN, "pods", "a", patch, NAMESPACE, subresource="status")

    async def scenario(world: World) -> None:
        gates = [{"conditionType": "example.com/gate"}]
        world.user.create(pod("a", [container("c", "run")], readinessGates=gates))
        await until(world, lambda: condition(world, "a", "ContainersReady") == "True")
        assert condition(world, "a", "Ready") == "False"
        for what in ("True", "False", "True"):
            set_gate(world, what)
            took = await until(world, lambda what=what: condition(world, "a", "Ready") == what)  # type: ignore[misc]
            assert took < 1.0
            assert condition(world, "a", "example.com/gate") == what, "the agent keeps it"
        await world.kill()
        world.start()
        await asyncio.sleep(30)
        assert condition(world, "a", "Ready") == "True"

    play(scenario, tmp_path, events=events)


@both
def test_an_ephemeral_container_runs_once(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "run")]))
        await world.converges(10)
        main = [c.id for c in world.runtime.running()]
        world.user.debug("a", container("debug", "fail", targetContainerName="c"))
        await until(world, lambda: "terminated" in state(world, "a", "debug"), 10)
        assert state(world, "a", "debug")["terminated"]["exitCode"] == 3
        await world.kill()
        world.start()
        await asyncio.sleep(60)
        made = [c for c in world.runtime.containers.values() if c.name == "debug"]
        assert len(made) == 1, "it is never started again"
        assert [c.id for c in world.runtime.running()] == main
        assert condition(world, "a", "Ready") == "True"
        generation = (world.user.get("a") or {})["metadata"]["generation"]
        assert status(world, "a")["observedGeneration"] == generation == 2

    play(scenario, tmp_path, events=events)


@both
def test_ends_stay_in_the_api_after_the_runtime_lost_its_records(
    tmp_path: Path, events: bool
) -> None:
    """The machine restarts with an empty runtime: ends that the API has are not guessed anew."""

    async def scenario(world: World) -> None:
        world.user.create(pod("loops", [container("c", "failslow")]))
        world.user.create(pod("done", [container("c", "doneslow")], restart="Never"))
        await until(
            world, lambda: entries(status(world, "loops")).get("c", {}).get("restartCount") == 1, 60
        )
        await until(world, lambda: status(world, "done").get("phase") == "Succeeded")
        await world.kill()
        world.runtime.lose_everything()
        world.start()
        await until(world, lambda: entries(status(world, "loops"))["c"]["restartCount"] == 2, 60)
        last = entries(status(world, "loops"))["c"]["lastState"]["terminated"]
        assert (last["exitCode"], last["reason"]) == (7, "Error")
        assert status(world, "done")["phase"] == "Succeeded"
        assert state(world, "done", "c")["terminated"]["exitCode"] == 0

    play(scenario, tmp_path, events=events)


def test_a_probe_has_a_grace_period_of_its_own(tmp_path: Path) -> None:
    """A container that fails its probe is killed after 2 s, not after the pod's 60."""

    async def story(world: ExecWorld) -> None:
        probe = exec_probe("alive?", terminationGracePeriodSeconds=2)
        world.user.create(pod("a", [container("c", "stubborn", livenessProbe=probe)], grace=60))
        await world.until(lambda: world.ready("a"))
        world.says["alive?"] = lambda: 1
        took = await world.until(lambda: world.entry("a")["restartCount"] == 1)
        assert 2.0 < took < 4.5

    live(tmp_path, story)


@both
def test_an_exit_while_another_container_is_started_is_not_forgotten(
    tmp_path: Path, events: bool
) -> None:
    """The sidecar fails after a second; the image of `late` takes half a minute to come."""

    async def scenario(world: World) -> None:
        world.user.create(pod("x", [container("c", "run")]))
        await asyncio.sleep(400)
        init = [sidecar("side", "flakyrun"), container("i", "done")]
        world.user.create(pod("a", [container("late", "run", SLOW)], init=init))
        await until(world, lambda: "running" in state(world, "a", "late"), 60)
        await until(world, lambda: entries(status(world, "a"))["side"]["restartCount"] == 1, 3)

    play(scenario, tmp_path, events=events)


def _ready(obj: JSON) -> str:
    """The status of a Node's condition Ready; empty when it has none."""
    found = (obj.get("status") or {}).get("conditions") or ()
    return next((each["status"] for each in found if each["type"] == "Ready"), "")


def test_a_node_that_is_ready_is_not_shown_otherwise_by_restarts(tmp_path: Path) -> None:
    """Neither by kills at random instants nor by a start that takes its time; a dead runtime is."""

    async def scenario(world: World) -> None:
        reported: list[str] = []
        world.registry.store.subscribe(
            lambda change: (
                reported.append(_ready(change.object)) if change.resource == "nodes" else None
            )
        )
        await until(world, lambda: reported[-1:] == ["True"], 30)
        reported.clear()
        rng = world.rng("restarts")
        for _ in range(8):
            await asyncio.sleep(rng.uniform(0, 3))
            world.die()
            await world.buried()
            world.start()
        await asyncio.sleep(30)
        assert set(reported) == {"True"}
        reported.clear()
        world.runtime_down()
        await until(world, lambda: reported[-1:] == ["False"], 35)
        world.runtime_up()
        await until(world, lambda: reported[-1:] == ["True"], 35)

    play(scenario, tmp_path, storage=True)


@both
def test_image_volumes_cause_events_at_starts_only(tmp_path: Path, events: bool) -> None:
    """behaviour.md, u: ka63."""

    async def scenario(world: World) -> None:
        volume: JSON = {"name": "v", "image": {"reference": container("v", "run")["image"]}}
        mounted = container("c", "run", volumeMounts=[{"name": "v", "mountPath": "/v"}])
        world.user.create(pod("a", [mounted], volumes=[volume]))
        await until(world, lambda: condition(world, "a", "Ready") == "True")
        await asyncio.sleep(10)
        before = counts(world, "a")
        assert before["Started"] == 1
        await asyncio.sleep(600)
        assert counts(world, "a") == before

    play(scenario, tmp_path, events=events)


def counts(world: World, name: str) -> dict[str, int]:
    """How often each event of a pod was sent, by reason."""
    found: Counter[str] = Counter()
    for _, entry in world.registry.store.entries("events"):
        if entry.object["involvedObject"].get("name") == name:
            found[entry.object["reason"]] += entry.object.get("count") or 1
    return dict(found)


@pytest.mark.parametrize("lost", [False, True], ids=["records stay", "records are lost"])
@both
def test_the_status_of_ended_pods_survives_a_restart_of_the_agent(
    tmp_path: Path, events: bool, lost: bool
) -> None:
    """Every field of it: addresses, which only the runtime had, above all."""

    def reported(world: World) -> dict[str, JSON]:
        found = {}
        for _, entry in world.registry.store.entries("pods"):
            ended = {**entry.object["status"]}
            # the sandbox is absent, no longer "not ready"
            ended["conditions"] = [
                {**each, "message": ""} if each["type"] == "PodReadyToStartContainers" else each
                for each in ended["conditions"]
            ]
            found[entry.object["metadata"]["name"]] = ended
        return found

    async def scenario(world: World) -> None:
        assert world.static_dir is not None
        mounted: JSON = {
            "resources": resources("50m"),
            "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}],
        }
        more: JSON = {"restart": "Never", "volumes": [{"name": "v", "emptyDir": {}}]}
        init = [container("i", "done"), sidecar("s")]
        runs, done = container("c", "run", **mounted), container("c", "doneslow", **mounted)
        for each in (
            pod("done", [done], **more),
            pod("fail", [container("c", "failslow", **mounted)], init=init, **more),
            pod("init", [container("c", "run")], init=[container("i", "fail")], restart="Never"),
            pod("deadline", [runs], activeDeadlineSeconds=10, **more),
            pod("never-ran", [container("c", "run", scripts.MISSING)], activeDeadlineSeconds=10),
            pod("host", [done], hostNetwork=True, **more),
        ):
            world.user.create(each)
        manifest = world.static_dir / "static.yaml"
        if not lost:  # without a record a static pod may run again: its end may be unrecorded
            manifest.write_text(json.dumps(pod("static", [done], **more)))
        await asyncio.sleep(40)
        before = reported(world)
        assert len(before) == (6 if lost else 7)
        assert {each["phase"] for each in before.values()} == {"Succeeded", "Failed"}
        assert all(each["podIP"] and each["podIPs"] for each in before.values())
        for _ in range(2):
            await world.kill()
            if lost:
                world.runtime.lose_everything()
            world.start()
            await asyncio.sleep(90)
            assert reported(world) == before
        manifest.unlink(missing_ok=True)

    play(scenario, tmp_path, events=events, static=True)
