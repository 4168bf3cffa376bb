"""Probes and hooks in the life of the whole agent, on virtual time."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.agent.context import Outside
from kubeletpy.base.api.types import JSON
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.volumes.files.disk import mounts_below, unmount
from tests.sim.api import NODE
from tests.sim.invariants import entries
from tests.sim.loop import run
from tests.sim.user import container, pod, sidecar
from tests.sim.world import World


class ExecWorld(World):
    """A world whose containers answer commands: ``says[word]`` gives the exit code of a word."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.says: dict[str, Callable[[], int]] = {}
        self.requested: list[tuple[float, str]] = []
        self.takes: dict[str, float] = {}

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def _outside(self, life: int) -> Outside:
        outside = super()._outside(life)

        async def exec_sync(
            container_id: str, cmd: Sequence[str], timeout: float
        ) -> cri.ExecSyncResponse:
            word = cmd[0]
            self.requested.append((self.now, word))
            await asyncio.sleep(self.takes.get(word, 0.05))
            return cri.ExecSyncResponse(exit_code=self.says.get(word, lambda: 0)())

        outside.runtime.exec_sync = exec_sync  # type: ignore[method-assign]
        return outside

    def entry(self, name: str, kind: str = "containerStatuses") -> JSON:
        found = (self.user.get(name) or {}).get("status", {}).get(kind) or [{}]
        return dict(found[0])

    def ready(self, name: str) -> bool:
        conditions = (self.user.get(name) or {}).get("status", {}).get("conditions") or []
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    async def until(
        self, check: Callable[[], object], within: float = 60, step: float = 0.005
    ) -> float:
        begun = self.now
        while not check():
            assert self.now < begun + within, "\n".join(self.history.lines)
            await asyncio.sleep(step)
        return self.now - begun


def exec_probe(word: str, **more: Any) -> JSON:
    """An exec probe each second."""
    return {"exec": {"command": [word]}, "periodSeconds": 1, "failureThreshold": 1, **more}


def live(
    tmp_path: Path, story: Callable[[ExecWorld], Any], *, events: bool = True, static: bool = False
) -> None:
    async def main() -> None:
        world = ExecWorld(1, tmp_path, events=events, static=static)
        world.start()
        await story(world)
        await world.stop()

    run(main())


@pytest.mark.parametrize("events", [True, False])
def test_startup_gates_and_readiness_is_shown_at_once(tmp_path: Path, events: bool) -> None:
    async def story(world: ExecWorld) -> None:
        up = world.now + 7
        world.says["up?"] = lambda: int(world.now < up)
        side = {**sidecar("side"), "startupProbe": exec_probe("up?", failureThreshold=60)}
        world.user.create(
            pod("a", [container("c", "run", readinessProbe=exec_probe("ready?"))], init=[side])
        )
        await world.until(lambda: world.now > up)
        assert world.entry("a").get("state", {}).get("running") is None
        took = await world.until(lambda: world.ready("a"))
        assert took < 2.5
        down = world.now + 10
        world.says["ready?"] = lambda: int(down < world.now < down + 10)
        await world.until(lambda: world.now > down)
        assert await world.until(lambda: not world.ready("a")) < 1.3
        await world.until(lambda: world.now > down + 10)
        assert await world.until(lambda: world.ready("a")) < 1.3

    live(tmp_path, story, events=events)


def test_readiness_is_shown_while_the_worker_is_busy(tmp_path: Path) -> None:
    """A postStart hook of another container that takes a minute holds up nobody's readiness."""

    async def story(world: ExecWorld) -> None:
        hook = {"postStart": {"exec": {"command": ["hook"]}}}
        world.user.create(
            pod(
                "a",
                [
                    container("a", "run", readinessProbe=exec_probe("ready?")),
                    container("b", "failslow", lifecycle=hook),
                ],
            )
        )
        await world.until(lambda: world.entry("a").get("ready"))
        world.takes["hook"] = 60
        await world.until(lambda: [word for _, word in world.requested].count("hook") == 2)
        world.says["ready?"] = lambda: 1
        assert await world.until(lambda: not world.entry("a")["ready"]) < 1.3
        world.says.clear()
        assert await world.until(lambda: world.entry("a")["ready"]) < 1.3

    live(tmp_path, story)


