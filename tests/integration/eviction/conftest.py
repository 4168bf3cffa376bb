"""The nodes of the tests of whole pods."""

from tests.integration.node.conftest import make_node

__all__ = ["make_node"]
