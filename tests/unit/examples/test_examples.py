"""The examples, run as programs, as a reader would, without root's capabilities."""

from __future__ import annotations

import asyncio
import operator
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubeletpy.library import JSON, KubeClient, Resource

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
PODS = Resource("", "v1", "pods", True, "Pod")
NO_PRIVILEGES = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
"""Command that drops root's privileges; other users cannot drop what they do not have."""
ENDS_BY_CTRL_C = ["env", "--default-signal=INT"]
"""Restores SIGINT, which background jobs of a shell ignore."""
WITHIN_S = 60.0


def command(*arguments: str) -> list[str]:
    dropped = NO_PRIVILEGES if os.geteuid() == 0 else []
    return [*ENDS_BY_CTRL_C, *dropped, sys.executable, *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs an example and ends it as by Ctrl-C; it must exit with 0."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command(*arguments), cwd=ROOT, env=environment(), stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            yield process
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=WITHIN_S)
            assert process.returncode == 0, errors
        finally:
            process.kill()


def line(process: subprocess.Popen[str], start: str) -> str:
    """Returns the first line of output with the prefix, without it."""
    assert process.stdout is not None
    for each in process.stdout:
        if each.startswith(start):
            return each.removeprefix(start).strip()
    raise AssertionError(f"it ended without a line {start}…")


def test_examples_run_without_capabilities() -> None:
    code = "print(*(l for l in open('/proc/self/status') if l.startswith('CapEff')))"
    done = subprocess.run(command("-c", code), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["CapEff:", "0" * 16]


def test_pods_as_processes() -> None:
    path = EXAMPLES / "processes_runtime.py"
    with running(str(path), str(EXAMPLES / "hello.yaml")) as process:
        assert line(process, "first: ") == "first things first"
        assert line(process, "greeter: ") == "hello world"
    assert len(path.read_text().splitlines()) <= 100


def test_an_operator() -> None:
    arguments = ["-m", "pytest", "-p", "no:cacheprovider", str(EXAMPLES / "operator_test.py")]
    done = subprocess.run(
        command(*arguments),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def pod(name: str, script: str) -> JSON:
    container = {"name": "c", "image": "none", "command": ["sh", "-c", script]}
    spec = {"containers": [container], "restartPolicy": "Never", "dnsPolicy": "Default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def seen(api: KubeClient, name: str, desired: Callable[[JSON], bool]) -> JSON:
    """Returns the pod as soon as its status fits; watches it from its creation."""
    changes = api.watch(
        PODS,
        "default",
        field_selector=f"metadata.name={name}",
        resource_version="1",
        timeout_seconds=int(WITHIN_S),
    )
    async for event in changes:
        removed = event.type == "DELETED"
        if event.type != "BOOKMARK" and desired({} if removed else event.object["status"]):
            return event.object
    raise AssertionError(f"pod {name} does not have the expected status within {WITHIN_S} s")


def in_phase(phase: str) -> Callable[[JSON], bool]:
    return lambda status: status.get("phase") == phase


async def test_pods_sent_elsewhere(tmp_path: Path) -> None:
    example = str(EXAMPLES / "virtual_kubelet.py")
    with running(example, "serve", str(tmp_path)) as node:
        kubeconfig = await asyncio.to_thread(line, node, "KUBECONFIG=")
        api = await KubeClient.from_kubeconfig(kubeconfig)
        await api.create(PODS, pod("ends", "exit 3"), "default")
        await api.create(PODS, pod("stays", "sleep 1000"), "default")
        assert (await seen(api, "ends", in_phase("Running")))["spec"]["nodeName"] == "virtual"
        work = (example, "work", str(tmp_path))
        with running(*work) as one, running(*work) as other:
            for worker in (one, other):
                await asyncio.to_thread(line, worker, "takes jobs")
            ended = await seen(api, "ends", in_phase("Failed"))
            state = ended["status"]["containerStatuses"][0]["state"]
            assert state["terminated"]["exitCode"] == 3
            await seen(api, "stays", in_phase("Running"))
            await api.delete(PODS, "stays", "default", grace_period_seconds=1)
            await seen(api, "stays", operator.not_)
        await api.close()
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_only_the_public_interface_is_used(path: Path) -> None:
    modules = [
        parts[1]
        for each in path.read_text().splitlines()
        if (parts := each.split())[:1] in (["import"], ["from"]) and "kubeletpy" in each
    ]
    assert set(modules) <= {"kubeletpy.library", "kubeletpy_up.api"}
    assert "kubeletpy.library" in modules
