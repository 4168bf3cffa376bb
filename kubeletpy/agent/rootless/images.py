"""The container images of a node without a registry, made on the spot.

The pause image is for sandboxes, the busybox image has a shell, all applets, users and a /tmp. Same
input, same digest. The names are our own, so that they never stand in for anybody's real image.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kubeletpy.base.host.machine import architecture
from kubeletpy.base.structs import Struct

PAUSE = "kubeletpy.local/pause:1"
BUSYBOX = "kubeletpy.local/busybox:1"

_OCI = "application/vnd.oci.image"
_SHELL = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}


class Image(Struct, frozen=True):
    """One image: its name, files (path -> (mode, content)), links, folders and runtime config."""

    name: str
    files: Mapping[str, tuple[int, bytes]]
    links: Mapping[str, str] = {}
    folders: Mapping[str, int] = {}
    config: Mapping[str, Any] = {}


def pause_system(name: str, busybox: Callable[[], Path]) -> Image:
    """The image of sandboxes; where there is no pause program, ``busybox`` returns a static one."""
    program = pause_program(os.uname().machine)
    if program is not None:
        return Image(name, {"pause": (0o755, program)}, config={"Entrypoint": ["/pause"]})
    endless = ["/busybox", "tail", "-f", "/dev/null"]
    return Image(name, {"busybox": (0o755, busybox().read_bytes())}, config={"Entrypoint": endless})


def busybox_system(
    program: Path, applets: Sequence[str], name: str, extra: Mapping[str, bytes] | None = None
) -> Image:
    """A small system: sh and all applets of a static busybox; ``extra`` adds files."""
    files = {
        "bin/busybox": (0o755, program.read_bytes()),
        "etc/passwd": (
            0o644,
            b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
        ),
        "etc/group": (0o644, b"root:x:0:\nnogroup:x:65534:\n"),
    }
    files.update({path: (0o644, content) for path, content in (extra or {}).items()})
    return Image(
        name,
        files,
        links={f"bin/{applet}": "busybox" for applet in applets if applet != "busybox"},
        folders={"tmp": 0o1777, "root": 0o700, "var": 0o755, "etc": 0o755, "bin": 0o755},
        config={**_SHELL, "Cmd": ["sh"]},
    )


def is_static(program: Path) -> bool:
    """Whether a 64-bit little-endian ELF file names no interpreter."""
    with program.open("rb") as file:
        start = file.read(4096)
    offset, size, count = (
        *struct.unpack_from("<Q", start, 32),
        *struct.unpack_from("<HH", start, 54),
    )
    types = [struct.unpack_from("<I", start, offset + size * index)[0] for index in range(count)]
    return 3 not in types


def write_archive(path: Path, *images: Image) -> Path:
    """Write the images as one OCI archive that `ctr images import` and skopeo read."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}

    manifests = []
    platform = {"architecture": architecture(), "os": "linux"}
    for image in images:
        layer = _layer(image)
        config = {
            **platform,
            "config": dict(image.config),
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
            },
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": blob(_json(config), f"{_OCI}.config.v1+json"),
            "layers": [blob(layer, f"{_OCI}.layer.v1.tar")],
        }
        names = {
            "io.containerd.image.name": image.name,
            "org.opencontainers.image.ref.name": image.name,
        }
        manifests.append(
            blob(_json(manifest), f"{_OCI}.manifest.v1+json", platform=platform, annotations=names)
        )
    index = {"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": manifests}
    with tarfile.open(path, "w") as archive:
        _add(archive, "oci-layout", 0o644, _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", 0o644, _json(index))
        for digest, content in blobs.items():
            _add(archive, f"blobs/sha256/{digest}", 0o644, content)
    return path


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _layer(image: Image) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name, mode in image.folders.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            layer.addfile(entry)
        for name, (mode, content) in image.files.items():
            _add(layer, name, mode, content)
        for name, target in image.links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            layer.addfile(entry)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, mode: int, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.size = mode, len(content)
    archive.addfile(entry, io.BytesIO(content))


# The pause program as bytes: a static ELF file of a few hundred bytes, so no compiler is needed.
#
# It blocks SIGINT, SIGTERM and SIGCHLD, then waits for them with rt_sigtimedwait. SIGINT and
# SIGTERM end it with exit code 0. Otherwise it reaps child processes: with a shared process
# namespace it is the init process. Works as process 1, where a signal without a handler is
# otherwise ignored.

_BASE = 0x400000
_HEADERS = 64 + 56

_X86_64 = bytes.fromhex(
    "6802400100"  # push the signal set {2, 15, 17}
    "b80e000000 31ff 4889e6 31d2 41ba08000000 0f05"  # rt_sigprocmask(SIG_BLOCK, set, NULL, 8)
    "b880000000 4889e7 31f6 31d2 41ba08000000 0f05"  # wait: rt_sigtimedwait(set, NULL, NULL, 8)
    "83f802 741f 83f80f 741a"  # SIGINT or SIGTERM: to exit
    "b83d000000 83cfff 31f6 ba01000000 4531d2 0f05"  # reap: wait4(-1, NULL, WNOHANG, NULL)
    "85c0 7fe8 ebc8"  # again while there are children; then to wait
    "b8e7000000 31ff 0f05"  # exit: exit_group(0)
)

_AARCH64 = struct.pack(
    "<32I",
    *(0xD10043FF, 0xD2880040, 0xF2A00020, 0xF90003E0),  # the signal set on the stack
    *(0xD2800000, 0x910003E1, 0xD2800002, 0xD2800103, 0xD28010E8, 0xD4000001),  # rt_sigprocmask
    *(0x910003E0, 0xD2800001, 0xD2800002, 0xD2800103, 0xD2801128, 0xD4000001),  # rt_sigtimedwait
    *(0x7100081F, 0x54000180, 0x71003C1F, 0x54000140),  # SIGINT or SIGTERM: to exit
    *(0x92800000, 0xD2800001, 0xD2800022, 0xD2800003, 0xD2802088, 0xD4000001),  # wait4
    *(0x7100001F, 0x54FFFF2C, 0x17FFFFEE),  # again while there are children; then to wait
    *(0xD2800000, 0xD2800BC8, 0xD4000001),  # exit_group(0)
)

_MACHINES = {"x86_64": (62, _X86_64), "aarch64": (183, _AARCH64)}


def pause_program(machine: str) -> bytes | None:
    """The ELF file for `machine` (as `uname -m` names it); None when there is no code for it."""
    if machine not in _MACHINES:
        return None
    number, code = _MACHINES[machine]
    size = _HEADERS + len(code)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    entry = _BASE + _HEADERS
    header = struct.pack("<HHIQQQIHHHHHH", 2, number, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return ident + header + segment + code
