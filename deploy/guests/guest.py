"""A guest node, the program of guests.yaml: its pods are accepted and reported, and run nothing.

It is for tests of schedulers, controllers and dashboards. A runtime of your own replaces the three
methods of ``Pretend`` (docs/library.md).
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from kubeletpy.library import Container, NodeAgent, SimpleRuntime, guest_config


class Pretend(SimpleRuntime):
    """Containers that run until they get a signal."""

    name = "pretend"

    def __init__(self) -> None:
        super().__init__()
        self._ends: dict[str, asyncio.Event] = {}

    async def launch(self, container: Container) -> None:
        self._ends[container.id] = asyncio.Event()

    async def result(self, container: Container) -> int:
        await self._ends[container.id].wait()
        del self._ends[container.id]
        return 0

    def send(self, container: Container, signum: int) -> None:
        self._ends[container.id].set()


async def main(state: Path, name: str, bootstrap: Path) -> None:
    """Run the node until SIGTERM."""
    running = asyncio.current_task()
    assert running is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    config = guest_config(
        state,
        name,
        kubeconfig=state / "kubeconfig",
        settings={"rotateCertificates": True},
        flags=[
            f"--bootstrap-kubeconfig={bootstrap}",
            "--node-labels=guest=true",
            "--register-with-taints=guest=true:NoSchedule",
        ],
    )
    runtime = Pretend()
    try:
        async with NodeAgent(config, runtime=runtime, images=runtime, mounts=False) as agent:
            await agent.registered()
            print(f"{name} is registered", flush=True)
            await agent.wait()
    finally:
        await runtime.close()


if __name__ == "__main__":
    with contextlib.suppress(asyncio.CancelledError):
        place = Path(os.environ["STATE"])
        asyncio.run(main(place, os.environ["NODE_NAME"], Path(os.environ["BOOTSTRAP"])))
