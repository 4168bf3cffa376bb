"""References that a static pod may not have."""

from __future__ import annotations

from kubeletpy.syncloop.sources.references import forbidden_reference


def test_what_is_no_object_references_nothing() -> None:
    spec = {"containers": ["c"], "volumes": [7, {"projected": {"sources": [None]}}]}
    assert forbidden_reference(spec) == ""