def test_liveness_restarts_and_a_new_agent_goes_on(tmp_path: Path) -> None:
    async def story(world: ExecWorld) -> None:
        world.user.create(pod("a", [container("c", "run", livenessProbe=exec_probe("alive?"))]))
        await world.until(lambda: world.ready("a"))
        await asyncio.sleep(15)
        await world.kill()
        world.start()
        await asyncio.sleep(5)
        assert world.entry("a")["restartCount"] == 0
        sick = world.now
        world.says["alive?"] = lambda: int(
            world.now > sick and world.entry("a")["restartCount"] == 0
        )
        took = await world.until(lambda: world.entry("a")["restartCount"] == 1)
        assert took < 2.5
        await asyncio.sleep(60)
        assert world.entry("a")["restartCount"] == 1

    live(tmp_path, story)


def test_an_agent_restart_does_not_make_anything_unready(tmp_path: Path) -> None:
    async def story(world: ExecWorld) -> None:
        probes: JSON = {
            "startupProbe": exec_probe("up?", failureThreshold=30),
            "readinessProbe": exec_probe("ready?", periodSeconds=5, timeoutSeconds=60),
        }
        for name in "abc":
            world.user.create(pod(name, [container("c", "run", **probes)]))
        await world.until(lambda: all(map(world.ready, "abc")))
        await asyncio.sleep(30)
        ups = [word for _, word in world.requested].count("up?")
        await world.kill()
        world.takes["ready?"] = 30
        world.start()
        for tick in range(600):
            if tick in (50, 150):  # statuses are made anew meanwhile
                for name in "abc":
                    world.user.annotate(name, str(tick))
            assert all(map(world.ready, "abc"))
            assert all(world.entry(name)["started"] for name in "abc")
            await asyncio.sleep(0.1)
        assert [word for _, word in world.requested].count("up?") == ups

    live(tmp_path, story)


def create_probed(world: ExecWorld, kind: str, probes: JSON) -> str:
    """Create a pod whose container ``c`` has these probes; the name of its object."""
    probed = container("c", "run", **probes)
    if kind == "static":
        assert world.static_dir is not None
        manifest = pod("a", [probed])
        (world.static_dir / "a.yaml").write_text(json.dumps(manifest))
        return f"a-{NODE}"
    if kind == "sidecar":
        world.user.create(
            pod("a", [container("main", "run")], init=[{**probed, "restartPolicy": "Always"}])
        )
    else:
        world.user.create(pod("a", [probed]))
    return "a"


@pytest.mark.parametrize("startup", [False, True])
@pytest.mark.parametrize("kind", ["regular", "sidecar", "static"])
def test_a_container_restarted_in_an_outage_is_not_ready_before_its_own_probes(
    tmp_path: Path, kind: str, startup: bool
) -> None:
    """The API shows the container that ran before it until the agent has started again."""

    async def story(world: ExecWorld) -> None:
        def running() -> set[str]:
            return {each.id for each in world.runtime.running() if each.name == "c"}

        probes: JSON = {
            "readinessProbe": exec_probe("ready?", failureThreshold=600),
            "livenessProbe": exec_probe("alive?", failureThreshold=600),
        }
        if startup:
            probes["startupProbe"] = exec_probe("up?", failureThreshold=600)
        name = create_probed(world, kind, probes)
        await world.until(lambda: world.ready(name))
        await asyncio.sleep(15)
        world.api_down()
        world.says |= {"up?": lambda: 1, "ready?": lambda: 1}
        (first,) = (each for each in world.runtime.running() if each.name == "c")
        world.runtime.kill_container(first, 1)
        await world.until(lambda: running() not in (set(), {first.id}))
        await asyncio.sleep(60)
        await world.kill()
        seen: list[bool] = []

        def note(change: object) -> None:
            reported = (world.user.get(name) or {})["status"]
            if not entries(reported)["c"]["containerID"].endswith(first.id):
                seen.append(world.ready(name))

        world.registry.store.subscribe(note)
        world.requested.clear()
        world.api_up()
        world.start()
        await asyncio.sleep(30)
        requested = {word for _, word in world.requested}
        assert requested == ({"up?"} if startup else {"ready?", "alive?"})
        assert seen
        assert not any(seen)
        world.says.clear()
        await world.until(lambda: world.ready(name))

    live(tmp_path, story, static=kind == "static")


