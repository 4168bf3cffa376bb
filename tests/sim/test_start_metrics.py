"""The agent counts how long pods take to start: pulls and init containers apart."""

from __future__ import annotations

import re
from pathlib import Path

from kubeletpy.agent.served import MetricsRenderer
from tests.sim import scripts
from tests.sim.test_scenarios import both, play, state, until
from tests.sim.user import container, pod
from tests.sim.world import World


def sample(world: World, name: str) -> float:
    """A sample of the agent's metrics, by name and labels."""
    assert world.agent is not None
    found = re.search(
        rf"\n{re.escape(name)} (\S+)", world.agent.component(MetricsRenderer).render().decode()
    )
    return float(found[1]) if found else 0.0


def counted(world: World, which: str) -> tuple[float, float]:
    """Count and sum of kubelet_pod_start_WHICH_duration_seconds."""
    name = f"kubelet_pod_start_{which}_duration_seconds"
    return sample(world, f"{name}_count"), sample(world, f"{name}_sum")


async def starts(world: World, name: str) -> None:
    """Wait until a pod runs and has been counted."""
    await until(world, lambda: bool(state(world, name, "c").get("running")), 120)
    await until(world, lambda: counted(world, "total")[0] > 0)


@both
def test_pulls_and_init_containers_are_no_part_of_the_sli(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        init = [container("i", "doneslow", scripts.SLOW), container("j", "flaky")]
        world.user.create(pod("a", [container("c", "run", scripts.REMOTE)], init=init))
        await starts(world, "a")
        (pods, whole), (measured, sli) = counted(world, "total"), counted(world, "sli")
        assert (pods, measured) == (1, 1)
        backoff = 10
        assert whole > 20 + 8 + 2.5 + backoff
        assert backoff < sli < backoff + 4, "waiting for a restart is no part of a run"
        assert sample(world, "kubelet_first_network_pod_start_sli_duration_seconds") == sli
        assert sample(world, "kubelet_containers_per_pod_count_sum") == 1

    play(scenario, tmp_path, events=events)


def test_pods_that_an_earlier_agent_started_are_not_counted_again(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "run")]))
        await starts(world, "a")
        assert counted(world, "sli")[0] == 1
        await world.kill()
        world.start()
        world.user.create(pod("b", [container("c", "run"), container("d", "run")]))
        await starts(world, "b")
        await world.converges(20)
        assert counted(world, "sli")[0] == 1
        assert counted(world, "sli")[1] < 3
        assert sample(world, "kubelet_containers_per_pod_count_count") == 2

    play(scenario, tmp_path)


def test_ephemeral_containers_are_counted(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "run")]))
        await starts(world, "a")
        assert sample(world, "kubelet_managed_ephemeral_containers") == 0
        world.user.debug("a", container("e", "run"))
        await world.converges(20)
        assert sample(world, "kubelet_managed_ephemeral_containers") == 1
        world.user.delete("a")
        await until(world, lambda: sample(world, "kubelet_managed_ephemeral_containers") == 0)

    play(scenario, tmp_path)
