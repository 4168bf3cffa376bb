"""PodCertificateRequests: makes the object to create, and reads the status of one. Pure.

Source: docs/reference/behaviour-storage.md, sx.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Hidden, HidesFields, Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.projected.pem import block, certificates

ISSUED, DENIED, FAILED = "Issued", "Denied", "Failed"
MAX_CHAIN_CHARACTERS = 256 * 1024
"""Length of all certificates in one request; a chain has a few thousand characters."""


class CertificateRequestStatus(HidesFields, Struct, frozen=True):
    """The status of a request. Times are Unix seconds."""

    outcome: str = ""
    """ISSUED, DENIED or FAILED; empty: the signer has not answered."""
    reason: str = ""
    message: str = ""
    chain: Hidden[bytes] = b""
    refresh_from: float = 0.0
    not_after: float = 0.0


def answer_of(obj: JSON) -> CertificateRequestStatus:
    """The answer in a request; one that can't be read is FAILED."""
    status = obj.get("status") or {}
    for condition in status.get("conditions") or ():
        outcome = condition.get("type")
        if outcome in (DENIED, FAILED):
            reason, message = condition.get("reason") or "", condition.get("message") or ""
            return CertificateRequestStatus(outcome, str(reason), str(message))
        if outcome == ISSUED:
            return _issued(status)
    return CertificateRequestStatus()


def _issued(status: Mapping[str, Any]) -> CertificateRequestStatus:
    text = status.get("certificateChain")
    if not isinstance(text, str) or len(text) > MAX_CHAIN_CHARACTERS:
        return CertificateRequestStatus(
            FAILED, "Unreadable", "its certificateChain is missing or too long"
        )
    chain = b"".join(map(block, certificates(text)))
    if not chain:
        return CertificateRequestStatus(
            FAILED, "Unreadable", "its certificateChain holds no certificate"
        )
    try:
        refresh_from = parse_time(status["beginRefreshAt"])
        not_after = parse_time(status["notAfter"])
    except (KeyError, TypeError, ValueError):
        return CertificateRequestStatus(
            FAILED, "Unreadable", "its beginRefreshAt or notAfter is missing"
        )
    return CertificateRequestStatus(ISSUED, "", "", chain, refresh_from, not_after)


def request_object(
    pod: Pod,
    source: Mapping[str, Any],
    proof: bytes,
    *,
    account_uid: str,
    node_name: str,
    node_uid: str,
    api_version: str,
) -> JSON:
    """The request to create for one source; ``proof`` is PKCS #10 in DER, signed with the key."""
    spec: JSON = {
        "signerName": source.get("signerName") or "",
        "podName": pod.name,
        "podUID": pod.uid,
        "serviceAccountName": account_of(pod),
        "serviceAccountUID": account_uid,
        "nodeName": node_name,
        "nodeUID": node_uid,
        "stubPKCS10Request": base64.b64encode(proof).decode(),
    }
    if source.get("maxExpirationSeconds") is not None:
        spec["maxExpirationSeconds"] = source["maxExpirationSeconds"]
    if source.get("userAnnotations"):
        spec["unverifiedUserAnnotations"] = source["userAnnotations"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": api_version,
        "kind": "PodCertificateRequest",
        "metadata": {
            "namespace": pod.namespace,
            "generateName": "req-",
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def account_of(pod: Pod) -> str:
    """The name of the service account that a pod runs as."""
    return pod.spec.get("serviceAccountName") or "default"