@pytest.mark.parametrize("reachable", [True, False])
@pytest.mark.parametrize("kind", ["regular", "sidecar", "static"])
def test_other_probes_wait_for_startup_after_a_restart_of_the_agent(
    tmp_path: Path, kind: str, reachable: bool
) -> None:
    """Also while the API does not answer the new agent, which then runs static pods alone."""

    async def story(world: ExecWorld) -> None:
        probes: JSON = {
            "readinessProbe": exec_probe("ready?"),
            "livenessProbe": exec_probe("alive?"),
            "startupProbe": exec_probe("up?", failureThreshold=600),
        }
        world.says["up?"] = lambda: 1
        name = create_probed(world, kind, probes)
        await world.until(lambda: len(world.requested) > 20)
        await world.kill()
        if not reachable:
            world.api_down()
        world.start()
        await asyncio.sleep(30)
        world.api_up()
        await asyncio.sleep(30)
        assert {word for _, word in world.requested} == {"up?"}
        world.says.clear()
        await world.until(lambda: world.ready(name))

    live(tmp_path, story, static=kind == "static")


def test_a_container_stays_ready_however_recently_it_started(tmp_path: Path) -> None:
    """An agent that is killed seconds after a start shows what the API shows of that container.

    The other container is not ready, and the pod has a gate: neither matters to the first.
    """

    async def story(world: ExecWorld) -> None:
        world.says["never?"] = lambda: 1
        gates = [{"conditionType": "example.com/gate"}]
        ready = container("c", "run", readinessProbe=exec_probe("ready?"))
        unready = container("d", "run", readinessProbe=exec_probe("never?"))
        world.user.create(pod("a", [ready, unready], readinessGates=gates))
        await world.until(lambda: world.entry("a").get("ready"))
        await world.kill()
        seen: list[bool] = []
        world.registry.store.subscribe(lambda change: seen.append(world.entry("a")["ready"]))
        world.start()
        await asyncio.sleep(30)
        assert all(seen)
        assert not world.ready("a")

    live(tmp_path, story)


@pytest.mark.parametrize(("hook_takes", "gone_in"), [(3.0, (3, 4)), (600.0, (8, 12))])
def test_pre_stop_within_the_grace_period(
    tmp_path: Path, hook_takes: float, gone_in: tuple[float, float]
) -> None:
    async def story(world: ExecWorld) -> None:
        world.takes["bye"] = hook_takes
        hook = {"preStop": {"exec": {"command": ["bye"]}}}
        world.user.create(pod("a", [container("c", "run", lifecycle=hook)], grace=8))
        await world.until(lambda: world.ready("a"))
        world.user.delete("a")
        took = await world.until(lambda: world.user.get("a") is None)
        assert gone_in[0] <= took <= gone_in[1]
        assert [word for _, word in world.requested] == ["bye"]

    live(tmp_path, story)


def test_an_agent_killed_during_a_pre_stop_hook(tmp_path: Path) -> None:
    """The next one does not run it again, and the pod ends."""

    async def story(world: ExecWorld) -> None:
        world.takes["bye"] = 4
        hook = {"preStop": {"exec": {"command": ["bye"]}}}
        world.user.create(pod("a", [container("c", "run", lifecycle=hook)], grace=10))
        await world.until(lambda: world.ready("a"))
        world.user.delete("a")
        await world.until(lambda: world.requested)
        await asyncio.sleep(1)
        await world.kill()
        world.start()
        await world.until(lambda: world.user.get("a") is None)
        assert [word for _, word in world.requested] == ["bye"]

    live(tmp_path, story)


