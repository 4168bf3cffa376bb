"""The agent with all its dependencies: an environment, and the zipapp and the SBOM made from it.

Extension modules (grpcio, cryptography and others) make it specific to a Python and a platform.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
import sysconfig
from pathlib import Path

from tools.release.command import run

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}-linux_{platform.machine()}"
"""Python and platform that a bundle is for, in file names."""
_GLIBC = re.compile(r"^Tag: \S*manylinux_2_(\d+)_", re.MULTILINE)
_OF_THE_INSTALLER = ("REQUESTED", "direct_url.json", "uv_cache.json")


def requirements(wheels: list[Path]) -> str:
    """Our wheels, by version and hash, as a requirements file."""
    lines = []
    for path in sorted(wheels):
        name, number = path.name.split("-")[:2]
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{name}=={number} --hash=sha256:{digest}\n")
    return "".join(lines)


def install(wheels: list[Path], lock: Path, environment: Path) -> Path:
    """Make a virtual environment of wheels and pinned dependencies; returns its packages' folder.

    Every file is checked against the hashes of the lock.
    """
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=Path("/"))
    desired = environment / "requirements.txt"
    desired.write_text(requirements(wheels))
    run(
        *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--require-hashes"),
        *("--only-binary", ":all:", "--link-mode", "copy", "--find-links", wheels[0].parent),
        *("--python", environment / "bin" / "python"),
        *("--constraints", lock, "--requirements", desired),
        cwd=environment,
    )
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(environment)}))
    forget_installation(packages)
    return packages


def forget_installation(packages: Path) -> None:
    """Remove what depends on the environment's path: records of scripts and of the installer."""
    for info in packages.glob("*.dist-info"):
        for name in _OF_THE_INSTALLER:
            (info / name).unlink(missing_ok=True)
        record = info / "RECORD"
        lines = record.read_text().splitlines(keepends=True)
        kept = [
            line
            for line in lines
            if not line.startswith("../")
            and line.split(",")[0].rpartition("/")[2] not in _OF_THE_INSTALLER
        ]
        record.write_text("".join(kept))


def oldest_glibc(packages: Path) -> str:
    """Oldest version of glibc that all extension modules accept."""
    tags = (path.read_text() for path in packages.glob("*.dist-info/WHEEL"))
    needed = [min(found) for text in tags if (found := [int(n) for n in _GLIBC.findall(text)])]
    return f"2.{max(needed, default=17)}"


def write_zipapp(packages: Path, target: Path, epoch: int) -> None:
    """Write one executable file; it unpacks itself into ``~/.shiv`` at its first start."""
    run(
        *(sys.executable, "-m", "shiv.cli", "--site-packages", packages, "--reproducible"),
        *("--compressed", "--console-script", "kubeletpy", "--output-file", target),
        *("--python", f"/usr/bin/env python{PYTHON}"),
        cwd=target.parent,
        env={"SOURCE_DATE_EPOCH": str(epoch), "TZ": "UTC"},
    )


def write_sbom(environment: Path, pyproject: Path, target: Path, epoch: int) -> None:
    """Write the components of the environment with their licenses as CycloneDX JSON."""
    run(
        *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"),
        *("--pyproject", pyproject, "--output-file", target, environment),
        cwd=target.parent,
        env={"SOURCE_DATE_EPOCH": str(epoch)},
    )
