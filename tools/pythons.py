"""Run tests under other versions of Python: ``python -m tools.pythons 3.13 3.14``.

Each version is the Python of a release of Debian (``tools.lab.recipe.SUITES``). Its root file
system comes from mmdebstrap, the packages from PyPI; both are made once and
kept in the cache of downloads. The tests run in a mount namespace of their own, with this checkout
at /checkout. It needs root and ``apt-get install mmdebstrap``. Arguments but versions go to
pytest (``tests/unit`` when there are none): ``python -m tools.pythons 3.14 tests/sim -k seed``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tools.env.debian import cache_dir, locked
from tools.env.process import CommandError, run
from tools.lab.image import apt_options
from tools.lab.recipe import SUITES, Recipe, bootstrap_command
from tools.lock import up_requirements

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = (
    *("python3", "python3-venv", "ca-certificates", "openssl", "git", "util-linux", "mount"),
    *("iproute2", "iptables", "procps", "kmod", "e2fsprogs", "prometheus"),
)
"""Debian packages of programs that the tests start."""
_VERSION = re.compile(r"\d+\.\d+")
_SECONDS = 1800
_ENTER = """\
root="$1"; shift
for each in proc sys dev; do mount --rbind "/$each" "$root/$each"; done
for each in etc/resolv.conf etc/hosts etc/ssl/certs/ca-certificates.crt; do
    [ -e "$root/$each" ] || : >"$root/$each"
    mount --bind "/$each" "$root/$each"
done
mkdir -p "$root/checkout"
mount --bind "$PWD" "$root/checkout"
export PATH=/opt/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONPATH=/checkout:/checkout/up
exec chroot "$root" env --chdir=/checkout "$@"
"""


def divide(parts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Versions of Python, and what is passed to pytest.

    >>> divide(["3.13", "3.14", "-x"])
    (['3.13', '3.14'], ['-x', 'tests/unit'])
    """
    versions = [word for word in parts if _VERSION.fullmatch(word)]
    rest = [word for word in parts if word not in versions]
    if not any(word.startswith("tests") for word in rest):
        rest.append("tests/unit")
    return versions or list(SUITES.values()), rest


def requirements() -> list[str]:
    """Packages that the tests import: all but those of the section fuzz."""
    tables = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    extras = tables["project"]["optional-dependencies"]
    found = [*tables["project"]["dependencies"], *tables["build-system"]["requires"]]
    found += [each for name in ("tracing", "test", "docs", "dev") for each in extras[name]]
    found += up_requirements()
    return [each for each in found if not each.startswith("kubeletpy")]


def enter_command(root: Path, *command: str) -> list[str]:
    """Run a command in a root file system, with this checkout as its directory."""
    unshare = ("unshare", "--mount", "--propagation", "private", "bash", "-ec", _ENTER, "enter")
    return [*unshare, str(root), *command]


def environment(suite: str) -> Path:
    """The root file system of a suite with the packages, made unless it is there.

    Raises CommandError.
    """
    recipe = Recipe(suite=suite, packages=PACKAGES, requirements=requirements())
    home = cache_dir() / "pythons"
    home.mkdir(exist_ok=True)
    root = home / f"{suite}-{recipe.digest}"
    with locked(home / ".lock"):
        if not root.exists():
            fresh = home / ".fresh"
            shutil.rmtree(fresh, ignore_errors=True)
            run(*bootstrap_command(recipe, str(fresh), apt_options()), timeout=_SECONDS)
            for command in (
                ("python3", "-m", "venv", "/opt/venv"),
                ("pip", "install", *recipe.requirements),
            ):
                run(*enter_command(fresh, *command), cwd=CHECKOUT, timeout=_SECONDS)
            fresh.rename(root)
    return root


def main() -> int:
    """Run the tests under each version; the exit code is 0 if all of them pass."""
    versions, arguments = divide(sys.argv[1:])
    suites = {version: suite for suite, version in SUITES.items()}
    unknown = [version for version in versions if version not in suites]
    if unknown:
        print(f"pythons: no release of Debian has {' '.join(unknown)}: {' '.join(suites)}")
        return 2
    failed = []
    for version in versions:
        try:
            root = environment(suites[version])
        except CommandError as error:
            print(f"pythons: {error}", file=sys.stderr)
            return 1
        pytest = ("python", "-m", "pytest", "-p", "tools.env.no_skips", *arguments)
        print(f"=== Python {version}: {' '.join(pytest)} ===", flush=True)
        if subprocess.run(enter_command(root, *pytest), cwd=CHECKOUT, check=False).returncode:
            failed.append(version)
    print(f"failed: {' '.join(failed)}" if failed else f"passed: {' '.join(versions)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
