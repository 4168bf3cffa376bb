"""The parser from which completions and manual pages are generated."""

from __future__ import annotations

import argparse

import pytest

from kubeletpy.cli.main import COMMANDS
from kubeletpy.config.flags import FLAGS
from tools.release.command_lines import kubeletpy_parser


def _commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = (
        each for each in kubeletpy_parser()._actions if isinstance(each, argparse._SubParsersAction)
    )
    return dict(action.choices)


def test_it_has_every_command_with_its_arguments() -> None:
    commands = _commands()
    assert list(commands) == list(COMMANDS)
    bare = [name for name, each in commands.items() if len(each._actions) == 1]
    assert bare == ["down", "version"]


def test_run_has_every_flag() -> None:
    options = _commands()["run"]._option_string_actions
    assert set(options) == {f"--{name}" for name in FLAGS} | {"-h", "--help"}


@pytest.mark.parametrize(
    "command", ["--version", "run --address 1.2.3.4", "deploy-files D --force"]
)
def test_it_reads_command_lines(command: str) -> None:
    kubeletpy_parser().parse_args(command.split())
