"""Authorization: administrators may do everything, nodes what the Node authorizer allows.

Pure: other objects come through a :class:`Lookup`. Source: docs/reference/api-server.md, ae. There
is no RBAC here: service accounts may only request reviews of themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Protocol

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy_up.auth.node_restriction import (
    MIRROR_ANNOTATION,
    claim_names,
    config_map_names,
    device_claim_names,
    secret_names,
    volume_secrets,
)
from kubeletpy_up.requests import Caller

LEASE_NAMESPACE = "kube-node-lease"


class Lookup(Protocol):
    """The objects that a decision depends on."""

    def find(self, resource: str, namespace: str, name: str) -> JSON | None:
        """One stored object by resource key, or None."""

    def pods_on(self, node_name: str) -> Iterable[JSON]:
        """All pods bound to a node."""

    def volumes_of(self, namespace: str, claims: Container[str]) -> Iterable[JSON]:
        """The PersistentVolumes bound to, or reserved for, a namespace's claims."""


class Request(Struct, frozen=True):
    """The request of a caller, as the authorizer sees it.

    Attributes:
        verb: get, list, watch, create, update, patch, delete or deletecollection.
        resource: key, such as ``pods`` or ``leases.coordination.k8s.io``.
        namespace: empty for cluster-wide or for all namespaces.
        name: empty for create, list and watch without ``metadata.name`` in the field selector.
        node_selector: value of spec.nodeName in the field selector of a list or watch.
        body: the object sent, for create and TokenRequests.
    """

    verb: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    node_selector: str = ""
    body: JSON | None = None


NO_OPINION = ""
"""The empty reason of a refusal: no rule allows the request."""
_READ = ("get", "list", "watch")
_REQUESTS = "certificatesigningrequests.certificates.k8s.io"
_REVIEWS = (
    "tokenreviews.authentication.k8s.io",
    "subjectaccessreviews.authorization.k8s.io",
    "localsubjectaccessreviews.authorization.k8s.io",
)
_SELF_REVIEWS = (
    "selfsubjectreviews.authentication.k8s.io",
    "selfsubjectaccessreviews.authorization.k8s.io",
)


class AdmissionRefusal(str):
    """A refusal in the words of NodeRestriction, which runs after the authorizer."""

    __slots__ = ()


def authorize(caller: Caller, request: Request, lookup: Lookup, *, strict: bool) -> str | None:
    """None if the caller is allowed, else why not."""
    if caller.is_admin or request.resource in _SELF_REVIEWS:
        return None
    if caller.node_name:
        return authorize_node(caller, request, lookup) if strict else None
    if caller.is_joining and request.resource == _REQUESTS:
        return _RULES[_REQUESTS](caller.user, request, lookup)
    return NO_OPINION


def authorize_node(caller: Caller, request: Request, lookup: Lookup) -> str | None:
    """The Node authorizer: None if the node is allowed, else why not.

    A reason begins with the authorizer's name, as from 1.37 on.
    """
    rule = _RULES.get(request.resource)
    if rule is None:
        return NO_OPINION
    refused = rule(caller.node_name, request, lookup)
    if not refused or isinstance(refused, AdmissionRefusal):
        return refused
    return f"node: {refused}"


def _nodes(node: str, request: Request, _: Lookup) -> str | None:
    if request.subresource not in ("", "status"):
        return NO_OPINION
    if request.verb == "create" and not request.subresource:
        return None
    allowed = ("get", "update", "patch") if request.subresource else (*_READ, "update", "patch")
    if request.verb not in allowed:
        return NO_OPINION
    if request.name == node or request.verb in ("update", "patch"):
        return None  # changes of other nodes are for NodeRestriction
    whose = f"'{request.name}'" if request.name else "all nodes"
    return f"node '{node}' cannot read {whose}, only its own Node object"


def _pods(node: str, request: Request, lookup: Lookup) -> str | None:
    verb, subresource = request.verb, request.subresource
    if verb in ("list", "watch"):
        if subresource == "" and request.node_selector == node:
            return None
        return "can only list/watch pods with spec.nodeName field selector"
    if verb == "create" and subresource == "":
        return None
    if verb == "create" and subresource == "eviction":
        return _need_own_pod(node, request, lookup)
    if verb == "get" and subresource == "":
        if _own_pod(node, request, lookup):
            return None
        return _unrelated(node)
    if (verb in ("update", "patch") and subresource == "status") or (
        verb == "delete" and subresource == ""
    ):
        return _need_own_pod(node, request, lookup)
    return NO_OPINION


