from pathlib import Path
from tests.sim.loop import run
from tests.sim.world import World
from tests.sim.user import pod, container, sidecar
import pytest, os

@pytest.mark.parametrize("events", [True, False])
def test_smoke(tmp_path: Path, events: bool) -> None:
    async def main() -> None:
        world = World(1, tmp_path, events=events)
        try:
            world.start()
            world.user.create(pod("a", [container("c", "run"), container("d", "run")], init=[container("i", "done"), sidecar("s")]))
            took = await world.converges(60)
            print("converged", took)
            world.user.delete("a")
            took = await world.converges(60)
            print("gone", took)
            took = await world.converges(200, world.remains)
            print("clean", took)
            await world.stop()
            world.history.check()
        finally:
            print("\n".join(world.history.lines))
    run(main())
