"""Reads and writes kernel settings below a directory such as /proc/sys; a few system calls each."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from kubeletpy.node.guards.kernel_settings import WANTED, Wrong, compare

log = logging.getLogger(__name__)


def read_sysctls(directory: Path, names: Iterable[str] = WANTED) -> dict[str, str]:
    """Texts by name, without those that can't be read."""
    found = {}
    for name in names:
        with suppress(OSError):
            found[name] = _file(directory, name).read_text(errors="replace")
    return found


def settle(directory: Path) -> Sequence[str]:
    """Set what differs from a node's needs; return what could not be set, for people.

    An agent in a container, or without permission, reports that and goes on: the settings are then
    up to the machine's administrator.
    """
    problems = []
    for wrong in compare(read_sysctls(directory)):
        try:
            _set(directory, wrong)
        except OSError as error:
            problems.append(f"{wrong} ({error.strerror or error})")
            continue
        log.info(
            "kernel setting changed",
            extra={"setting": wrong.name, "from": wrong.found, "to": wrong.wanted},
        )
    return problems


def _set(directory: Path, wrong: Wrong) -> None:
    # never created: a missing file is a setting that this kernel does not have
    descriptor = os.open(_file(directory, wrong.name), os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, str(wrong.wanted).encode())
    finally:
        os.close(descriptor)


def _file(directory: Path, name: str) -> Path:
    return directory.joinpath(*name.split("."))
