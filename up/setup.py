"""Build settings that pyproject.toml can't hold: the version, from ../kubeletpy/base/version.py."""

from __future__ import annotations

import runpy
import tempfile
from email.parser import HeaderParser
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
BUILD = tempfile.TemporaryDirectory(prefix="kubeletpy-up-build-")  # removed when the build ends


def version() -> str:
    """The version from the checkout; a source distribution has it in its metadata."""
    metadata = HERE / "PKG-INFO"
    if metadata.exists():
        return HeaderParser().parsestr(metadata.read_text())["Version"]
    return str(runpy.run_path(str(HERE.parent / "kubeletpy" / "base" / "version.py"))["VERSION"])


setup(
    version=version(),
    # in the checkout, where pip builds, a copy of the modules would be found by every tool
    options={"build": {"build_base": BUILD.name}},
    install_requires=[
        f"kubeletpy=={version()}",  # its lower packages: api, pods, clock, host and wire
        "aiohttp>=3.14.5",
        "cryptography>=45",
        "PyYAML>=6.0",
    ],
)
