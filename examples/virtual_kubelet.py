"""A virtual kubelet: a node whose containers run elsewhere, in any worker that takes jobs.

    python examples/virtual_kubelet.py serve /tmp/virtual    # an API and a node; prints KUBECONFIG
    python examples/virtual_kubelet.py work /tmp/virtual     # a worker; start any number
    kubectl --kubeconfig … run hello --image=none --restart=Never --command -- echo hello

A container becomes a file in DIRECTORY/jobs, as it might become an HTTP request or a row of a
table. A worker takes it (renames it), runs it, and leaves its exit code next to it.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from kubeletpy.library import Container, NodeAgent, SimpleRuntime, guest_config
from kubeletpy_up.api import LocalApi

POLL_S = 0.1


class JobRuntime(SimpleRuntime):
    """Sends each container away as a job."""

    name = "jobs"

    def __init__(self, jobs: Path) -> None:
        super().__init__()
        self._jobs = jobs

    async def launch(self, container: Container) -> None:
        pod, config = container.sandbox.config.metadata, container.config
        job = {
            "pod": f"{pod.namespace}/{pod.name}",
            "command": [*config.command, *config.args],
            "env": {each.key: os.fsdecode(each.value) for each in config.envs},
        }
        leave(self._jobs / f"{container.id}.todo", json.dumps(job))

    async def result(self, container: Container) -> int:
        done = self._jobs / f"{container.id}.done"
        while not done.exists():
            await asyncio.sleep(POLL_S)
        code = int(done.read_text())
        for file in self._jobs.glob(f"{container.id}.*"):
            file.unlink()
        return code

    def send(self, container: Container, signum: int) -> None:
        todo = self._jobs / f"{container.id}.todo"
        if signum == signal.SIGKILL and take(todo) is not None:
            leave(todo.with_suffix(".done"), "137")  # nobody had taken it yet
        else:
            leave(todo.with_suffix(".signal"), str(signum))


def take(todo: Path) -> Path | None:
    """Take a job, unless another worker was faster."""
    try:
        return todo.rename(todo.with_suffix(".taken"))
    except FileNotFoundError:
        return None


def leave(path: Path, text: str) -> None:
    """Write a file atomically: others never see a part of it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.rename(path)


async def serve(directory: Path) -> None:
    """Run the API and the node until Ctrl-C."""
    api = LocalApi(directory / "api", "virtual", port=0)
    runtime = JobRuntime(directory / "jobs")
    endpoint = await api.start()
    try:
        config = guest_config(directory / "agent", "virtual", kubeconfig=endpoint.node_kubeconfig)
        async with NodeAgent(config, runtime=runtime, images=runtime) as agent:
            await agent.registered()
            print(f"KUBECONFIG={endpoint.admin_kubeconfig}", flush=True)
            await agent.wait()
    finally:
        await api.stop()


def work(jobs: Path) -> None:
    """Take jobs, one at a time, until Ctrl-C. A real system would also detect workers that die."""
    print(f"takes jobs from {jobs}", flush=True)
    while True:
        for todo in jobs.glob("*.todo"):
            if (taken := take(todo)) is not None:
                leave(taken.with_suffix(".done"), str(run(taken)))
        time.sleep(POLL_S)


def run(taken: Path) -> int:
    """Run a job to its end and return its exit code."""
    job, requested = json.loads(taken.read_text()), taken.with_suffix(".signal")
    print(f"{job['pod']}: {job['command']}", flush=True)
    env = os.environ | job["env"]
    with subprocess.Popen(job["command"], env=env, start_new_session=True) as process:
        try:
            while process.poll() is None:
                if requested.exists():
                    os.killpg(process.pid, int(requested.read_text()))
                    requested.unlink()
                time.sleep(POLL_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # remaining processes of the job
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    verb, place = sys.argv[1], Path(sys.argv[2])
    (place / "jobs").mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(place)) if verb == "serve" else work(place / "jobs")
