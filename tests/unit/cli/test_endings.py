"""How commands end: signals that repeat or come early, and output that nobody reads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from kubeletpy.cli.endings import EXIT_CODE, end_in_order, quiet_if_closed


@pytest.mark.parametrize(
    "command",
    [
        ["kubeletpy.cli.main", "--help"],
        ["kubeletpy.cli.main", "run", "--help"],
        ["kubeletpy.cli.main", "explain", "--help"],
        ["kubeletpy.cli.main", "version"],
        ["kubeletpy.cli.why", "--help"],
    ],
    ids=" ".join,
)
def test_ends_quietly_when_the_reader_has_exited(command: Sequence[str]) -> None:
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            env=buffered,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_exit_code_of_a_command_is_kept() -> None:
    assert quiet_if_closed(lambda: 3) == 3


def test_another_broken_pipe_is_not_hidden() -> None:
    def broken() -> int:
        raise BrokenPipeError(32, "a connection of the agent")

    with pytest.raises(BrokenPipeError, match="a connection"):
        quiet_if_closed(broken)


def test_the_exit_code_is_that_of_sigpipe() -> None:
    assert EXIT_CODE == 141


# -- signals --------------------------------------------------------------------------------------

CHILD = """
import asyncio, os, signal, sys
from kubeletpy.cli import run
from kubeletpy.cli.endings import end_in_order, run_until_signalled

FLAGS = ["--hostname-override=n", "--fail-swap-on=false", "--fail-cgroupv1=false"]

async def serve(loaded=None):
    try:
        print("serves", flush=True)
        await asyncio.Event().wait()
    finally:
        print("stops", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print("has stopped", flush=True)

def signalled(*numbers):
    for each in numbers:
        os.kill(os.getpid(), each)
"""
INT, TERM = signal.SIGINT, signal.SIGTERM


def child(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"{CHILD}\n{code}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("signals", [(INT, TERM), (TERM, INT, INT)])
def test_repeated_signals_are_one_clean_stop(signals: Sequence[signal.Signals]) -> None:
    code = "sys.exit(end_in_order(lambda: run.main(FLAGS, serve), serves=True))"
    with child(code) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "serves\n"
        process.send_signal(signals[0])
        assert process.stdout.readline() == "stops\n"
        for each in signals[1:]:
            process.send_signal(each)
        output, errors = process.communicate("go on\n", timeout=30)
    assert (process.returncode, output) == (0, "has stopped\n")
    assert "Traceback" not in errors


def test_a_later_signal_ends_the_process_at_once() -> None:
    code = "end_in_order(lambda: run_until_signalled(serve(), patience=0), serves=True)"
    with child(code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "serves\n"
        process.send_signal(INT)
        assert process.stdout.readline() == "stops\n"
        process.send_signal(INT)
        assert process.wait(30) == -INT
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize("signals", ["INT, INT", "TERM"])
def test_a_signal_during_the_imports_is_kept_until_the_stop(signals: str) -> None:
    numbers = ", ".join(f"signal.SIG{each}" for each in signals.split(", "))
    code = f"""
def command():
    signalled({numbers})
    return run.main(FLAGS, serve)
sys.exit(end_in_order(command, serves=True))
"""
    with child(code) as process:
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, output) == (0, "")
    assert "Traceback" not in errors


def test_a_signal_from_before_the_program_is_delivered() -> None:
    code = """
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
signalled(signal.SIGINT)
sys.exit(end_in_order(lambda: run.main(FLAGS, serve), serves=True))
"""
    with child(code) as process:
        assert process.communicate(timeout=30)[0] == ""
    assert process.returncode == 0


@pytest.mark.parametrize(
    "interrupted", ["signalled(signal.SIGINT)", "run_until_signalled(serve())"]
)
def test_a_command_that_only_answers_ends_with_130(interrupted: str) -> None:
    code = f"""
def command():
    {interrupted}
code = end_in_order(command)
signalled(signal.SIGINT)
sys.exit(code)
"""
    with child(code) as process:
        assert process.stdout is not None
        if "serve" in interrupted:
            assert process.stdout.readline() == "serves\n"
            process.send_signal(INT)
        errors = process.communicate("go on\n", timeout=30)[1]
    assert (process.returncode, errors) == (130, "")


def test_handlers_are_restored_without_a_signal() -> None:
    before = [signal.getsignal(each) for each in (INT, TERM)]
    assert end_in_order(lambda: 3, serves=True) == 3
    assert [signal.getsignal(each) for each in (INT, TERM)] == before
