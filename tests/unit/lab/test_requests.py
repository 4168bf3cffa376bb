"""Requests to a virtual node, as its own program answers them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.lab import guest, requests
from tools.lab.requests import Done, GuestError


def carried_out(request: bytes) -> bytes:
    """The answer's line, as the guest writes it."""
    lines = requests.pieces(request)
    assert b"".join(lines).count(b"\n") == len(lines)
    assert max(map(len, lines)) < 3968, "a line of user-mode Linux takes no more"
    *taken, last = guest.answers(lines)
    assert taken == [guest.TAKEN] * (len(lines) - 1)
    return json.dumps(last).encode()


@pytest.mark.parametrize(
    ("command", "done"),
    [
        (("echo", "a\nb"), Done(0, "a\nb\n")),
        (("sh", "-c", "echo out; echo err >&2; exit 3"), Done(3, "out\nerr\n")),
        (("printf", "\\377"), Done(0, "\N{REPLACEMENT CHARACTER}")),
        (("echo", '"\\\n' * 5000), Done(0, '"\\\n' * 5000 + "\n")),
        (("echo", "ü" * 5000), Done(0, "ü" * 5000 + "\n")),
    ],
)
def test_a_command_has_its_status_and_output(command: tuple[str, ...], done: Done) -> None:
    assert requests.parse_done(carried_out(requests.run_request(command, 20))) == done


def test_lines_of_a_shell_keep_its_directory_and_variables(tmp_path: Path) -> None:
    inside = tmp_path / "a b"
    inside.mkdir()
    lines = (f"cd '{inside}'; export X='1 2'", "false", "pwd; echo $X; exit 3")
    state = str(tmp_path / "state")
    done = [
        requests.parse_done(
            carried_out(requests.run_request(("bash", "-c", requests.shell_line(line, state)), 20))
        )
        for line in lines
    ]
    assert done == [Done(0, ""), Done(1, ""), Done(3, f"{inside}\n1 2\n")]


@pytest.mark.parametrize(
    ("command", "timeout", "parts"),
    [
        (("/no/such/program",), 20.0, "No such file"),
        ((sys.executable, "-c", "input() if 0 else __import__('time').sleep(60)"), 0.05, "running"),
    ],
)
def test_a_command_that_fails_or_does_not_end(
    command: tuple[str, ...], timeout: float, parts: str
) -> None:
    with pytest.raises(GuestError, match=parts):
        requests.parse_done(carried_out(requests.run_request(command, timeout)))


@pytest.mark.parametrize("line", [b"", b"[1]", b"Kernel panic", b"\xff"])
def test_malformed_answers_are_quoted(line: bytes) -> None:
    with pytest.raises(GuestError, match="the node answered"):
        requests.parse_answer(line)


@pytest.mark.parametrize("request_", [{}, {"run": ["true"]}, {"run": 1, "timeout": 1}])
def test_an_invalid_request_is_an_error_and_ends_nothing(request_: dict[str, object]) -> None:
    assert "error" in guest.answer(request_)
