"""The images of nodes of ``./up.sh`` and of tests, with the busybox of this machine or Debian's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kubeletpy.agent.rootless.images import (
    BUSYBOX,
    PAUSE,
    Image,
    busybox_system,
    is_static,
    pause_system,
    write_archive,
)
from tools.env.debian import release, unpacked
from tools.env.process import run

__all__ = [
    "BUSYBOX",
    "PAUSE",
    "Image",
    "busybox_image",
    "pause_image",
    "static_busybox",
    "write_archive",
]


def pause_image(name: str = PAUSE) -> Image:
    """The image of sandboxes, on any machine."""
    return pause_system(name, static_busybox)


def busybox_image(name: str = BUSYBOX, extra: Mapping[str, bytes] | None = None) -> Image:
    """A small system with a shell. ``extra`` adds files (a different digest)."""
    program = static_busybox()
    return busybox_system(program, run(program, "--list").split(), name, extra)


def static_busybox() -> Path:
    """A static busybox: the installed one, or else Debian's, fetched beside the system."""
    installed = Path("/bin/busybox")
    if installed.exists() and is_static(installed):
        return installed
    return unpacked("busybox-static", release()) / "bin" / "busybox"
