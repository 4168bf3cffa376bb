"""Settings for all tests."""

from __future__ import annotations

from kubeletpy.podworkers.state_machine import WorkerMachine
from tests.garbage import set_aside

WorkerMachine.validate = True


def pytest_collection_finish() -> None:
    """Keep collections during tests short."""
    set_aside()
