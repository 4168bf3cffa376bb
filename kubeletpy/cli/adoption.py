"""The common part of ``kubeletpy adopt`` and ``give-back``: the person, root, signals, the record.

A closed terminal never stops either of them, and a signal never interrupts the way back.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import math
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from kubeletpy.agent.takeover.adopt.adoption import AdoptionRefused, Journal, Operator, entry_text
from kubeletpy.agent.takeover.adopt.host import HostError
from kubeletpy.agent.takeover.adopt.steps import DropInError
from kubeletpy.agent.takeover.preflight.kubelets import UnitMissing
from kubeletpy.agent.takeover.preflight.unit_command import UnitError
from kubeletpy.cli.endings import STOP_SIGNALS, interruptible, run_until_signalled


def run_as_root(
    name: str,
    parsed: argparse.Namespace,
    begin: Callable[[Operator, Journal], Coroutine[Any, Any, bool]],
    *,
    interrupted: str,
    numbers: Sequence[int] = STOP_SIGNALS,
) -> int:
    """Run a command, or print the record; returns the exit code.

    Args:
        name: the command's, for its messages.
        parsed: the command line, of which ``record`` and ``yes`` are read.
        begin: does the command's work; returns whether it succeeded.
        interrupted: the message after a signal.
        numbers: the signals that interrupt it.
    """
    journal = Journal()
    if parsed.record:
        return _print_record(name, journal)
    if os.geteuid() != 0:
        return _fail(name, "run it as root")
    logging.getLogger("kubeletpy").setLevel(logging.ERROR)
    running = begin(Operator(print_progress, partial(confirm, parsed)), journal)
    try:
        done = run_until_signalled(running, numbers=numbers, patience=math.inf)
    except (AdoptionRefused, HostError, DropInError, UnitError, UnitMissing) as error:
        return _fail(name, str(error))
    except KeyboardInterrupt:
        return _fail(name, interrupted)
    return 0 if done else 1


def confirm(parsed: argparse.Namespace, node_name: str, what: str) -> None:
    """Have the node's name typed unless --yes was given. Raises AdoptionRefused."""
    if parsed.yes:
        return
    if not sys.stdin.isatty():
        raise AdoptionRefused("name the node on a terminal, or use --yes; nothing was changed")
    try:
        with interruptible():
            typed = input(f"Type the name of this node ({node_name}) to {what}: ")
    except (EOFError, KeyboardInterrupt) as error:
        raise AdoptionRefused("interrupted; nothing was changed") from error
    if typed.strip() != node_name:
        raise AdoptionRefused("that is another name; nothing was changed")


def print_progress(text: str) -> None:
    """Show progress; a closed terminal is no reason to stop."""
    with contextlib.suppress(OSError):
        print(text, flush=True)


def _print_record(name: str, journal: Journal) -> int:
    try:
        entries = journal.entries()
        print("\n".join(map(entry_text, entries)) or f"{journal.path}: nothing was done here")
    except OSError as error:
        return _fail(name, f"{journal.path} can't be read: {error.strerror}")
    return 0


def _fail(name: str, problem: str) -> int:
    with contextlib.suppress(OSError):
        print(f"kubeletpy {name}: {problem}", file=sys.stderr)
    return 1
