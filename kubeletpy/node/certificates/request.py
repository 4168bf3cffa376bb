"""Certificate signing requests: their content, their outcome, and when one is due. Pure.

Time is an argument. Source: docs/reference/names.csv: identity; docs/reference/constants.csv:
certs; KEP-266 (kubelet certificate rotation); the certificates.k8s.io API and its signers
kubernetes.io/kube-apiserver-client-kubelet and kubernetes.io/kubelet-serving.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from enum import Enum

from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.pki import Certificate, Names
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import canonical_address

CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER = "kubernetes.io/kubelet-serving"
NODE_PREFIX = "system:node:"
NODES_GROUP = "system:nodes"
# keys are elliptic: keyEncipherment would be for RSA
USAGES: dict[str, tuple[str, ...]] = {
    CLIENT_SIGNER: ("digital signature", "client auth"),
    SERVING_SIGNER: ("digital signature", "server auth"),
}


def client_names(node_name: str) -> Names:
    """The node as a client of the API."""
    return Names(NODE_PREFIX + node_name, (NODES_GROUP,))


def serving_names(
    node_name: str, addresses: Iterable[api.NodeAddress], *, dns_only: bool
) -> Names | None:
    """The node as a server; None while it has no address to request.

    Args:
        addresses: from the Node's status.
        dns_only: names without an IP address are enough (AllowDNSOnlyNodeCSR).
    """
    names: set[str] = set()
    ips: set[str] = set()
    for each in addresses:
        kind, address = each.get("type", ""), each.get("address", "")
        ip = canonical_address(address)
        if kind in ("Hostname", "InternalIP", "ExternalIP") and ip:
            ips.add(ip)
        elif kind in ("Hostname", "InternalDNS", "ExternalDNS") and address:
            names.add(address)
    if not ips and not (dns_only and names):
        return None
    return Names(NODE_PREFIX + node_name, (NODES_GROUP,), tuple(sorted(names)), tuple(sorted(ips)))


def request_name(prefix: str, public_key: bytes, names: Names, signer: str) -> str:
    """The name of a request: always the same for the same key and content.

    So a request whose create got no response, or that was made before a crash, is found again.
    Names that start with ``node-csr-`` are for a node's first certificate.
    """
    digest = hashlib.sha256()
    parts = (names.common_name, *names.organizations, "|", *names.dns_names, "|")
    for part in (*parts, *names.ip_addresses, "|", signer, *USAGES[signer]):
        digest.update(base64.urlsafe_b64encode(part.encode()) + b"|")
    digest.update(public_key)
    return prefix + digest.hexdigest()[:32]


def request_object(name: str, signer: str, request: bytes) -> JSON:
    """The CertificateSigningRequest to create; ``request`` is PKCS #10 in PEM."""
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": signer,
            "usages": list(USAGES[signer]),
        },
    }


# Renewal, and the outcome of a request.

EARLIEST, SPREAD = 0.7, 0.2
"""Renewed at 70 to 90 % of a certificate's life: nodes created together don't renew together."""
CLIENT_LOST_S = 300.0
"""The agent exits after this long without a valid client certificate while the API answers."""


def rotation_deadline(certificate: Certificate, chance: float) -> float:
    """When to renew, in Unix seconds; ``chance`` is drawn once per certificate, from 0 to 1."""
    life = certificate.not_after - certificate.not_before
    return certificate.not_before + life * (EARLIEST + SPREAD * chance)


def unsatisfied(certificate: Certificate, names: Names) -> str:
    """The required names that a certificate lacks; empty: nothing. Extra names are fine."""
    has = certificate.names
    if has.common_name != names.common_name:
        return f"its name is {has.common_name}, not {names.common_name}"
    lacking = certificate.lacks(names)
    return f"it {lacking}" if lacking else ""


class CsrOutcome(Enum):
    """The outcome of a request."""

    PENDING = "pending"
    APPROVED = "approved, not issued yet"
    ISSUED = "issued"
    DENIED = "denied"
    FAILED = "failed"


class CsrVerdict(Struct, frozen=True):
    """An outcome, with the certificate (PEM) if issued, or why not."""

    outcome: CsrOutcome
    certificate: bytes = b""
    why: str = ""


def verdict(request: JSON) -> CsrVerdict:
    """The outcome in a CertificateSigningRequest's status; a denial wins over an approval."""
    status = request.get("status")
    status = status if isinstance(status, dict) else {}
    approved = False
    for condition in status.get("conditions") or ():
        kind = condition.get("type") if isinstance(condition, dict) else None
        if kind in ("Denied", "Failed"):
            outcome = CsrOutcome.DENIED if kind == "Denied" else CsrOutcome.FAILED
            reason, message = condition.get("reason") or "", condition.get("message") or ""
            return CsrVerdict(
                outcome, why=": ".join(str(part) for part in (reason, message) if part)
            )
        approved = approved or kind == "Approved"
    if not approved:
        return CsrVerdict(CsrOutcome.PENDING)
    try:
        certificate = base64.b64decode(str(status.get("certificate") or ""), validate=True)
    except (binascii.Error, ValueError):
        return CsrVerdict(CsrOutcome.FAILED, why="the certificate is not base64")
    if not certificate:
        return CsrVerdict(CsrOutcome.APPROVED)
    return CsrVerdict(CsrOutcome.ISSUED, certificate)
