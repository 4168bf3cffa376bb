"""A current runc beside the installed one: Debian testing's, with the C library it was built for.

Debian 12's runc lacks mounts with mapped ids, which pods with user namespaces need.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools.env.debian import cache_dir, locked, unpacked
from tools.env.process import run

_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def current_runc() -> Path:
    """The program, fetched once. Raises CommandError if the archive cannot be reached."""
    home = cache_dir() / "runc"
    home.mkdir(exist_ok=True)
    program = home / "runc"
    with locked(home / ".lock"):
        if not program.exists():
            fresh = home / ".runc"
            shutil.copy2(unpacked("runc", "testing") / "usr/sbin/runc", fresh)
            folders = [unpacked(name, "testing") / _LIBRARIES for name in ("libc6", "libseccomp2")]
            run(
                unpacked("patchelf", "bookworm") / "usr/bin/patchelf",
                *("--set-interpreter", folders[0] / "ld-linux-x86-64.so.2"),
                *("--set-rpath", os.pathsep.join(map(str, folders))),
                fresh,
            )
            fresh.rename(program)
    return program
