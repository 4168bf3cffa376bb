"""Current OCI runtimes beside the installed one, with the C library that they were built for.

Debian 12's runc lacks mounts with mapped ids, which pods with user namespaces need. Its crun lacks
the specifications of containerd 2.x.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tools.env.debian import cache_dir, locked, unpacked
from tools.env.process import run

_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def current_runc() -> Path:
    """Debian testing's runc, fetched once. Raises CommandError if the archive is unreachable."""
    return _patched("runc", "testing", "sbin", ["libseccomp2"])


def current_crun() -> Path:
    """Debian 13's crun, fetched once. Raises CommandError if the archive is unreachable."""
    return _patched("crun", "trixie", "bin", ["libseccomp2", "libsystemd0", "libcap2", "libyajl2"])


def _patched(name: str, suite: str, folder: str, libraries: Sequence[str]) -> Path:
    home = cache_dir() / name
    home.mkdir(exist_ok=True)
    program = home / name
    with locked(home / ".lock"):
        if not program.exists():
            fresh = home / f".{name}"
            shutil.copy2(unpacked(name, suite) / "usr" / folder / name, fresh)
            folders = [unpacked("libc6", "testing") / _LIBRARIES]
            folders += [unpacked(each, suite) / _LIBRARIES for each in libraries]
            run(
                unpacked("patchelf", "bookworm") / "usr/bin/patchelf",
                *("--set-interpreter", folders[0] / "ld-linux-x86-64.so.2"),
                *("--force-rpath", "--set-rpath", os.pathsep.join(map(str, folders))),
                fresh,
            )
            fresh.rename(program)
    return program
