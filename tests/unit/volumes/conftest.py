"""Fixtures for the tests of volumes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def strict_umask() -> Iterator[None]:
    """A umask that removes all permissions of group and others."""
    before = os.umask(0o077)
    yield
    os.umask(before)
