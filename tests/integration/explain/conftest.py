"""The fixtures of whole nodes."""

from __future__ import annotations

from tests.integration.node.conftest import make_node

__all__ = ["make_node"]
