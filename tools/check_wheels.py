"""Build both distributions, install the wheels in a clean environment, and run their contents.

python tools/check_wheels.py    # prints each fault; exits 1 if there is one

A wheel is built from its source distribution, so that a file missing in either is noticed here and
not by the user. An environment with only the wheels' dependencies reveals what the development
environment hides: an import of a development tool, data that exists only in the checkout.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
import zipfile
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kubeletpy.base.kubernetes_version import OLDEST  # noqa: E402
from kubeletpy.base.version import VERSION  # noqa: E402
from kubeletpy.cli.deploy_files import deploy_files  # noqa: E402 - from the checkout
from tools import lock  # noqa: E402
from tools.lab.recipe import SUITES  # noqa: E402

DISTRIBUTIONS = {"kubeletpy": ROOT, "kubeletpy_up": ROOT / "up"}
"""Package (a distribution is named after it) -> the folder of its pyproject.toml."""

OF_EXTRAS = {"tracing": "kubeletpy.metrics.trace.otlp", "pytest": "kubeletpy.cli.pytest_plugin"}
"""Extra -> the one module that needs it."""

IMPORT_ALL = """
import importlib, pkgutil, sys
name, *left_out = sys.argv[1:]
package = importlib.import_module(name)
assert sys.prefix in package.__file__, package.__file__
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not module.name.endswith("__main__") and module.name not in left_out:
        importlib.import_module(module.name)
"""
LIBRARY = """
from kubeletpy.agent.build import build
from kubeletpy.agent.context import Outside
from kubeletpy.kubeapi import protocol as api
from kubeletpy.remote import protocol as runtime
"""


PAGE = """
from kubeletpy.observe.view.server import page, policy
policy(page())
"""

_PYTHON = re.compile(r"Programming Language :: Python :: (\d+\.\d+)")


class Fault(Exception):
    """An error in a wheel."""


def run(*command: str | Path, code: int = 0) -> str:
    """Run a command outside the checkout; its output. Raises Fault for another exit code."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=tempfile.gettempdir(),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != code:
        reported = " ".join(map(str, command[:6]))
        raise Fault(
            f"`{reported}` exits with {done.returncode}, not {code}:\n{done.stdout[-4000:]}"
        )
    return done.stdout


def build(package: str, into: Path) -> Path:
    """Build the wheel of a distribution from its source distribution."""
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", into / package)
    run(*command, DISTRIBUTIONS[package])
    (wheel,) = (into / package).glob("*.whl")
    return wheel


def check_contents(package: str, wheel: Path) -> None:
    """Check that a wheel has exactly the files that the package has in the repository."""
    folder = DISTRIBUTIONS[package]
    listed = subprocess.run(
        ["git", "-C", folder, "ls-files", "-z", "--", package],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    desired = {name for name in listed.split("\0") if name and (folder / name).exists()}
    if package == "kubeletpy":
        desired |= {f"kubeletpy/deploy/{name}" for name in deploy_files()}
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        stated = HeaderParser().parsestr(opened.read(metadata).decode())
    apart = metadata.partition("/")[0] + "/"
    found = {name for name in names if not name.startswith(apart)}
    if missing := sorted(desired - found):
        raise Fault(f"{wheel.name} lacks {', '.join(missing)}")
    if more := sorted(found - desired):
        raise Fault(f"{wheel.name} has what the repository has not: {', '.join(more)}")
    if apart + "licenses/LICENSE" not in names or stated["License-Expression"] != "Apache-2.0":
        raise Fault(f"{wheel.name} does not carry its licence")
    if stated["Version"] != VERSION:
        raise Fault(f"{wheel.name} is of version {stated['Version']}, the sources of {VERSION}")
    check_metadata(wheel.name, stated)


def check_metadata(name: str, metadata: Message) -> None:
    """Check what an index shows of a wheel: who made it, what it is, which Pythons were tried."""
    for field in ("Author", "Keywords", "Summary", "Description-Content-Type"):
        if not metadata[field]:
            raise Fault(f"the metadata of {name} has no {field}")
    classifiers = metadata.get_all("Classifier", [])
    pythons = {found[1] for each in classifiers if (found := _PYTHON.fullmatch(each))}
    if pythons != set(SUITES.values()):
        tried = ", ".join(SUITES.values())
        raise Fault(f"{name} names Python {', '.join(sorted(pythons))}; tried are {tried}")


def check_installed(place: Path, wheels: dict[str, Path]) -> None:
    """Install the wheels one after the other, and use what is available then."""
    venv.create(place)
    python, kubeletpy = place / "bin" / "python", place / "bin" / "kubeletpy"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    pinned = place / "constraints.txt"
    pinned.write_text(lock.constraints(lock.path("dev").read_text()))
    install = (*pip, "install", "--quiet", "--no-compile", "--constraint", pinned)

    run(*install, wheels["kubeletpy"])
    expect(run(kubeletpy, "--version"), f"kubeletpy {VERSION} ")
    expect(run(kubeletpy.with_name("kubelet"), "--version"), f"Kubernetes {OLDEST.kubelet}")
    expect(run(kubeletpy, "run", "--help"), "--kubeconfig")
    run(kubeletpy, "deploy-files", place / "deploy")
    for name, text in deploy_files().items():
        expect((place / "deploy" / name).read_text(), text)
    expect(run(kubeletpy, "up", "--help"), "--state-dir")
    expect(run(kubeletpy, "up", code=1), "pip install ./up")
    run(python, "-I", "-c", LIBRARY)
    run(python, "-I", "-c", PAGE)
    run(python, "-I", "-c", IMPORT_ALL, "kubeletpy", *OF_EXTRAS.values())
    links = [f"--find-links={wheel.parent}" for wheel in wheels.values()]
    for extra, module in OF_EXTRAS.items():
        expect(run(python, "-I", "-c", f"import {module}", code=1), "ModuleNotFoundError")
        run(*install, *links, f"{wheels['kubeletpy']}[{extra}]")
        run(python, "-I", "-c", f"import {module}")

    run(*install, *links, "kubeletpy[up]")
    expect(run(kubeletpy, "up", "--help"), "--state-dir")
    run(python, "-I", "-c", IMPORT_ALL, "kubeletpy_up")
    run(*pip, "check")


def expect(printed: str, text: str) -> None:
    """Raises Fault if a text is missing."""
    if text not in printed:
        raise Fault(f"{text!r} is not in what was printed:\n{printed[-2000:]}")


def main() -> int:
    """Run all checks; returns the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="kubeletpy-wheels-") as name:
            place = Path(name)
            wheels = {package: build(package, place) for package in DISTRIBUTIONS}
            for package, wheel in wheels.items():
                check_contents(package, wheel)
            check_installed(place / "venv", wheels)
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1
    print(f"{', '.join(wheel.name for wheel in wheels.values())}: whole, installed, run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
