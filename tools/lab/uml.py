"""A virtual node under user-mode Linux: a kernel that is a process of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.lab.hosted import HostedMachine
from tools.lab.recipe import kernel_command
from tools.lab.uml_kernel import INSTALLED, UmlKernel

SHOW_CLOCK = (
    "{ cat /proc/cpuinfo; echo 'cpu MHz : 2000.0'; } > /tmp/cpuinfo"
    " && mount --bind /tmp/cpuinfo /proc/cpuinfo"
)
"""A script: this kernel shows no clock speed, without which a Go kubelet does not start."""


class UserModeLinux(HostedMachine):
    """Implements :class:`tools.lab.machine.Machine`."""

    boot_timeout = 600.0

    def __init__(
        self,
        disk: Path,
        directory: Path,
        *,
        memory_mib: int = 2048,
        more: Sequence[str] = (),
        within: Sequence[str] = (),
        kernel: UmlKernel = INSTALLED,
    ) -> None:
        """``directory`` takes its console and what it writes to its disk; it may boot again.

        ``within`` starts the kernel's command line, as :attr:`tools.lab.network.Network.inside`.
        """
        super().__init__(directory, within)
        self._disk = disk
        self._memory_mib = memory_mib
        self._more = more
        self._kernel = kernel

    def _command(self, serial: int) -> Sequence[str]:
        initrd = self._kernel.initrd
        return kernel_command(
            str(self._disk),
            str(self._directory / "overlay"),
            str(self._directory),
            memory_mib=self._memory_mib,
            serial=serial,
            more=(*self._more, *([f"initrd={initrd}"] if initrd else [])),
            program=self._kernel.program,
        )

    def _mount_command(self, directory: Path, target: str) -> Sequence[str]:
        # from Linux 6.9 on, a name for the option is needed by fsconfig(), and by mount() it is not
        mount = ("env", "LIBMOUNT_FORCE_MOUNT2=always", "mount", "-t", "hostfs")
        return (*mount, "-o", str(directory), "none", target)
