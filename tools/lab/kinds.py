"""The kinds of virtual nodes, and how to make one of a kind."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.lab.hosted import HostedMachine
from tools.lab.kernel import debian_kernel
from tools.lab.qemu import Qemu
from tools.lab.recipe import AMD64, ARM64
from tools.lab.uml import INSTALLED, UmlKernel, UserModeLinux, release_kernel

UML, QEMU, QEMU_ARM64 = "uml", "qemu", "qemu-arm64"
KINDS = (UML, QEMU, QEMU_ARM64)
_UML_KERNELS = {"testing": "testing"}
"""Suite -> the suite of its kernel under user-mode Linux, unless it is that of this machine."""


def architecture_of(kind: str) -> str:
    """The processor of a kind of node, as Debian calls it."""
    return ARM64 if kind == QEMU_ARM64 else AMD64


def uml_kernel(suite: str, kernel: str = "") -> UmlKernel:
    """The kernel of a suite's nodes under user-mode Linux; ``kernel`` is another one's suite.

    Raises CommandError.
    """
    release = kernel or _UML_KERNELS.get(suite)
    return release_kernel(release) if release else INSTALLED


def make_machine(
    kind: str,
    suite: str,
    disk: Path,
    directory: Path,
    *,
    memory_mib: int = 2048,
    more: Sequence[str] = (),
    shares: Sequence[Path] = (),
    kernel: str = "",
) -> HostedMachine:
    """A node that is off.

    Args:
        shares: directories of this machine that it may mount.
        kernel: the suite whose kernel it has; by default that of the node's suite under QEMU and
            for Debian testing, and that of this machine's user-mode Linux for others.

    Raises CommandError.
    """
    if kind == UML:
        uml = uml_kernel(suite, kernel)
        return UserModeLinux(disk, directory, memory_mib=memory_mib, more=more, kernel=uml)
    architecture = architecture_of(kind)
    linux = debian_kernel(kernel or suite, architecture)
    return Qemu(
        disk,
        directory,
        linux,
        architecture=architecture,
        memory_mib=memory_mib,
        more=more,
        shares=shares,
    )
