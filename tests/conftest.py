"""What holds for all tests."""

from __future__ import annotations

from tests.garbage import set_aside


def pytest_collection_finish() -> None:
    """Keep collections during tests short."""
    set_aside()
