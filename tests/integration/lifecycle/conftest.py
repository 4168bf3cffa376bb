"""Nodes for the tests of pods' lives and deaths: the same as those of the node tests."""

from __future__ import annotations

from tests.integration.node.conftest import make_node, namespace, node, node2, node16  # noqa: F401  (fixtures)
