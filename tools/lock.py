"""Pin the packages that a checkout is installed with: ``python -m tools.lock``, then ``./test.sh``.

Writes ``requirements/``: ``run.txt`` for ``./up.sh``, ``dev.txt`` for ``./test.sh``,
``lowest.txt`` with the oldest versions that pyproject.toml allows and ``mutation.txt`` for the
sections of these names, and ``release.txt`` for ``python -m tools.release``. Each holds for every
Python and platform that pyproject.toml allows, with the hashes of all files.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / "requirements"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


@dataclass(frozen=True)
class Lock:
    """One file of pins."""

    name: str
    extras: tuple[str, ...]
    """Extras of pyproject.toml that it covers."""
    lowest: bool = False
    """Direct requirements at their lower bounds."""
    beside: str = ""
    """Lock whose versions it repeats."""


LOCKS = (
    Lock("dev", ("dev",)),
    Lock("run", (), beside="dev"),
    Lock("lowest", ("test",), lowest=True),
    Lock("mutation", ("mutation",), beside="dev"),
    Lock("release", ("release",), beside="dev"),
)


def path(name: str) -> Path:
    """The file of a lock."""
    return FOLDER / f"{name}.txt"


def pins(text: str) -> dict[str, set[str]]:
    """Package -> its versions in a lock: several where they depend on the Python.

    >>> pins("h2==4.2.0 \\\\\\n    --hash=sha256:0\\n")
    {'h2': {'4.2.0'}}
    """
    found: dict[str, set[str]] = {}
    for name, version in _PIN.findall(text):
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


def constraints(text: str) -> str:
    """The pins of a lock without hashes, for an installation that also has files of its own."""
    lines = (line.removesuffix(" \\") for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line[:1].isalnum())


def build_requirements() -> list[str]:
    """Requirements of the build, and of the embedded API's distribution."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    return [*project["build-system"]["requires"], *up_requirements()]


def up_requirements() -> list[str]:
    """Requirements of the embedded API beside kubeletpy, from up/setup.py."""
    return re.findall(r'^ +"(\w+>=[\d.]+)",', (CHECKOUT / "up/setup.py").read_text(), re.MULTILINE)


def compile_lock(lock: Lock, upgrade: bool) -> None:
    """Write a lock. Raises CalledProcessError: uv's own message is on standard error."""
    command = [
        *(sys.executable, "-m", "uv", "pip", "compile", "--quiet"),
        *("--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate"),
        *("--custom-compile-command", "python -m tools.lock"),
        *("--resolution", "lowest-direct" if lock.lowest else "highest"),
        *(("--upgrade",) if upgrade else ()),
        *(word for extra in lock.extras for word in ("--extra", extra)),
        *(("--constraint", str(path(lock.beside))) if lock.beside else ()),
        *("--output-file", str(path(lock.name)), "pyproject.toml"),
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".in") as more:
        more.write("\n".join(build_requirements()))
        more.flush()
        subprocess.run([*command, more.name], cwd=CHECKOUT, check=True)


def main() -> int:
    """Write all locks with the newest versions; those that are pinned stay with ``--keep``."""
    parser = argparse.ArgumentParser(prog="python -m tools.lock", description=__doc__)
    parser.add_argument(
        "--keep", action="store_true", help="keep pinned versions that still fit pyproject.toml"
    )
    supplied = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    for lock in LOCKS:
        try:
            compile_lock(lock, not supplied.keep)
        except subprocess.CalledProcessError as error:
            print(f"lock: {path(lock.name)} was not written: uv exited with {error.returncode}")
            return 1
        written = pins(path(lock.name).read_text())
        print(f"{path(lock.name).relative_to(CHECKOUT)}: {len(written)} packages")
    print("run ./test.sh, then commit the folder")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
