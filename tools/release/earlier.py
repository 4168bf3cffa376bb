"""The agent of the last release, or of any commit, unpacked beside the checkout.

Its dependencies come from the environment that runs it: the directory goes first into PYTHONPATH.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from tools.release.command import ReleaseError, run
from tools.release.sources import CHECKOUT, export

HEADING = "^## \\[[0-9]"
"""Heading of a release in CHANGELOG.md; the commit that adds one is the release."""


def release_commit() -> str:
    """The commit of the last release; empty: the checkout has no history that contains it."""
    command = ("git", "log", "--format=%H %P", "--max-count=1", "-G", HEADING, "--", "CHANGELOG.md")
    try:
        commit, _, parents = run(*command, cwd=CHECKOUT).strip().partition(" ")
    except ReleaseError:
        return ""
    return commit if parents else ""  # a shallow history begins with a commit that adds everything


def unpack_agent(commit: str, into: Path) -> Path:
    """Build the wheel of a commit, or of the checkout itself (""), and unpack it.

    Returns the directory for PYTHONPATH. Raises ReleaseError.
    """
    source = CHECKOUT
    if commit:
        source = into / "source"
        export(commit, source)
    out, site = into / "dist", into / "site"
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, cwd=source)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    return site
