"""A node with storage for the tests of a module, and a namespace of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.node.machine import Node
from tests.integration.storage.cluster import Storage
from tests.integration.storage.driver import DriverProcess


@pytest.fixture(scope="module")
def storage(node2: Node) -> Iterator[Storage]:
    """The node's storage."""
    made = Storage(node2)
    made.restart_agent()
    yield made
    made.close()


@pytest.fixture(scope="module")
def driver(storage: Storage) -> DriverProcess:
    """A driver that stages, shared by the tests of a module."""
    return storage.driver("test.csi.example.com")
