"""Running a provider's program: real scripts, well and badly behaved."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from kubeletpy.base.host import program as module
from kubeletpy.base.host.program import Program, ProgramFailed, run_program


def script(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plugin"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


async def run(tmp_path: Path, text: str, *args: str, hidden: str = "", **env: str) -> str:
    made = Program(str(script(tmp_path, text)), args, env)
    return (await run_program(made, b'{"image": "x"}\n', hidden=(hidden,))).decode()


async def failure(tmp_path: Path, text: str, hidden: str = "") -> str:
    with pytest.raises(ProgramFailed) as caught:
        await run(tmp_path, text, hidden=hidden)
    return str(caught.value)


async def wait_for_exit(pid: int) -> None:
    """Wait for the end of a process that need not be a child, and may be gone."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(process, ended.set)
    try:
        async with asyncio.timeout(5):
            await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(process)
        os.close(process)


async def test_stdin_arguments_and_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_AGENT", "kept")
    monkeypatch.setenv("BOTH", "agent")
    stated = await run(
        tmp_path, 'cat; echo "$1 $REGION $OF_THE_AGENT $BOTH"', "one", REGION="eu", BOTH="provider"
    )
    request, rest = stated.splitlines()
    assert json.loads(request) == {"image": "x"}
    assert rest == "one eu kept provider"


async def test_a_program_need_not_read(tmp_path: Path) -> None:
    assert await run(tmp_path, "exec 0<&-; echo hello") == "hello\n"


async def test_failures_contain_the_reason_but_no_token(tmp_path: Path) -> None:
    notified = await failure(
        tmp_path, "echo half; echo cannot log in with to-ken >&2; exit 3", "to-ken"
    )
    assert notified == "exit status 3: cannot log in with [redacted]"
    assert await failure(tmp_path, "exit 4") == "exit status 4"
    assert await failure(tmp_path, "kill -9 $$") == "signal 9"
    long = await failure(tmp_path, "head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1")
    assert len(long) < 1100


async def test_no_program(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match="could not be started: No such file"):
        await run_program(Program(str(tmp_path / "none")), b"")
    (tmp_path / "text").write_text("no program")
    with pytest.raises(ProgramFailed, match="could not be started: Permission denied"):
        await run_program(Program(str(tmp_path / "text")), b"")


@pytest.mark.parametrize("stream", ["", ">&2"])
async def test_too_much(tmp_path: Path, stream: str) -> None:
    notified = await failure(tmp_path, f"echo $$ > {tmp_path}/pid; cat /dev/zero {stream}")
    assert notified == "wrote more than 1048576 bytes"
    await wait_for_exit(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(
    "text", ["sleep 1000 & echo $! > PID; wait", "sleep 1000 & echo $! > PID; exit 0"]
)
async def test_a_timeout_ends_the_program_and_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.5)
    notified = await failure(tmp_path, text.replace("PID", f"{tmp_path}/pid"))
    assert notified == "did not finish within 0.5 s"
    await wait_for_exit(int((tmp_path / "pid").read_text()))


async def test_cancellation_ends_the_program(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    task = asyncio.create_task(run(tmp_path, f"sleep 1000 & echo $! > {fifo}; wait"))
    pid = int(await asyncio.to_thread(fifo.read_text))
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await wait_for_exit(pid)


async def test_complaints_of_a_program(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed) as caught:
        await run(tmp_path, "echo no to-ken here >&2; exit 2", hidden="to-ken")
    assert (caught.value.exit_status, caught.value.complaint) == (2, "no [redacted] here")
