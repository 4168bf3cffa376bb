"""A virtual node under user-mode Linux: a kernel that is a process of this machine."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.env.debian import cache_dir, locked, unpacked
from tools.env.images import static_busybox
from tools.env.process import catches, run
from tools.lab.hosted import HostedMachine
from tools.lab.kernel import APPLETS, cpio
from tools.lab.recipe import kernel_command

PACKAGE = "user-mode-linux"
_LIBRARIES = "x86_64-linux-gnu"


@dataclass(frozen=True)
class UmlKernel:
    """A kernel on this machine: its program, and its initial RAM disk if it has one."""

    program: str
    initrd: Path | None = None


INSTALLED = UmlKernel("linux.uml")
"""The kernel of this machine's own package."""


def release_kernel(suite: str) -> UmlKernel:
    """The kernel of a suite, fetched and prepared once. Raises CommandError."""
    root = unpacked(PACKAGE, suite)
    (modules,) = (root / "usr/lib/uml/modules").iterdir()
    init = first_program(modules)
    home = cache_dir() / "lab" / f"{PACKAGE}-{modules.name}"
    program = home / "linux.uml"
    initrd = home / f"initrd-{hashlib.sha256(init.encode()).hexdigest()[:16]}"
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        if not program.exists():
            fresh = home / ".program"
            shutil.copy2(root / "usr/bin/linux.uml", fresh)
            # Debian 12 has it in /lib
            (loader,) = unpacked("libc6", suite).glob(f"**/{_LIBRARIES}/ld-linux-x86-64.so.2")
            # the loader as the program would make the kernel place its memory after the loader
            run(
                unpacked("patchelf", "bookworm") / "usr/bin/patchelf",
                *("--set-interpreter", loader, "--set-rpath", loader.parent),
                fresh,
            )
            fresh.rename(program)
        if not initrd.exists():
            fresh = home / ".initrd"
            fresh.write_bytes(_initrd(init))
            fresh.rename(initrd)
    return UmlKernel(str(program), initrd)


def first_program(modules: Path) -> str:
    """A shell script: mount the disk and this machine's directory of modules, and run systemd."""
    lines = (
        "#!/bin/busybox sh",
        "export PATH=/bin",
        "mount -t devtmpfs none /dev",
        "until [ -b /dev/ubda ]; do sleep 0.1; done",
        "mount -t ext4 /dev/ubda /root",
        "directory=/root/lib/modules/$(uname -r)",
        'mkdir -p "$directory"',
        f'mount -t hostfs -o ro,{modules} none "$directory"',
        "exec switch_root /root /sbin/init",
    )
    return "".join(f"{line}\n" for line in lines)


def _initrd(init: str) -> bytes:
    files: dict[str, tuple[int, bytes]] = {
        **dict.fromkeys(("bin", "dev", "root"), (0o040755, b"")),
        "init": (0o100755, init.encode()),
        "bin/busybox": (0o100755, static_busybox().read_bytes()),
        **{f"bin/{applet}": (0o120777, b"busybox") for applet in APPLETS},
    }
    return gzip.compress(cpio(files), compresslevel=1, mtime=0)


SHOW_CLOCK = (
    "{ cat /proc/cpuinfo; echo 'cpu MHz : 2000.0'; } > /tmp/cpuinfo"
    " && mount --bind /tmp/cpuinfo /proc/cpuinfo"
)
"""A script: this kernel shows no clock speed, without which a Go kubelet does not start."""


class UserModeLinux(HostedMachine):
    """Implements :class:`tools.lab.machine.Machine`."""

    boot_timeout = 600.0
    _turns = itertools.count(os.getpid())

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
        # Its one processor is two threads that wait for each other at each system call: on two
        # processors of this machine each sleeps until the other wakes it. On one a boot takes a
        # third of the time.
        allowed = sorted(os.sched_getaffinity(0))
        self._processor = allowed[next(self._turns) % len(allowed)]

    def _command(self, serial: int) -> Sequence[str]:
        initrd = self._kernel.initrd
        command = kernel_command(
            str(self._disk),
            str(self._directory / "overlay"),
            str(self._directory),
            memory_mib=self._memory_mib,
            serial=serial,
            more=(*self._more, *([f"initrd={initrd}"] if initrd else [])),
            program=self._kernel.program,
        )
        return ["taskset", "--cpu-list", str(self._processor), *command]

    def _switch_on(self) -> subprocess.Popen[bytes]:
        process = super()._switch_on()
        threading.Thread(target=keep_time, args=(process, self._off), daemon=True).start()
        return process

    def _mount_command(self, directory: Path, target: str) -> Sequence[str]:
        # from Linux 6.9 on, a name for the option is needed by fsconfig(), and by mount() it is not
        mount = ("env", "LIBMOUNT_FORCE_MOUNT2=always", "mount", "-t", "hostfs")
        return (*mount, "-o", str(directory), "none", target)


def keep_time(process: subprocess.Popen[bytes], off: threading.Event, every: float = 5.0) -> None:
    """Send a kernel that is a process its timer's signal now and then, until ``off``.

    Its timer is set anew for each tick. Once in some hundred boots a tick is lost (Linux 6.1.176):
    from then on one of its processes runs alone, without network or serial line. A further signal
    has it read the clock and set its timer again; otherwise it changes nothing.
    """
    while not off.wait(every):
        if catches(process.pid, signal.SIGALRM):  # it would end before
            process.send_signal(signal.SIGALRM)
