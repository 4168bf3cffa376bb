"""Kinds of a cluster, which this API lists but never stores, and why writes are refused. Pure.

Clients find them by discovery, lists are empty, and every write is refused with one sentence that
gives the reason and an alternative. Must never name a kind that something here acts on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PAGE = 'docs/embedded-api.md, "Kinds of a cluster"'
"""Where the refusals are explained."""
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
WRITES = frozenset({"create", "patch", "update"})

_POD = "apply the pod template ({}) as a Pod"
_CONTROLLERS = "runs no controllers"
_RBAC = ("has no RBAC", "use the administrator's kubeconfig")
_TRAFFIC = ("routes and filters no traffic", "connect to the addresses of Pods")
_EXTENSIONS = ("serves built-in kinds only", "")
_ADMISSION = ("calls no webhooks and evaluates no policies", "")
_QUOTAS = ("enforces no quotas", "set requests and limits in the Pods")


def _workload(path: str = "spec.template") -> tuple[str, str]:
    return _CONTROLLERS, _POD.format(path)


@dataclass(frozen=True, slots=True)
class ClusterKind:
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
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def refusal(self) -> str:
        """The message that answers every write."""
        return refusal(f"{self.kind} is not stored", self.why, self.instead)

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


_ALL = ("all",)
_APPS = ("apps", "v1")
_POLICIES = "admissionregistration.k8s.io"
_RBAC_GROUP = ("rbac.authorization.k8s.io", "v1")
_NETWORK = ("networking.k8s.io", "v1")

CLUSTER_KINDS = (
    ClusterKind(
        "",
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        *_workload(),
        True,
        ("rc",),
        _ALL,
    ),
    ClusterKind("", "v1", "PodTemplate", "podtemplates", *_workload("template")),
    ClusterKind("", "v1", "ResourceQuota", "resourcequotas", *_QUOTAS, True, ("quota",)),
    ClusterKind("", "v1", "LimitRange", "limitranges", *_QUOTAS, True, ("limits",)),
    ClusterKind(*_APPS, "ControllerRevision", "controllerrevisions", _CONTROLLERS),
    ClusterKind(*_APPS, "DaemonSet", "daemonsets", *_workload(), True, ("ds",), _ALL),
    ClusterKind(*_APPS, "Deployment", "deployments", *_workload(), True, ("deploy",), _ALL),
    ClusterKind(*_APPS, "ReplicaSet", "replicasets", *_workload(), True, ("rs",), _ALL),
    ClusterKind(*_APPS, "StatefulSet", "statefulsets", *_workload(), True, ("sts",), _ALL),
    ClusterKind(
        "batch",
        "v1",
        "CronJob",
        "cronjobs",
        *_workload("spec.jobTemplate.spec.template"),
        True,
        ("cj",),
        _ALL,
    ),
    ClusterKind("batch", "v1", "Job", "jobs", *_workload(), True, (), _ALL),
    ClusterKind(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        _CONTROLLERS,
        "apply as many Pods as are needed",
        True,
        ("hpa",),
        _ALL,
    ),
    ClusterKind(
        "autoscaling",
        "v1",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        _CONTROLLERS,
        "apply as many Pods as are needed",
        True,
        ("hpa",),
        _ALL,
    ),
    ClusterKind(
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "limits no evictions",
        "evict Pods one by one",
        True,
        ("pdb",),
    ),
    ClusterKind(*_NETWORK, "Ingress", "ingresses", *_TRAFFIC, True, ("ing",)),
    ClusterKind(*_NETWORK, "IngressClass", "ingressclasses", *_TRAFFIC, False),
    ClusterKind(*_NETWORK, "NetworkPolicy", "networkpolicies", *_TRAFFIC, True, ("netpol",)),
    ClusterKind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", *_TRAFFIC),
    ClusterKind(*_RBAC_GROUP, "ClusterRole", "clusterroles", *_RBAC, False),
    ClusterKind(*_RBAC_GROUP, "ClusterRoleBinding", "clusterrolebindings", *_RBAC, False),
    ClusterKind(*_RBAC_GROUP, "Role", "roles", *_RBAC),
    ClusterKind(*_RBAC_GROUP, "RoleBinding", "rolebindings", *_RBAC),
    ClusterKind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        *_EXTENSIONS,
        False,
        ("crd", "crds"),
    ),
    ClusterKind("apiregistration.k8s.io", "v1", "APIService", "apiservices", *_EXTENSIONS, False),
    *(
        ClusterKind(_POLICIES, "v1", kind, plural, *_ADMISSION, False)
        for kind, plural in (
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
            ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        )
    ),
    ClusterKind(
        "storage.k8s.io",
        "v1",
        "VolumeAttributesClass",
        "volumeattributesclasses",
        "changes no attributes of volumes",
        "",
        False,
        ("vac",),
    ),
)


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
