"""The nodes of the tests of whole pods."""

from tests.integration.node.conftest import make_node, namespace, node, node2, node16

__all__ = ["make_node", "namespace", "node", "node2", "node16"]
