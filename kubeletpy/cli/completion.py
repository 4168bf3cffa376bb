"""``kubeletpy completion SHELL``: prints completions, made from the parsers of all commands.

A release has the same texts as files (``tools/release/shell_files.py``). The agent's own commands
never need the complete parser: a command is imported only to run it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterator, Sequence
from shlex import quote

from kubeletpy.base.structs import Struct
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


class _Argument(Struct, frozen=True):
    """An option, or a positional argument: then without names."""

    names: tuple[str, ...]
    about: str
    choices: tuple[str, ...]
    takes_value: bool


def script(shell: str) -> str:
    """Return the completions of ``kubeletpy`` for one of SHELLS."""
    found = {name: tuple(_arguments(each)) for name, each in command_parsers().items()}
    return "\n".join({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](found)) + "\n"


def _arguments(of: argparse.ArgumentParser) -> Iterator[_Argument]:
    formatter = of._get_formatter()
    for each in of._actions:
        about = formatter._expand_help(each) if each.help else ""
        choices = tuple(map(str, each.choices or ()))
        yield _Argument(tuple(each.option_strings), about, choices, each.nargs != 0)


_Commands = dict[str, tuple[_Argument, ...]]


def _bash(commands: _Commands) -> Iterator[str]:
    yield "_kubeletpy() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" words='
    yield '    case "$COMP_CWORD $command ${COMP_WORDS[COMP_CWORD - 1]}" in'
    yield f'    "1 "*) words="{" ".join(commands)}" ;;'
    for name, arguments in commands.items():
        for each in arguments:
            if each.choices:
                labels = "|".join(f'*" {name} {option}"' for option in each.names or (name,))
                yield f'    {labels}) words="{" ".join(each.choices)}" ;;'
    for name, arguments in commands.items():
        options = " ".join(option for each in arguments for option in each.names)
        yield f'    *" {name} "*) [[ $current != -* ]] || words="{options}" ;;'
    yield "    esac"
    yield '    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")'
    yield "}"
    yield "complete -o default -F _kubeletpy kubeletpy"


def _zsh(commands: _Commands) -> Iterator[str]:
    yield "#compdef kubeletpy"
    yield "_kubeletpy() {"
    yield "    if (( CURRENT == 2 )); then"
    described = " ".join(quote(f"{name}:{COMMANDS[name][1]}") for name in commands)
    yield f"        local -a commands=({described})"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield "    local command=$words[2]"
    yield "    shift words"
    yield "    (( CURRENT-- ))"
    yield "    case $command in"
    for name, arguments in commands.items():
        specs = [quote(spec) for each in arguments for spec in _zsh_specs(each)]
        yield f"    {name}) _arguments {' '.join(specs)} ;;"
    yield "    esac"
    yield "}"
    yield 'if [ "$funcstack[1]" = _kubeletpy ]; then _kubeletpy "$@"'
    yield "else compdef _kubeletpy kubeletpy; fi"


def _zsh_specs(argument: _Argument) -> Iterator[str]:
    value = f":value:({' '.join(argument.choices)})" if argument.choices else ":value:_files"
    about = argument.about
    for character in "\\[]:":
        about = about.replace(character, f"\\{character}")
    for name in argument.names:
        sign = "=" if argument.takes_value and name.startswith("--") else ""
        yield f"{name}{sign}[{about}]{value if argument.takes_value else ''}"
    if not argument.names:
        yield f"*{value}"


def _fish(commands: _Commands) -> Iterator[str]:
    for name, arguments in commands.items():
        about = quote(COMMANDS[name][1])
        yield f"complete -c kubeletpy -n __fish_use_subcommand -f -a {name} -d {about}"
        for each in arguments:
            line = f"complete -c kubeletpy -n '__fish_seen_subcommand_from {name}'"
            for option in each.names:
                line += f" -{'l' if option.startswith('--') else 's'} {option.lstrip('-')}"
            if each.names:
                line += f" -d {quote(each.about)}" + (" -r" if each.takes_value else "")
            if each.choices:
                line += f" -f -a {quote(' '.join(each.choices))}"
            if each.names or each.choices:
                yield line
