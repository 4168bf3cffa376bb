"""Certificates shared by all tests of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.server import Pki


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Made once, as keys take a while to generate."""
    directory: Path = tmp_path_factory.mktemp("pki")
    return Pki(directory)
