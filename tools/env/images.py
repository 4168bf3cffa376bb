"""Container images made on the spot, so that nothing here needs a registry.

Two images, in one OCI archive: a pause image for sandboxes and a busybox image with a shell, all
applets, users and a /tmp. Same input, same digest. The names are our own, so that they never stand
in for anybody's real image.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.env.debian import release, unpacked
from tools.env.pause import pause_program
from tools.env.process import run

PAUSE = "kubeletpy.local/pause:1"
BUSYBOX = "kubeletpy.local/busybox:1"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
_OCI = "application/vnd.oci.image"
_SHELL = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}


@dataclass(frozen=True)
class Image:
    """One image: its name, files (path -> (mode, content)), links, folders and runtime config."""

    name: str
    files: Mapping[str, tuple[int, bytes]]
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


def pause_image(name: str = PAUSE) -> Image:
    """The sandbox image, on any machine: where there is no pause program busybox does its work."""
    program = pause_program(os.uname().machine)
    if program is not None:
        return Image(name, {"pause": (0o755, program)}, config={"Entrypoint": ["/pause"]})
    endless = ["/busybox", "tail", "-f", "/dev/null"]
    return Image(
        name, {"busybox": (0o755, static_busybox().read_bytes())}, config={"Entrypoint": endless}
    )


def busybox_image(name: str = BUSYBOX, extra: Mapping[str, bytes] | None = None) -> Image:
    """A small system: sh and all of busybox's applets. `extra` adds files (a different digest)."""
    program = static_busybox()
    applets = run(program, "--list").split()
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


def write_archive(path: Path, *images: Image) -> Path:
    """Write the images as one OCI archive that `ctr images import` and skopeo read."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **more}

    manifests = []
    platform = {"architecture": _ARCHITECTURES.get(os.uname().machine, "amd64"), "os": "linux"}
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


def static_busybox() -> Path:
    """A static busybox: the installed one, or else Debian's, fetched beside the system."""
    installed = Path("/bin/busybox")
    if installed.exists() and _is_static(installed):
        return installed
    return unpacked("busybox-static", release()) / "bin" / "busybox"


def _is_static(program: Path) -> bool:
    """Whether a 64-bit little-endian ELF file names no interpreter."""
    with program.open("rb") as file:
        start = file.read(4096)
    offset, size, count = (
        *struct.unpack_from("<Q", start, 32),
        *struct.unpack_from("<HH", start, 54),
    )
    types = [struct.unpack_from("<I", start, offset + size * index)[0] for index in range(count)]
    return 3 not in types


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