def _own_pod(node: str, request: Request, lookup: Lookup) -> bool:
    pod = lookup.find("pods", request.namespace, request.name)
    return pod is not None and (pod.get("spec") or {}).get("nodeName") == node


def _need_own_pod(node: str, request: Request, lookup: Lookup) -> str | None:
    pod = lookup.find("pods", request.namespace, request.name)
    if pod is None or _own_pod(node, request, lookup):
        return None
    parts = {
        "create": f"node {node} can only evict pods",
        "delete": f'node "{node}" can only delete pods',
    }.get(request.verb, f'node "{node}" can only update pod status for pods')
    return AdmissionRefusal(f"{parts} with spec.nodeName set to itself")


def _related(
    node: str, request: Request, lookup: Lookup, names: Callable[[JSON], set[str]]
) -> bool:
    return any(
        request.name in names(pod)
        for pod in lookup.pods_on(node)
        if pod["metadata"].get("namespace") == request.namespace
        and MIRROR_ANNOTATION not in (pod["metadata"].get("annotations") or {})
    )


def _referenced(
    names: Callable[[JSON], set[str]], verbs: tuple[str, ...]
) -> Callable[[str, Request, Lookup], str | None]:
    def rule(node: str, request: Request, lookup: Lookup) -> str | None:
        if request.subresource or request.verb not in verbs:
            return "can only read resources of this type"
        if not request.namespace:
            return "can only read namespaced object of this type"
        if not request.name:
            return "No Object name found"
        if _related(node, request, lookup, names):
            return None
        return _unrelated(node)

    return rule


_ONE_BY_ONE = "can only get individual resources of this type"


def _secrets(node: str, request: Request, lookup: Lookup) -> str | None:
    refused = _pods_secrets(node, request, lookup)
    if refused is None or not request.name or request.verb not in _READ or request.subresource:
        return refused
    desired = (request.namespace, request.name)
    if any(desired in volume_secrets(volume) for volume in _volumes_on(node, lookup)):
        return None
    return refused


def _claims(node: str, request: Request, lookup: Lookup) -> str | None:
    if request.subresource == "status":
        if request.verb not in ("update", "patch"):
            return "can only get/update/patch this type"
    elif not _reads_one(request):
        return _ONE_BY_ONE
    if _related(node, request, lookup, claim_names):
        return None
    return _unrelated(node)


def _volumes(node: str, request: Request, lookup: Lookup) -> str | None:
    if not _reads_one(request):
        return _ONE_BY_ONE
    if any(volume["metadata"]["name"] == request.name for volume in _volumes_on(node, lookup)):
        return None
    return _unrelated(node)


def _attachments(node: str, request: Request, lookup: Lookup) -> str | None:
    if not _reads_one(request):
        return _ONE_BY_ONE
    found = lookup.find(request.resource, "", request.name)
    if found is not None and (found.get("spec") or {}).get("nodeName") == node:
        return None
    return _unrelated(node)


def _reads_one(request: Request) -> bool:
    """Whether a request reads one object by name; a watch of it reveals no more than a get."""
    return request.verb in _READ and bool(request.name) and not request.subresource


def _unrelated(node: str) -> str:
    return f"no relationship found between node '{node}' and this object"


def _volumes_on(node: str, lookup: Lookup) -> Iterable[JSON]:
    """The PersistentVolumes whose claims a node's pods use."""
    for pod in lookup.pods_on(node):
        about = pod["metadata"]
        if MIRROR_ANNOTATION in (about.get("annotations") or {}):
            continue
        namespace = about.get("namespace", "")
        names = claim_names(pod)
        if names:
            yield from lookup.volumes_of(namespace, names)


def _accounts(node: str, request: Request, lookup: Lookup) -> str | None:
    if (request.verb, request.subresource) == ("get", ""):
        return _own_accounts(node, request, lookup)
    if (request.verb, request.subresource) != ("create", "token"):
        return f"node '{node}' can only get serviceaccounts and create tokens of them"
    reference = _inside(request.body, "spec", "boundObjectRef")
    if reference.get("kind") != "Pod" or not reference.get("name"):
        return AdmissionRefusal("node requested token not bound to a pod")
    if not reference.get("uid"):
        return AdmissionRefusal("node requested token with a pod binding without a uid")
    pod = lookup.find("pods", request.namespace, str(reference["name"]))
    if pod is None:
        return AdmissionRefusal(f'pod "{reference["name"]}" not found')
    if pod["metadata"]["uid"] != reference["uid"]:
        return AdmissionRefusal(
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in "
            "record. The object might have been deleted and then recreated"
        )
    spec: JSON = pod.get("spec") or {}
    if spec.get("nodeName") != node:
        return AdmissionRefusal("node requested token bound to a pod scheduled on a different node")
    if spec.get("serviceAccountName") != request.name:
        return _unrelated(node)
    return None


