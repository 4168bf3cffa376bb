"""``kubeletpy completion SHELL``: prints completions, made from the parsers of all commands.

A release has the same texts as files (``tools/release/shell_files.py``). The agent's own commands
never need the complete parser: a command is imported only to run it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

import shtab

from kubeletpy.cli.main import COMMANDS
from kubeletpy.config.flags import FLAGS

SHELLS = ("bash", "zsh", "fish")


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    sys.stdout.write(script(parser().parse_args(arguments).shell))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy completion",
        description="Print completions for a shell: source <(kubeletpy completion bash). They are "
        "kept in /etc/bash_completion.d, a folder of zsh's $fpath (as _kubeletpy), or "
        "~/.config/fish/completions.",
    )
    made.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")
    return made


def kubeletpy_parser() -> argparse.ArgumentParser:
    """``kubeletpy`` with all commands and their arguments."""
    made = argparse.ArgumentParser(
        prog="kubeletpy",
        description="A Kubernetes node agent: watches the pods bound to its node, runs them "
        "through a container runtime, and reports their status to the API server.",
    )
    made.add_argument("--version", action="store_true", help="print the version")
    commands = made.add_subparsers(title="commands", metavar="COMMAND")
    for name, of_command in command_parsers().items():
        commands.add_parser(
            name,
            parents=[of_command],
            add_help=False,
            usage=of_command.usage,
            help=COMMANDS[name][1],
            description=of_command.description,
        )
    return made


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """Command -> its parser."""
    return {
        name: _run_parser() if name == "run" else _parser(module)
        for name, (module, _) in COMMANDS.items()
    }


def _run_parser() -> argparse.ArgumentParser:
    """``kubeletpy run``, whose flags are a table and not a parser."""
    made = argparse.ArgumentParser(
        usage="kubeletpy run [flags]", description="The flags are the kubelet's."
    )
    for flag in FLAGS.values():
        about = " ".join(
            part
            for part in (
                f"sets {flag.field}" if flag.field else "",
                f"({flag.note})" if flag.note else "",
                f"(until Kubernetes {flag.until})" if flag.until else "",
            )
            if part
        )
        if flag.name == "help":
            continue
        if flag.kind in ("bool", "version"):
            made.add_argument(f"--{flag.name}", action="store_true", help=about)
        else:
            made.add_argument(f"--{flag.name}", metavar="VALUE", help=about)
    return made


def _parser(module: str) -> argparse.ArgumentParser:
    imported = importlib.import_module(module)
    if hasattr(imported, "parser"):
        found: argparse.ArgumentParser = imported.parser()
        return found
    return argparse.ArgumentParser(description=(imported.__doc__ or "").partition("\n")[0])


def script(shell: str) -> str:
    """Return the completions of ``kubeletpy`` for one of SHELLS."""
    made: str = shtab.complete(_with_paths(kubeletpy_parser()), shell)
    return made


_OF_DIRECTORIES = ("dir", "path", "directory")
_OF_FILES = ("config", "kubeconfig", "file", "output", "filename", "socket")


def _with_paths(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Mark the arguments that are paths, by the last part of their names."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _with_paths(each)
            continue
        last = action.dest.split("_")[-1]
        if action.nargs == 0 or action.choices:
            continue
        if last in _OF_DIRECTORIES:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif last in _OF_FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser
