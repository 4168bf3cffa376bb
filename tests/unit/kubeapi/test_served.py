"""The version of a kind that is used with servers of several Kubernetes versions."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.kubeapi.errors import NotFound, Unavailable
from kubeletpy.kubeapi.protocol import Resource
from kubeletpy.kubeapi.reflector import first_served

NEW, OLD = (
    Resource("certificates.k8s.io", version, "clustertrustbundles", False, "ClusterTrustBundle")
    for version in ("v1", "v1beta1")
)


class Server:
    """Serves the given versions; with ``fault`` every request fails."""

    def __init__(self, *served: str, fault: Exception | None = None) -> None:
        self.served, self.fault = served, fault

    async def list(self, resource: Resource, **_: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        if resource.version not in self.served:
            raise NotFound("the server could not find the requested resource", code=404)


@pytest.mark.parametrize(
    ("served", "expected"), [(("v1",), NEW), (("v1beta1",), OLD), (("v1", "v1beta1"), NEW)]
)
async def test_the_best_served_version(served: tuple[str, ...], expected: Resource) -> None:
    assert await first_served(Server(*served), (NEW, OLD)) == expected  # type: ignore[arg-type]


async def test_a_server_without_the_kind_is_named() -> None:
    expected = r"has no clustertrustbundles \(certificates.k8s.io v1, v1beta1\)"
    with pytest.raises(NotFound, match=expected):
        await first_served(Server(), (NEW, OLD))  # type: ignore[arg-type]


async def test_a_server_that_does_not_answer_is_not_taken_for_an_old_one() -> None:
    with pytest.raises(Unavailable):
        await first_served(Server(fault=Unavailable("down")), (NEW, OLD))  # type: ignore[arg-type]