def volumes_of(root: Path) -> list[Path]:
    """The directories of pods' volumes."""
    return list(root.rglob("pods/*/volumes"))


@pytest.mark.parametrize("killed", [False, True])
def test_a_pod_reads_valid_tokens_and_new_files_for_as_long_as_it_stops(
    tmp_path: Path, killed: bool
) -> None:
    """The token is valid for ten minutes, the hook runs for 25.

    With the agent killed meanwhile, the hook is cut off: the container reads on in what is left of
    its grace period.
    """

    async def story(world: ExecWorld) -> None:
        world.takes["bye"] = 1500
        hook = {"preStop": {"exec": {"command": ["bye"]}}}
        world.user.set_config_map("settings", {"a": "before"})
        token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
        note = {
            "path": "note",
            "fieldRef": {"fieldPath": "metadata.annotations['example.com/note']"},
        }
        volumes: list[JSON] = [
            {"name": "t", "projected": {"sources": [token]}},
            {"name": "s", "configMap": {"name": "settings"}},
            {"name": "d", "downwardAPI": {"items": [note]}},
        ]
        uses = [{"name": v["name"], "mountPath": f"/{v['name']}"} for v in volumes]
        made = world.user.create(
            pod(
                "a",
                [container("c", "stubborn", lifecycle=hook, volumeMounts=uses)],
                grace=1600,
                volumes=volumes,
            )
        )
        await world.until(lambda: world.ready("a"))
        (below,) = (path for path in volumes_of(tmp_path) if made["metadata"]["uid"] in str(path))

        def read(path: str) -> str:
            return (below / f"kubernetes.io~{path}").read_text()

        world.user.delete("a")
        await world.until(lambda: world.requested)
        end = world.now + 1400
        if killed:
            await asyncio.sleep(400)
            await world.kill()
            world.start()
        world.user.set_config_map("settings", {"a": "after"})
        world.user.annotate("a", "after")
        await world.until(lambda: read("configmap/s/a") == "after", within=100)
        await world.until(lambda: read("downward-api/d/note") == "after", within=100)
        while world.now < end:
            claims = read("projected/t/token").split(".")[1]
            expires = json.loads(base64.urlsafe_b64decode(claims + "==="))["exp"]
            assert expires > world.clock.now() + 30
            await asyncio.sleep(20)
        assert len(world.runtime.running(made["metadata"]["uid"])) == 1
        await world.until(lambda: world.user.get("a") is None, within=4000)

    try:
        live(tmp_path, story)
    finally:
        for point in mounts_below(str(tmp_path)):  # of tokens, if the test has failed
            unmount(point)


def test_readiness_is_probed_while_a_pod_terminates(tmp_path: Path) -> None:
    """Each change is shown, until the containers have ended; liveness is not probed any more."""

    async def story(world: ExecWorld) -> None:
        world.takes["bye"] = 60
        hook = {"preStop": {"exec": {"command": ["bye"]}}}
        probes: JSON = {
            "readinessProbe": exec_probe("ready?"),
            "livenessProbe": exec_probe("alive?"),
        }
        world.user.create(pod("a", [container("c", "run", lifecycle=hook, **probes)], grace=90))
        await world.until(lambda: world.ready("a"))
        world.user.delete("a")
        await world.until(lambda: "bye" in [word for _, word in world.requested])
        world.says["alive?"] = lambda: 1
        del world.requested[:]
        for answer in (1, 0, 1, 0):
            world.says["ready?"] = lambda answer=answer: answer  # type: ignore[misc]
            await world.until(lambda answer=answer: world.ready("a") is (answer == 0), within=5)  # type: ignore[misc]
        assert "alive?" not in [word for _, word in world.requested]
        await world.until(lambda: world.user.get("a") is None, within=120)

    live(tmp_path, story)


