"""References that a static pod may not have."""

from __future__ import annotations

from kubeletpy.syncloop.sources.manifest import forbidden_reference


def test_malformed_entries_reference_nothing() -> None:
    spec = {"containers": ["c"], "volumes": [7, {"projected": {"sources": [None]}}]}
    assert forbidden_reference(spec) == ""
