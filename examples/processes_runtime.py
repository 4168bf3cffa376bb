"""A container runtime in 100 lines: the containers of a pod are plain processes of this user.

    python examples/processes_runtime.py examples/hello.yaml

runs the pod of a manifest until Ctrl-C and shows what its containers write: without root, images,
an API or isolation of any kind. The agent does the rest: the order of containers, restarts with
backoff, HTTP probes, grace periods. Volumes are made; processes see them at their own paths only.
"""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from kubeletpy.library import (
    Container,
    InvalidArgument,
    NodeAgent,
    Show,
    SimpleRuntime,
    guest_config,
    log_line,
)


class ProcessRuntime(SimpleRuntime):
    """Runs each container as a process group of its own."""

    name = "processes"

    def __init__(self) -> None:
        super().__init__()
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def launch(self, container: Container) -> None:
        config = container.config
        if not config.command:
            raise InvalidArgument("StartContainer", "there are no images: the pod needs a command")
        try:
            self._processes[container.id] = await asyncio.create_subprocess_exec(
                *config.command,
                *config.args,
                env=os.environ | {each.key: os.fsdecode(each.value) for each in config.envs},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise InvalidArgument("StartContainer", str(error)) from error

    async def result(self, container: Container) -> int:
        process = self._processes[container.id]
        assert process.stdout is not None
        async for line in process.stdout:
            print(f"{container.name}: {line.decode(errors='replace')}", end="", flush=True)
            with container.log_path.open("ab") as log:  # each time: the agent rotates it
                log.write(log_line(line))
        code = await process.wait()
        del self._processes[container.id]
        return code if code >= 0 else 128 - code

    def send(self, container: Container, signum: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._processes[container.id].pid, signum)


class Manifest:
    """A source of pods: the pod of one file, as long as the program runs."""

    name = "manifest"

    def __init__(self, path: str) -> None:
        self._pod = yaml.safe_load(Path(path).read_text())

    async def run(self, show: Show) -> None:
        show([self._pod])
        await asyncio.Event().wait()


async def main() -> None:
    runtime, pods = ProcessRuntime(), Manifest(sys.argv[1])
    with TemporaryDirectory() as root:
        config = guest_config(Path(root), "processes")
        agent = NodeAgent(config, runtime=runtime, images=runtime, pod_sources=[pods])
        try:
            async with agent:
                await agent.wait()
        finally:
            await runtime.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
