"""Paths of the Kubernetes API: with and without group, namespace and name."""

from __future__ import annotations

import pytest

from kubeletpy.kubeapi.errors import BadRequest
from kubeletpy.kubeapi.protocol import LEASES, NODES, PODS, RUNTIMECLASSES, Resource, resource_path


@pytest.mark.parametrize(
    ("resource", "namespace", "name", "subresource", "path"),
    [
        (PODS, None, None, "", "/api/v1/pods"),
        (PODS, "d", None, "", "/api/v1/namespaces/d/pods"),
        (PODS, "d", "p", "", "/api/v1/namespaces/d/pods/p"),
        (PODS, "d", "p", "status", "/api/v1/namespaces/d/pods/p/status"),
        (LEASES, "d", "l", "", "/apis/coordination.k8s.io/v1/namespaces/d/leases/l"),
        (NODES, None, None, "", "/api/v1/nodes"),
        (NODES, None, "n", "status", "/api/v1/nodes/n/status"),
        (NODES, "d", "n", "", "/api/v1/nodes/n"),
        (RUNTIMECLASSES, None, "r", "", "/apis/node.k8s.io/v1/runtimeclasses/r"),
        (PODS, "d", "a b?c", "", "/api/v1/namespaces/d/pods/a%20b%3Fc"),
    ],
)
def test_paths(
    resource: Resource, namespace: str | None, name: str | None, subresource: str, path: str
) -> None:
    assert resource_path(resource, namespace, name, subresource) == path


@pytest.mark.parametrize("text", ["", ".", "..", "a/b", "a%2fb", "/", "%"])
def test_names_that_could_reach_another_path(text: str) -> None:
    with pytest.raises(BadRequest, match="cannot be a name of pods"):
        resource_path(PODS, "d", text)
    with pytest.raises(BadRequest, match="cannot be a namespace"):
        resource_path(PODS, text)


def test_a_name_needs_its_namespace() -> None:
    with pytest.raises(BadRequest, match="a namespace is needed"):
        resource_path(PODS, None, "p")
