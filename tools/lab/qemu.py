"""A virtual node under QEMU without acceleration: slow, with everything that Debian's kernel has.

User-mode Linux lacks PSI, cpusets, huge pages, several processors and kernels of other releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.env.process import run
from tools.lab.hosted import HostedMachine
from tools.lab.kernel import MODULES_TAG, Kernel
from tools.lab.recipe import AMD64, ARM64
from tools.lab.requests import GuestError

CPUS = 2
_KERNEL_ARGUMENTS = (
    *("root=/dev/vda", "mitigations=off", "net.ifnames=0"),
    *("cgroup_no_v1=all", "systemd.unified_cgroup_hierarchy=1", "psi=1"),
    # a service that takes 90 s to start is slow here, and not broken
    "systemd.default_timeout_start_sec=900",
)
_EMULATORS = {
    # five-level page tables cost time, and so do the modules for nested machines
    AMD64: ("qemu-system-x86_64", "-cpu", "max,la57=off,svm=off,vmx=off"),
    # newer processors sign pointers, which costs time
    ARM64: ("qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72"),
}
_CONSOLES = {AMD64: "ttyS0", ARM64: "ttyAMA0"}
_REQUESTS = {AMD64: ("-serial", "chardev:line"), ARM64: ("-device", "pci-serial,chardev=line")}
"""The device of `recipe.SERIAL_LINES`."""
_NINE_P = "trans=virtio,version=9p2000.L,msize=262144,cache=none"


class Qemu(HostedMachine):
    """Implements :class:`tools.lab.machine.Machine`."""

    boot_timeout = 1800.0

    def __init__(
        self,
        disk: Path,
        directory: Path,
        kernel: Kernel,
        *,
        architecture: str = AMD64,
        memory_mib: int = 2048,
        more: Sequence[str] = (),
        within: Sequence[str] = (),
        shares: Sequence[Path] = (),
    ) -> None:
        """``directory`` takes its console and what it writes to its disk; it may boot again.

        Args:
            more: further arguments of the kernel.
            shares: directories of this machine that ``mount_host`` can mount in the node.

        Raises CommandError: the disk cannot be read.
        """
        super().__init__(directory, within)
        self._kernel = kernel
        self._architecture = architecture
        self._memory_mib = memory_mib
        self._more = more
        self._shares = {f"share{n}": each for n, each in enumerate((self._exchange, *shares))}
        self._overlay = directory / "overlay"
        if not self._overlay.exists():
            backing = ("-F", "raw", "-b", disk.resolve())
            run("qemu-img", "create", "-q", "-f", "qcow2", *backing, self._overlay)

    def _command(self, serial: int) -> Sequence[str]:
        return qemu_command(
            self._kernel,
            self._overlay,
            self._console_path,
            architecture=self._architecture,
            memory_mib=self._memory_mib,
            serial=serial,
            shares=self._shares,
            more=self._more,
        )

    def _mount_command(self, directory: Path, target: str) -> Sequence[str]:
        for tag, shared in self._shares.items():
            if shared == directory:
                return ("mount", "-t", "9p", "-o", _NINE_P, tag, target)
        raise GuestError(f"{directory} is not a share of this node: add it to shares")


def qemu_command(
    kernel: Kernel,
    overlay: Path,
    console: Path,
    *,
    architecture: str,
    memory_mib: int,
    serial: int,
    shares: Mapping[str, Path],
    more: Sequence[str],
) -> list[str]:
    """The command line of QEMU: both processors are threads, the console is the first serial line.

    Args:
        overlay: the disk, a qcow2 file that takes what the node writes.
        console: takes the output of the first serial line; it is appended to.
        serial: the descriptor of the second serial line, for requests.
        shares: tag -> directory of this machine, beside that of the kernel's modules.
        more: further arguments of the kernel.
    """
    return [
        *(*_EMULATORS[architecture], "-nodefaults", "-no-user-config", "-display", "none"),
        *("-accel", "tcg,thread=multi", "-smp", str(CPUS), "-m", str(memory_mib)),
        *("-kernel", str(kernel.program), "-initrd", str(kernel.initrd)),
        *("-append", " ".join((f"console={_CONSOLES[architecture]}", *_KERNEL_ARGUMENTS, *more))),
        *("-drive", f"file={overlay},format=qcow2,if=virtio"),
        *_share(kernel.modules, MODULES_TAG, readonly=True),
        *(word for tag, path in shares.items() for word in _share(path, tag)),
        *("-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console"),
        *("-chardev", f"socket,id=line,fd={serial}", *_REQUESTS[architecture]),
        *("-device", "virtio-rng-pci"),
    ]


def _share(path: Path, tag: str, *, readonly: bool = False) -> tuple[str, str]:
    options = f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap"
    return "-virtfs", options + (",readonly=on" if readonly else "")
