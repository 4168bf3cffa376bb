"""Debian's kernel for QEMU: program, modules and an initial RAM disk, cached beside the images.

The disk images are those of user-mode Linux. The RAM disk loads the modules that reach the disk,
and mounts the kernel's other modules from this machine, so that no image contains them.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.env.debian import cache_dir, locked, unpacked
from tools.env.process import CommandError, run
from tools.lab.recipe import AMD64, ARM64

PACKAGES = {AMD64: "linux-image-amd64", ARM64: "linux-image-arm64"}
"""Debian's cloud kernels have no 9p, by which a node sees directories of this machine."""
MODULES_TAG = "modules"
"""The 9p share with the kernel's modules."""
NEEDED = ("virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "9pnet_virtio", "9p")
"""Modules that the RAM disk loads with those they depend on. Some kernels have them built in."""
_INIT = (
    "#!/bin/busybox sh",
    "export PATH=/bin",
    "mount -t devtmpfs none /dev",
    "mount -t proc none /proc",
    'for module in /modules/*.ko; do insmod "$module"; done',
    "until [ -b /dev/vda ]; do sleep 0.1; done",
    "mount -t ext4 /dev/vda /root",
    "directory=/root/lib/modules/$(uname -r)",
    'mkdir -p "$directory"',
    f'mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose {MODULES_TAG} "$directory"',
    "umount /proc",
    "exec switch_root /root /sbin/init",
)
INIT = "".join(f"{line}\n" for line in _INIT)
"""The first program, a shell script."""
APPLETS = ("sh", "mount", "umount", "insmod", "sleep", "mkdir", "uname", "switch_root")
"""Commands of busybox in a RAM disk."""
_PARTS = ("base", "binary", "modules")
_DEPMOD_S = 600.0


@dataclass(frozen=True)
class Kernel:
    """The files of a kernel on this machine; ``modules`` is its directory of modules."""

    program: Path
    initrd: Path
    modules: Path


def debian_kernel(suite: str, architecture: str = AMD64) -> Kernel:
    """The kernel of a suite, fetched and prepared once. Raises CommandError."""
    if shutil.which("depmod") is None:
        raise CommandError("the laboratory needs more: apt-get install kmod")
    version, parts = _packages(suite, architecture)
    roots = [unpacked(part, suite, architecture=architecture) for part in parts]
    (program,) = (path for root in roots for path in root.glob("**/vmlinuz*"))
    home = cache_dir() / "lab" / f"linux-image-{version}"
    modules = home / "lib/modules" / version
    initrd = home / f"initrd-{hashlib.sha256(repr((INIT, NEEDED)).encode()).hexdigest()[:16]}"
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        if not (modules / "modules.dep.bin").exists():
            shutil.rmtree(home / "lib", ignore_errors=True)
            modules.mkdir(parents=True)
            for source in (
                each for root in roots for each in root.glob(f"**/lib/modules/{version}")
            ):
                run("cp", "--archive", "--link", f"{source}/.", modules)
            run("depmod", "--basedir", home, version, timeout=_DEPMOD_S)
        if not initrd.exists():
            fresh = home / ".fresh"
            busybox = unpacked("busybox-static", suite, architecture=architecture)
            (shell,) = busybox.glob("**/bin/busybox")  # from Debian 13 on below /usr
            fresh.write_bytes(_initrd(modules, shell))
            fresh.rename(initrd)
    return Kernel(program, initrd, modules)


def _packages(suite: str, architecture: str) -> tuple[str, Sequence[str]]:
    """The version of a suite's kernel, and the packages that have its files."""
    name = PACKAGES[architecture]
    while "." not in name:
        # Debian links the documentation of a package without files to that of the one it depends on
        root = unpacked(name, suite, architecture=architecture)
        (link,) = (root / "usr/share/doc").iterdir()
        name = link.readlink().name
    return kernel_packages(name)


def kernel_packages(name: str) -> tuple[str, Sequence[str]]:
    """The version of the kernel that a package belongs to, and the packages that have its files.

    ``"linux-image-6.1.0-50-amd64"`` has them all. From Linux 7 on there is a
    ``"linux-base-7.2.12+deb14-amd64"`` beside the packages of the program and of its modules.
    """
    _, kind, version = name.split("-", 2)
    return version, [name] if kind == "image" else [f"linux-{x}-{version}" for x in _PARTS]


def _initrd(modules: Path, program: Path) -> bytes:
    paths = load_order((modules / "modules.dep").read_text(), NEEDED)
    files: dict[str, tuple[int, bytes]] = {
        **dict.fromkeys(("bin", "dev", "modules", "proc", "root"), (0o040755, b"")),
        "init": (0o100755, INIT.encode()),
        "bin/busybox": (0o100755, program.read_bytes()),
        **{f"bin/{applet}": (0o120777, b"busybox") for applet in APPLETS},
    }
    for number, path in enumerate(paths):
        name = path.rpartition("/")[2].partition(".ko")[0]
        files[f"modules/{number:02}-{name}.ko"] = (0o100644, _read_module(modules / path))
    return gzip.compress(cpio(files), compresslevel=1, mtime=0)


def _read_module(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def load_order(dependencies: str, needed: Iterable[str]) -> Sequence[str]:
    """Paths of modules in the order to load them, from the text of modules.dep.

    Names that the file does not have are built into the kernel. For example
    ``"a/ext4.ko: a/jbd2.ko"`` and ``["ext4"]`` give ``["a/jbd2.ko", "a/ext4.ko"]``.
    """
    paths: dict[str, list[str]] = {}
    for line in dependencies.splitlines():
        path, _, others = line.partition(":")
        # modules.dep has the module that is to be loaded first at the end of the line
        paths[path.rpartition("/")[2].partition(".ko")[0]] = [*reversed(others.split()), path]
    desired = (path for name in needed for path in paths.get(name, ()))
    return list(dict.fromkeys(desired))


def cpio(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """An archive in the format newc, as the kernel reads it: path -> (mode with type, content)."""
    made = bytearray()
    for number, (path, (mode, content)) in enumerate([*files.items(), ("TRAILER!!!", (0, b""))]):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        made += b"070701" + b"".join(b"%08x" % field for field in fields) + name
        made += bytes(-len(made) % 4) + content
        made += bytes(-len(made) % 4)
    return bytes(made)
