"""Builds images of virtual nodes. Each is built once and kept in the cache of downloads."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

from tools.env.debian import cache_dir, locked
from tools.env.process import CommandError, run
from tools.lab.recipe import (
    AMD64,
    SUITES,
    Recipe,
    bootstrap_command,
    disk_command,
    install_command,
    unit_of,
)

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = Path("/usr/lib/uml/modules")
UNIT_PATH = "/etc/systemd/system/lab.service"
_SECONDS = 1800
_NEEDED = {"mmdebstrap": "mmdebstrap", "linux.uml": "user-mode-linux", "mke2fs": "e2fsprogs"}


def default_recipe(suite: str = "bookworm", architecture: str = AMD64) -> Recipe:
    """A release of Debian (see SUITES) with the dependencies of the checkout."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    kernels = sorted(path.name for path in MODULES.glob("*")) if architecture == AMD64 else []
    return Recipe(
        suite=suite,
        python=SUITES[suite],
        kernel=kernels[-1] if kernels else "",
        architecture=architecture,
        requirements=tuple(project["dependencies"]),
        files={
            "/etc/hostname": "node\n",
            "/etc/fstab": "",
            "/opt/lab/guest.py": (CHECKOUT / "tools/lab/guest.py").read_text(),
            UNIT_PATH: unit_of(architecture),
        },
    )


def build(recipe: Recipe) -> Path:
    """The disk image of a recipe, built unless it is there. Raises CommandError."""
    missing = [package for name, package in _NEEDED.items() if shutil.which(name) is None]
    if missing:
        raise CommandError(f"the laboratory needs more: apt-get install {' '.join(missing)}")
    home = cache_dir() / "lab"
    disk = home / f"{recipe.suite}-{recipe.architecture}-{recipe.digest}.img"
    if disk.exists():  # while another is built
        return disk
    home.mkdir(exist_ok=True)
    with locked(home / ".lock"):
        if not disk.exists():
            root, fresh = home / ".root", home / ".fresh.img"
            shutil.rmtree(root, ignore_errors=True)
            fresh.unlink(missing_ok=True)
            _fill(recipe, root)
            run(*disk_command(recipe, str(root), str(fresh)), timeout=_SECONDS)
            shutil.rmtree(root)
            fresh.rename(disk)
    return disk


def apt_options() -> list[str]:
    """The machine's settings of apt for the validity of archives."""
    reported = run("apt-config", "dump", "Acquire::Check-Valid-Until", "Acquire::Check-Date")
    return [line.removesuffix(";") for line in reported.splitlines()]


def _fill(recipe: Recipe, root: Path) -> None:
    run(*bootstrap_command(recipe, str(root), apt_options()), timeout=_SECONDS)
    if recipe.requirements:
        pip = (sys.executable, "-m", "pip")
        run(*install_command(recipe, str(root), pip), timeout=_SECONDS)
    if recipe.kernel:
        modules = MODULES / recipe.kernel
        shutil.copytree(modules, root / "lib/modules" / recipe.kernel, symlinks=True)
    for path, content in recipe.files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "lab.service").symlink_to(UNIT_PATH)
    run("chroot", root, "systemctl", "mask", *recipe.masked)
    for name, program in recipe.alternatives.items():
        run("chroot", root, "update-alternatives", "--set", name, program)
