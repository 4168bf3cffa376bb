"""Priorities of static pods that cause a warning."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.resources import NODE_CRITICAL_CLASS
from kubeletpy.syncloop.sources.manifest import NODE_CRITICAL, forbidden_reference, priority_warning
from tests.kit.records import make_pod


@pytest.mark.parametrize(
    ("spec", "begins"),
    [
        ({}, ""),
        ({"priorityClassName": ""}, ""),
        ({"priorityClassName": "high"}, "priorityClassName without priority"),
        ({"priority": 0}, "priority without priorityClassName"),
        ({"priority": 5, "priorityClassName": "high"}, "the API shows a pod"),
        ({"priority": 5, "priorityClassName": NODE_CRITICAL_CLASS}, "the API shows a pod"),
        ({"priority": NODE_CRITICAL, "priorityClassName": "high"}, "the API shows a pod"),
        ({"priority": NODE_CRITICAL, "priorityClassName": NODE_CRITICAL_CLASS}, ""),
    ],
)
def test_a_priority_that_is_of_no_use_is_named(spec: dict[str, Any], begins: str) -> None:
    found = priority_warning(make_pod(**spec))
    assert found.startswith(begins)
    assert bool(found) is bool(begins)
    assert found.endswith("or neither") or not found


# References that a static pod may not have.


def test_malformed_entries_reference_nothing() -> None:
    spec = {"containers": ["c"], "volumes": [7, {"projected": {"sources": [None]}}]}
    assert forbidden_reference(spec) == ""
