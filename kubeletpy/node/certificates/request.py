"""The content of a certificate signing request. Pure.

Source: docs/reference/names.csv: identity; the certificates.k8s.io API and its signers
kubernetes.io/kube-apiserver-client-kubelet and kubernetes.io/kubelet-serving.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable

from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.pki import Names
from kubeletpy.pods.addresses import canonical_address

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
