"""Data files that pyproject.toml cannot name.

``deploy/`` is at the top of the repository and goes into the package; ``share/``, which only a
release has (``tools/release/shell_files.py``), goes below the environment's ``share``.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
DEPLOY = HERE / "deploy"
SHARE = [path.relative_to(HERE) for path in (HERE / "share").rglob("*") if path.is_file()]

setup(
    packages=[
        *find_packages(include=["kubeletpy", "kubeletpy.*"]),
        "kubeletpy.deploy",  # without modules: only kubeletpy/cli/deploy_files.py reads it
        "kubeletpy.deploy.dashboards",
        "kubeletpy.deploy.guests",
    ],
    package_dir={"kubeletpy.deploy": "deploy"},
    package_data={
        "kubeletpy.deploy": [
            path.relative_to(DEPLOY).as_posix() for path in DEPLOY.rglob("*") if path.is_file()
        ]
    },
    data_files=[(path.parent.as_posix(), [path.as_posix()]) for path in sorted(SHARE)],
)
