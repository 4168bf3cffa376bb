"""The releases of Kubernetes that control planes are built from, and how a user names one."""

from __future__ import annotations

import argparse
import re

RELEASES = ("1.35.4", "1.36.3", "1.37.2")
"""One patch release for each minor version that the agent serves, the newest last."""
NEWEST = RELEASES[-1]


def release(name: str) -> str:
    """The release that a user names: "v1.37.2" and "1.37.2" are the same, "1.37" is ours of 1.37.

    Raises argparse.ArgumentTypeError with the names that are possible.
    """
    number = name.removeprefix("v")
    if re.fullmatch(r"\d+\.\d+\.\d+(-[a-z]+\.\d+)?", number):
        return number
    for each in RELEASES:
        if each.rpartition(".")[0] == number:
            return each
    known = ", ".join(RELEASES)
    raise argparse.ArgumentTypeError(
        f"no release of Kubernetes is called {name!r}: vX.Y.Z, or a minor version of {known}"
    )
