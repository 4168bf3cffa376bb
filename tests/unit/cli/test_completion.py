"""Completions, and the parser from which they and manual pages are generated."""

from __future__ import annotations

import argparse
import subprocess

import pytest

from kubeletpy.cli.completion import kubeletpy_parser, main, script
from kubeletpy.cli.main import COMMANDS
from kubeletpy.config.flags import FLAGS


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


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("kubeletpy re", "record replay"),
        ("kubeletpy timeline -o s", "svg"),
        ("kubeletpy run --node-ip", "--node-ip"),
        ("kubeletpy completion f", "fish"),
    ],
)
def test_bash_completes_commands_options_and_choices(words: str, completed: str) -> None:
    code = f"""{script("bash")}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_shtab_kubeletpy kubeletpy "${{COMP_WORDS[-1]}}" "${{COMP_WORDS[-2]}}"; echo "${{COMPREPLY[*]}}"
"""
    found = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == f"{completed}\n"


def test_other_shells_have_the_same_with_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    zsh = script("zsh")
    assert zsh.startswith("#compdef kubeletpy\n")
    assert "svg and html\\: for reports" in zsh
    assert main(["fish"]) == 0
    assert "svg and html: for reports" in capsys.readouterr().out
