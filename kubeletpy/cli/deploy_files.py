"""``kubeletpy deploy-files``: writes the files of ``deploy/`` that this version comes with.

They are systemd units, configurations of containerd and of the kubelet, RBAC, alert rules and
dashboards. An installed package has them inside; a checkout has them beside the package.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

PROGRAM = "/opt/kubeletpy/.venv/bin/kubeletpy"
"""Program that the units in ``deploy/`` start."""


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 1 when nothing, or not all, was written."""
    parsed = parser().parse_args(arguments)
    texts = {name: text.replace(PROGRAM, parsed.program) for name, text in deploy_files().items()}
    directory: Path = parsed.directory
    if not parsed.force and (present := [name for name in texts if (directory / name).exists()]):
        more = f" and {len(present) - 1} more" if len(present) > 1 else ""
        return _fail(f"{directory / present[0]}{more} exists; --force overwrites, nothing written")
    for name, text in texts.items():
        path = directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except OSError as error:
            return _fail(f"{path} cannot be written: {error.strerror or error}")
    print(f"{len(texts)} files written to {directory}; the units start {parsed.program}")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy deploy-files",
        description="Write systemd units, configurations of containerd and the kubelet, RBAC, "
        "alert rules and dashboards of this version into a directory.",
    )
    made.add_argument("directory", metavar="DIR", type=Path, help="made if it does not exist")
    made.add_argument("--force", action="store_true", help="overwrite files that exist")
    made.add_argument(
        "--program", metavar="PATH", default=PROGRAM, help=f"what the units start ({PROGRAM})"
    )
    return made


def deploy_files() -> dict[str, str]:
    """Path below ``deploy/`` -> content, in the order of the paths."""
    return dict(sorted(_texts(deploy_folder())))


def deploy_folder() -> Traversable:
    """The folder with the files: of the installed package, else of the checkout."""
    package = resources.files("kubeletpy")
    installed = package / "deploy"
    if installed.is_dir() or not isinstance(package, Path):
        return installed
    return package.parent / "deploy"


def _texts(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    for each in folder.iterdir():
        if each.name == "__pycache__":  # pip compiles the program of guests/
            continue
        if each.is_dir():
            yield from _texts(each, f"{prefix}{each.name}/")
        else:
            yield prefix + each.name, each.read_text(encoding="utf-8")


def _fail(message: str) -> int:
    print(f"kubeletpy deploy-files: {message}", file=sys.stderr)
    return 1
