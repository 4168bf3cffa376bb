"""Kinds of a cluster, which this API lists but never stores, and why writes are refused. Pure.

Clients find them by discovery, lists are empty, and every write is refused with one sentence that
gives the reason and an alternative. Must never name a kind that something here acts on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy_up.data import load_json

PAGE = 'docs/embedded-api.md, "Kinds of a cluster"'
"""Where the refusals are explained."""
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
IN_TESTS = "in tests, use the real engine: KUBEBUILDER_ASSETS, docs/testing.md"
WRITES = frozenset({"create", "patch", "update"})


class ClusterKind(Struct, frozen=True):
    """A kind of a cluster.

    Attributes:
        why: what this API lacks, such as ``runs no controllers``.
        instead: what to do without a cluster; may be empty.
    """

    group: str
    version: str
    kind: str
    plural: str
    why: str
    instead: str = ""
    namespaced: bool = True
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()

    @property
    def refusal(self) -> str:
        """The message that answers every write."""
        return f"{refusal(f'{self.kind} is not stored', self.why, self.instead)}; {IN_TESTS}"

    def entry(self) -> dict[str, Any]:
        """The entry of an APIResourceList."""
        entry: dict[str, Any] = {
            "name": self.plural,
            "singularName": self.kind.lower(),
            "namespaced": self.namespaced,
            "kind": self.kind,
            "verbs": list(VERBS),
        }
        if self.short_names:
            entry["shortNames"] = list(self.short_names)
        if self.categories:
            entry["categories"] = list(self.categories)
        return entry


def refusal(what: str, why: str, instead: str = "") -> str:
    """The sentence: ``WHAT: this single-node API WHY; INSTEAD, or join a cluster (PAGE)``."""
    remedy = f"{instead}, or join a cluster" if instead else "join a cluster"
    return f"{what}: this single-node API {why}; {remedy} ({PAGE})"


def second_node(own: str) -> str:
    """The message that answers the registration of another node than ``own``."""
    return refusal("The Node is not registered", f'serves only its own node "{own}"')


CLUSTER_KINDS = tuple(ClusterKind(*row) for row in load_json("cluster-kinds.json"))


def definitions() -> dict[str, dict[str, Any]]:
    """OpenAPI definitions of the kinds: no fields, the refusal as their description."""
    return {
        f"io.k8s.api.{each.group.split('.')[0] or 'core'}.{each.version}.{each.kind}": {
            "type": "object",
            "description": each.refusal,
            "x-kubernetes-group-version-kind": [
                {"group": each.group, "version": each.version, "kind": each.kind}
            ],
        }
        for each in CLUSTER_KINDS
    }
