"""Commands whose output nobody reads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import pytest

from kubeletpy.cli.closed_output import EXIT_CODE, quiet_if_closed


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
