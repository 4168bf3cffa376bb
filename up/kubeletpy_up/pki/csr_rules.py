"""Which certificate requests are approved and signed, as by the controller manager. Pure.

Source: the certificates.k8s.io API, signers kubernetes.io/kube-apiserver-client-kubelet and
kubernetes.io/kubelet-serving; the approver approves nodes' client certificates, never serving ones.
"""

from __future__ import annotations

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.pki import Names
from kubeletpy_up.requests import ADMIN_GROUP, NODE_USER_PREFIX, NODES_GROUP

REQUESTS = "certificatesigningrequests.certificates.k8s.io"
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER = "kubernetes.io/kubelet-serving"
JOINING_GROUP = "system:bootstrappers:kubeadm:default-node-token"
"""The group of kubeadm's tokens: its requests for a node's first certificate are auto-approved."""
SIGNERS = (CLIENT_SIGNER, SERVING_SIGNER)
_NEEDED = {CLIENT_SIGNER: "client auth", SERVING_SIGNER: "server auth"}
_ALLOWED = {"digital signature", "key encipherment"}
KEPT_DECIDED_S, KEPT_PENDING_S = 3600.0, 24 * 3600.0
"""How long requests are kept: decided ones, and pending ones."""


def conditions(request: JSON) -> set[str]:
    """The types of a request's conditions: the decisions about it."""
    found = (request.get("status") or {}).get("conditions") or ()
    return {str(condition.get("type")) for condition in found}


def waits_for_approval(request: JSON) -> bool:
    """Whether a request is undecided and of a kind that is approved automatically."""
    return request["spec"].get("signerName") == CLIENT_SIGNER and not conditions(request)


def waits_for_signature(request: JSON) -> bool:
    """Whether a request is approved and ours to sign."""
    decided = conditions(request)
    return (
        request["spec"].get("signerName") in SIGNERS
        and "Approved" in decided
        and not decided & {"Denied", "Failed"}
        and not (request.get("status") or {}).get("certificate")
    )


def approval(request: JSON, names: Names) -> str:
    """Why a request is approved automatically; empty if it is not."""
    spec = request["spec"]
    groups = spec.get("groups") or ()
    if problem(spec, names):
        return ""
    if spec.get("username") == names.common_name and NODES_GROUP in groups:
        return "Auto approving self kubelet client certificate after SubjectAccessReview."
    if JOINING_GROUP in groups or ADMIN_GROUP in groups:
        return "Auto approving kubelet client certificate after SubjectAccessReview."
    return ""


def problem(spec: JSON, names: Names) -> str:
    """Why a signer refuses a request; empty if it does not."""
    signer, usages = str(spec.get("signerName")), set(spec.get("usages") or ())
    if names.organizations != (NODES_GROUP,):
        return "subject organization is not system:nodes"
    if not names.common_name.startswith(NODE_USER_PREFIX):
        return "subject common name does not begin with system:node:"
    if names.others:
        return "only DNS and IP subjectAltNames are allowed, and no joined parts of the subject"
    has_names = bool(names.dns_names or names.ip_addresses)
    if signer == CLIENT_SIGNER and has_names:
        kind = "DNS" if names.dns_names else "IP"
        return f"{kind} subjectAltNames are not allowed"
    if signer == SERVING_SIGNER and not has_names:
        return "DNS or IP subjectAltName is required"
    needed = _NEEDED[signer]
    if needed not in usages or not usages <= {needed, *_ALLOWED}:
        return f"usages did not match [{' '.join(sorted({needed, *_ALLOWED}))}]"
    return ""


def with_condition(request: JSON, kind: str, reason: str, message: str, moment: str) -> JSON:
    """The request with one more condition."""
    status = request.get("status") or {}
    condition = {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }
    known = [*(status.get("conditions") or ()), condition]
    return {**request, "status": {**status, "conditions": known}}


def kept_until(request: JSON, created: float) -> float:
    """When a request is removed, in Unix seconds, as is ``created``."""
    return created + (KEPT_DECIDED_S if conditions(request) else KEPT_PENDING_S)
