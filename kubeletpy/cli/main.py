"""``kubeletpy COMMAND``: finds the command and runs it. Imports a command only to run it."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from kubeletpy.cli.endings import end_in_order

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("kubeletpy.cli.run", "join a cluster: the node agent with the kubelet's flags"),
    "up": ("kubeletpy.cli.up", "start a node with its own embedded Kubernetes API"),
    "down": ("kubeletpy.cli.rootless", "remove the node of `kubeletpy up --rootless`"),
    "explain": ("kubeletpy.cli.explain", "show why a pod is in its state, and what it waits for"),
    "plan": ("kubeletpy.cli.plan", "show what this node would do with a pod, or with a change"),
    "timeline": ("kubeletpy.cli.timeline", "show how a pod's start went, step by step"),
    "logs": ("kubeletpy.cli.pod_logs", "show the log of a container, from the node's files"),
    "view": ("kubeletpy.cli.view", "show the node's pods in a browser, live"),
    "preflight": ("kubeletpy.cli.preflight", "show what taking over this node would change"),
    "adopt": ("kubeletpy.cli.adopt", "take over the node of a kubelet, and watch it"),
    "give-back": ("kubeletpy.cli.give_back", "give a node back to its kubelet"),
    "record": ("kubeletpy.cli.record", "save what the flight recorder has on disk"),
    "replay": ("kubeletpy.cli.replay", "re-run recorded decisions and show the differences"),
    "deploy-files": ("kubeletpy.cli.deploy_files", "write units, configurations and RBAC"),
    "completion": ("kubeletpy.cli.completion", "print completions for bash, zsh or fish"),
    "version": ("kubeletpy.cli.version", "print the version"),
}
"""Command: (module with ``main(arguments)``, what it does)."""

SERVING = (["run"], ["up"], ["view"])
"""Command lines that run until they are signalled begin so."""
ROOTLESS = "--rootless"
"""The option of ``up`` that makes it another command."""
KUBELET = "kubelet"
"""Under this name (as a link, or as the program of that name) it is invoked like the kubelet."""


def kubelet(arguments: Sequence[str] | None = None) -> int:
    """``kubelet [flags]``: the same as ``kubeletpy run``; returns the exit code."""
    line = list(sys.argv[1:] if arguments is None else arguments)
    return end_in_order(lambda: _run("run", line), serves=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    line = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and PurePath(sys.argv[0]).name == KUBELET:
        return kubelet(line)
    return end_in_order(lambda: _main(line), serves=line[:1] in SERVING)


def _main(line: list[str]) -> int:
    if line and line[0] in COMMANDS:
        return _run(line[0], line[1:])
    return _other_line(line)


def _other_line(line: list[str]) -> int:
    """A command line that does not begin with a command."""
    import argparse  # a command starts 3 ms sooner without it

    parser = argparse.ArgumentParser(
        prog="kubeletpy",
        usage="kubeletpy COMMAND [arguments]",
        description="A Kubernetes node agent.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="commands:\n"
        + "\n".join(f"  {name:<12} {summary}" for name, (_, summary) in COMMANDS.items())
        + "\n\nkubeletpy COMMAND --help describes a command.",
    )
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    if not line:
        parser.print_help(sys.stderr)
        return 2
    if line[:1] == ["--version"]:
        line[0] = "version"
    if not line[0].startswith("-") and line[0] not in COMMANDS:
        parser.error(_unknown(line[0]))
    parsed = parser.parse_args(line)
    return _run(parsed.command, parsed.arguments)


def _run(command: str, arguments: Sequence[str]) -> int:
    name, function = COMMANDS[command][0], "main"
    if command == "up" and ROOTLESS in arguments:
        name, function = COMMANDS["down"][0], "up_main"
    gc.disable()  # modules are no garbage
    try:
        module = importlib.import_module(name)
    finally:
        gc.enable()
    code: int = getattr(module, function)(arguments)
    return code


def _unknown(command: str) -> str:
    from kubeletpy.base.text import nearest

    near = nearest(command, COMMANDS)
    hint = f"did you mean {near}?" if near else f"the commands are {', '.join(COMMANDS)}"
    return f"there is no command {command!r}; {hint}"


if __name__ == "__main__":
    sys.exit(main())
