"""Pod status changes that NodeRestriction refuses. Source: docs/reference/api-server.md, ae."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up.auth.node_restriction import check_pod_status


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}, "status": status}


@pytest.mark.parametrize(
    ("key", "reported"),
    [
        ("resourceClaimStatuses", "resource claim statues"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
        ("nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"),
    ],
)
def test_a_node_does_not_write_what_the_status_reports_about_claims(
    key: str, reported: str
) -> None:
    before, after = pod(**{key: [{"name": "a"}]}), pod(**{key: [{"name": "b"}]})
    refused = f'node "n1" cannot update {reported}'
    assert check_pod_status("n1", after, before) == refused
    assert check_pod_status("n1", pod(), before) == refused
    assert check_pod_status("n1", before, before) is None
    assert check_pod_status("n1", pod(**{key: []}), pod()) is None
