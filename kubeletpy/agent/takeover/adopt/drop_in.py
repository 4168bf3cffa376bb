"""The drop-in by which the kubelet's unit starts this agent. Pure.

During the watch it is below /run: after a power cut the unit starts the kubelet. Once the watch has
succeeded it is below /etc.
"""

from __future__ import annotations

import posixpath
import re

from kubeletpy.agent.takeover.preflight.command_line import PREFIXES

NAME = "zz-kubeletpy.conf"
"""Sorts after other drop-ins, so that its ExecStart is the one in effect."""
TRIAL = "run/systemd/system"
KEPT = "etc/systemd/system"
_EXEC = re.compile(r"^ExecStart=.*\n?", re.MULTILINE)
_COMMENT = re.compile(r"^#.*\n", re.MULTILINE)


class DropInError(ValueError):
    """A unit for which no drop-in can be made; the message states why."""


def drop_in_path(unit: str, directory: str) -> str:
    """Where a unit's drop-in is, relative to the file system's root."""
    return posixpath.join(directory, f"{unit}.d", NAME)


def agent_command(command: str, program: str) -> str:
    """The ExecStart of a kubelet with this agent as the program, and its variables as they are.

    Args:
        command: the text of the kubelet's ExecStart.
        program: the agent's path.

    Raises:
        DropInError: the text starts no program by its path.
    """
    text = command.lstrip(PREFIXES)
    prefixes = command[: len(command) - len(text)]
    words = text.split(None, 2 if "@" in prefixes else 1)
    if not words or not words[0].startswith("/"):
        raise DropInError(f"ExecStart={command!r} does not start with the path of a program")
    if any(char.isspace() or char in "\"'\\$%;" for char in program):
        raise DropInError(f"the path {program!r} has characters that a unit would need to quote")
    rest = words[2:] if "@" in prefixes else words[1:]
    kept = "".join(char for char in prefixes if char in ":-")
    return " ".join((f"{kept}{program} run", *rest))


def drop_in_text(deployed: str, command: str) -> str:
    """The drop-in's content.

    Args:
        deployed: the drop-in of ``deploy/``, whose other settings it has.
        command: its ExecStart.
    """
    body = _EXEC.sub("", _COMMENT.sub("", deployed))
    if not body.startswith("[Service]\n"):
        raise DropInError("the drop-in that this version comes with has no section Service")
    rest = body.removeprefix("[Service]\n")
    note = "# Written by `kubeletpy adopt`. To go back: `kubeletpy give-back`.\n"
    return f"{note}[Service]\nExecStart=\nExecStart={command}\n{rest}"