def test_a_hook_and_a_probe_that_hang_do_not_hold_up_the_end(tmp_path: Path) -> None:
    async def story(world: ExecWorld) -> None:
        world.takes |= {"hook": 10**6, "ready?": 10**6}
        hook = {"postStart": {"exec": {"command": ["hook"]}}}
        probe = exec_probe("ready?", timeoutSeconds=10**6)
        world.user.create(pod("a", [container("c", "run", lifecycle=hook)]))
        world.user.create(pod("b", [container("c", "run", readinessProbe=probe)]))
        await world.until(lambda: len(world.requested) == 2)
        await asyncio.sleep(20)
        for name in "ab":
            world.user.delete(name)
        assert await world.until(lambda: not world.user.pods()) < 3

    live(tmp_path, story)


def test_a_failed_post_start_is_tried_again_with_backoff(tmp_path: Path) -> None:
    async def story(world: ExecWorld) -> None:
        works = world.now + 40
        world.says["hook"] = lambda: int(world.now < works)
        hook = {"postStart": {"exec": {"command": ["hook"]}}}
        world.user.create(pod("a", [container("c", "run", lifecycle=hook)]))
        await world.until(lambda: world.ready("a"), within=200)
        assert world.now > works
        hooks = [at for at, word in world.requested if word == "hook"]
        assert 2 < len(hooks) < 8

    live(tmp_path, story)


def test_an_hour_of_flapping_with_agents_that_die(tmp_path: Path) -> None:
    async def story(world: ExecWorld) -> None:
        world.says["ready?"] = lambda: int(world.now % 97 < 20)
        world.says["alive?"] = lambda: int(world.now % 613 < 8)
        probes: JSON = {
            "readinessProbe": exec_probe("ready?", periodSeconds=3),
            "livenessProbe": exec_probe("alive?", periodSeconds=3, failureThreshold=2),
        }
        for n in range(3):
            world.user.create(pod(f"p{n}", [container("c", "run", **probes)]))
        for _ in range(12):
            await asyncio.sleep(300)
            await world.kill()
            world.start()
        world.says.clear()
        await world.until(lambda: all(world.ready(f"p{n}") for n in range(3)), 400, 1)
        for n in range(3):
            world.user.delete(f"p{n}")
        await world.until(lambda: not world.user.pods(), step=1)
        assert len(world.agent.component(KubeProbeManager)) == 0  # type: ignore[union-attr]

    live(tmp_path, story)


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize("kind", ["containerStatuses", "initContainerStatuses"])
def test_a_start_that_fails_is_tried_again_as_after_a_crash(
    tmp_path: Path, events: bool, kind: str
) -> None:
    async def story(world: ExecWorld) -> None:
        bad, good = container("bad", "badstart"), container("good", "run")
        init = kind == "initContainerStatuses"
        world.user.create(pod("a", [good] if init else [bad], init=[bad] if init else []))
        # the first restart is immediate, the second waits ten seconds from the end, to the moment
        assert await world.until(lambda: world.entry("a", kind).get("restartCount") == 1) < 1.5
        waited = await world.until(lambda: world.entry("a", kind).get("restartCount") == 2)
        assert 9.5 < waited < 10.5
        assert world.entry("a", kind)["lastState"]["terminated"]["reason"] == "StartError"

    live(tmp_path, story, events=events)


def test_a_failed_post_start_hook_is_followed_by_a_restart_at_once(tmp_path: Path) -> None:
    async def story(world: ExecWorld) -> None:
        hook = {"postStart": {"exec": {"command": ["begin"]}}}
        world.says["begin"] = lambda: 9
        world.user.create(pod("a", [container("c", "run", lifecycle=hook)]))
        assert await world.until(lambda: world.entry("a").get("restartCount") == 1) < 1.5
        world.says["begin"] = lambda: 0
        assert 9.5 < await world.until(lambda: world.ready("a")) < 10.5

    live(tmp_path, story)