_pods_secrets = _referenced(lambda pod: secret_names(pod.get("spec") or {}), _READ)
_own_accounts = _referenced(
    lambda pod: {str((pod.get("spec") or {}).get("serviceAccountName") or "")}, ("get",)
)
"""KEP-4412: a node reads the accounts of its pods, for credential providers."""


def _leases(node: str, request: Request, lookup: Lookup) -> str | None:
    if request.verb in _OWN_VERBS and request.namespace != LEASE_NAMESPACE:
        return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
    return _own_leases(node, request, lookup)


def _only_own(a_kind: str, kind: str) -> Callable[[str, Request, Lookup], str | None]:
    """The rule of objects that have the name of their node; the arguments are for messages."""

    def rule(node: str, request: Request, _: Lookup) -> str | None:
        if request.verb not in _OWN_VERBS:
            return f"can only get, create, update, patch, or delete {a_kind}"
        if (request.name or named_in(request.body)) == node:
            return None
        text = f"can only access {kind} with the same name as the requesting node"
        return AdmissionRefusal(text) if request.verb == "create" else text

    return rule


_OWN_VERBS = ("get", "create", "update", "patch", "delete")
_own_leases = _only_own("a node lease", "node lease")


def named_in(body: object) -> str:
    """The name of an object that a client sent; empty if it has none."""
    return str(_inside(body, "metadata").get("name") or "")


def _inside(body: object, *path: str) -> JSON:
    """An object within a client's object, which may be anything: it is not validated yet."""
    for key in path:
        body = body.get(key) if isinstance(body, dict) else None
    return body if isinstance(body, dict) else {}


def _allow(*verbs: str) -> Callable[[str, Request, Lookup], str | None]:
    def rule(node: str, request: Request, _: Lookup) -> str | None:
        if request.verb in verbs and not request.subresource:
            return None
        return NO_OPINION

    return rule


_device_claims = _referenced(device_claim_names, ("get",))


def _resource_slices(node: str, request: Request, lookup: Lookup) -> str | None:
    if request.subresource:
        return "cannot authorize ResourceSlice subresources"
    if request.verb == "create":
        body = _inside(request.body, "spec")
        if body.get("nodeName") != node:
            return AdmissionRefusal(
                "can only create ResourceSlice with the same NodeName as the requesting node"
            )
        return None
    if request.verb in ("list", "watch", "deletecollection"):
        if request.node_selector == node:
            return None
        return "can only list/watch/deletecollection resourceslices with nodeName field selector"
    if request.verb not in ("get", "update", "patch", "delete"):
        return (
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, "
            "update, patch, delete, deletecollection"
        )
    found = lookup.find(request.resource, "", request.name)
    if found is not None and (found.get("spec") or {}).get("nodeName") == node:
        return None
    return _unrelated(node)


_RULES: dict[str, Callable[[str, Request, Lookup], str | None]] = {
    "nodes": _nodes,
    "pods": _pods,
    "secrets": _secrets,
    "configmaps": _referenced(lambda pod: config_map_names(pod.get("spec") or {}), _READ),
    "persistentvolumeclaims": _claims,
    "persistentvolumes": _volumes,
    "serviceaccounts": _accounts,
    "leases.coordination.k8s.io": _leases,
    "services": _allow(*_READ),
    "runtimeclasses.node.k8s.io": _allow(*_READ),
    "csidrivers.storage.k8s.io": _allow(*_READ),
    "csinodes.storage.k8s.io": _only_own("a CSINode", "CSINode"),
    "volumeattachments.storage.k8s.io": _attachments,
    "resourceclaims.resource.k8s.io": _device_claims,
    "resourceslices.resource.k8s.io": _resource_slices,
    "events": _allow("create", "update", "patch"),
    "events.events.k8s.io": _allow("create", "update", "patch"),
    _REQUESTS: _allow("create", *_READ),
    **{review: _allow("create") for review in _REVIEWS},
}
