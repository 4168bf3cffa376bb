"""The kinds of virtual nodes, and how to make one of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.lab.hosted import HostedMachine
from tools.lab.kernel import debian_kernel
from tools.lab.qemu import Qemu
from tools.lab.uml import UserModeLinux

UML, QEMU = "uml", "qemu"
KINDS = (UML, QEMU)
NAMES = {UML: "user-mode Linux", QEMU: "QEMU, Linux"}
"""Kind -> its name in a table of results, before the kernel's version."""


def make_machine(
    kind: str,
    suite: str,
    disk: Path,
    directory: Path,
    *,
    memory_mib: int = 2048,
    more: Sequence[str] = (),
    shares: Sequence[Path] = (),
) -> HostedMachine:
    """A node that is off; under QEMU with the kernel of its suite.

    ``shares`` are directories of this machine that it may mount. Raises CommandError.
    """
    if kind == UML:
        return UserModeLinux(disk, directory, memory_mib=memory_mib, more=more)
    return Qemu(
        disk, directory, debian_kernel(suite), memory_mib=memory_mib, more=more, shares=shares
    )
