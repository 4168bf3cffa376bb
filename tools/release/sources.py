"""The commit's files, and the source distributions and wheels that are built from them."""

from __future__ import annotations

import gzip
import io
import runpy
import sys
import tarfile
from pathlib import Path

from tools.release.command import run

CHECKOUT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = (".", "up")
"""Folders with a pyproject.toml."""


def commit_time(commit: str) -> int:
    """Seconds since 1970 at which a commit was made: the time of all files of its release."""
    return int(run("git", "log", "-1", "--format=%ct", commit, cwd=CHECKOUT))


def export(commit: str, directory: Path) -> None:
    """Write the files of a commit, and nothing that is only in the checkout."""
    archive = directory.with_suffix(".tar")
    command = ("git", "-c", "tar.umask=022", "archive", "--output", archive, commit)
    run(*command, cwd=CHECKOUT)
    directory.mkdir(parents=True, exist_ok=True)
    run("tar", "--extract", "--file", archive, "--directory", directory, cwd=CHECKOUT)
    archive.unlink()


def version(source: Path) -> str:
    """The version of exported files."""
    return str(runpy.run_path(str(source / "kubeletpy" / "base" / "version.py"))["VERSION"])


def build_distributions(source: Path, out: Path, epoch: int) -> None:
    """Build the source distributions, with completions and manual pages, and the wheels from them.

    setuptools gives wheels the time of SOURCE_DATE_EPOCH, but not source distributions.
    """
    shell_files = (sys.executable, "-m", "tools.release.shell_files", source / "share")
    run(*shell_files, cwd=source, env={"SOURCE_DATE_EPOCH": str(epoch)})
    for folder in DISTRIBUTIONS:
        command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", out, folder)
        run(*command, cwd=source, env={"SOURCE_DATE_EPOCH": str(epoch)})
    for path in out.glob("*.tar.gz"):
        path.write_bytes(normalized(path.read_bytes(), epoch))


def normalized(archive: bytes, epoch: int) -> bytes:
    """A .tar.gz with the same files in the order of their names, of root, at one time."""
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        gzip.GzipFile(fileobj=made, mode="wb", filename="", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            content = old.extractfile(member) if member.isfile() else None
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mtime, member.pax_headers = epoch, {}
            new.addfile(member, content)
    return made.getvalue()
