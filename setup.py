"""Maps deploy/, which the repository keeps at its top, into the package; pyproject.toml cannot."""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

DEPLOY = Path(__file__).resolve().parent / "deploy"

setup(
    packages=[
        *find_packages(include=["kubeletpy", "kubeletpy.*"]),
        "kubeletpy.deploy",  # without modules: only kubeletpy/cli/deploy_files.py reads it
        "kubeletpy.deploy.dashboards",
    ],
    package_dir={"kubeletpy.deploy": "deploy"},
    package_data={
        "kubeletpy.deploy": [
            path.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("*") if path.is_file()
        ]
    },
)
