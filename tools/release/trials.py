"""Tries the ways to install: runs the commands of docs/installing.md in the files of a commit.

Each way gets a new home directory and a new mount namespace. Writes to the system's folders go to a
tmpfs there, which is discarded at the end. Dependencies have the versions of requirements/run.txt.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

from tools import lock
from tools.release import bundle, sources
from tools.release.command import ReleaseError, run

SCRIPT = Path(__file__).with_name("trial.sh")
_BOTH = "kubectl-why --help"
WAYS = {
    "pip": _BOTH,
    "wheel": _BOTH,
    "pipx": _BOTH,
    "uv": _BOTH,
    "zipapp": 'ln -s "$(command -v kubeletpy)" kubelet; ./kubelet --version',
    "deb": _BOTH,
}
"""Row of the page -> what runs then beside `kubeletpy`. `./up.sh` and the image are not tried."""
_ROW = re.compile(r"^\| (\w+) \| (.*?) \|", re.MULTILINE)
_COMMAND = re.compile(r"`([^`]+)`")


def commands(page: str) -> dict[str, list[str]]:
    """Way to install -> its commands on the page, for this Python and machine.

    >>> commands("| deb | `apt-get install ./a.deb`, `kubeletpy --help` | a node |")
    {'deb': ['apt-get install ./a.deb', 'kubeletpy --help']}
    """
    here = page.replace("cp311-linux_x86_64", bundle.TAG).replace("cp311", bundle.TAG.split("-")[0])
    return {way: _COMMAND.findall(cell) for way, cell in _ROW.findall(here)}


def try_all(source: Path, out: Path, homes: Path) -> None:
    """Install in each way, and run what it installed; prints what each took.

    Args:
        source: files of the commit.
        out: the built files.
        homes: an empty directory, for a home directory of each way.

    Raises:
        ReleaseError: a command failed, or another version runs then.
    """
    if os.geteuid():
        raise ReleaseError("trying the ways to install mounts file systems: run it as root")
    number = sources.version(source)
    (source / "dist").symlink_to(out)
    pinned = homes / "constraints.txt"
    pinned.write_text(lock.constraints((source / "requirements" / "run.txt").read_text()))
    listed = commands((source / "docs" / "installing.md").read_text().replace("VERSION", number))
    for way, more in WAYS.items():
        home = homes / way
        programs = home / ".local" / "bin"
        without_pip = () if way in ("pip", "wheel") else ("--without-pip",)
        run(sys.executable, "-m", "venv", *without_pip, programs.parent, cwd=homes)
        for program in ("pipx", "uv"):
            (programs / program).symlink_to(Path(sys.executable).with_name(program))
        (programs / "systemctl").symlink_to("/bin/true")  # the package's scripts call it
        begin = time.monotonic()
        printed = run(
            *("unshare", "--mount", SCRIPT, "\n".join(listed[way]), more),
            cwd=source,
            env={
                "HOME": str(home),
                "XDG_CACHE_HOME": str(Path.home() / ".cache"),
                "XDG_CONFIG_HOME": str(Path.home() / ".config"),  # a mirror, perhaps
                "PATH": f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "PYTHONPATH": "",  # packages that pip would take for installed
                "PIP_CONSTRAINT": str(pinned),
                "UV_CONSTRAINT": str(pinned),
                "PIPX_DEFAULT_BACKEND": "pip",  # as where uv is absent
            },
        )
        if f"\nkubeletpy {number} (" not in printed:
            raise ReleaseError(f"{way} installs another version:\n{printed[-2000:]}")
        print(f"installed with {way}, {time.monotonic() - begin:.0f} s")
