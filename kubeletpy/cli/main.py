"""``kubeletpy COMMAND``: finds the command and runs it. Imports a command only to run it."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("kubeletpy.cli.run", "join a cluster: the node agent with the kubelet's flags"),
    "up": ("kubeletpy.cli.up", "start a node with its own embedded Kubernetes API"),
    "explain": ("kubeletpy.cli.explain", "say why a pod is as it is, and what it waits for"),
    "timeline": ("kubeletpy.cli.timeline", "show how a pod's start went, step by step"),
    "version": ("kubeletpy.cli.version", "say which version this is"),
}
"""Command: (module with ``main(arguments)``, what it does)."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="kubeletpy",
        usage="kubeletpy COMMAND [arguments]",
        description="A Kubernetes node agent.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n"
        + "\n".join(f"  {name:<10} {summary}" for name, (_, summary) in COMMANDS.items())
        + "\n\nkubeletpy COMMAND --help describes a command.",
    )
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        parser.print_help(sys.stderr)
        return 2
    if given[:1] == ["--version"]:
        given[0] = "version"
    parsed = parser.parse_args(given)
    module = importlib.import_module(COMMANDS[parsed.command][0])
    code: int = module.main(parsed.arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
