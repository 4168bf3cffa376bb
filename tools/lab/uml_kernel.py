"""User-mode Linux of another Debian release than this machine's, unpacked beside it.

The program runs with the C library that it was built for. The disk images contain the modules of
this machine's package; an initial RAM disk mounts those of the other kernel over them.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from tools.env.debian import cache_dir, locked, unpacked
from tools.env.images import static_busybox
from tools.env.process import run
from tools.lab.kernel import APPLETS, cpio

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
