"""When a certificate is renewed, and what became of a request for one. Pure: time is an argument.

Source: docs/reference/constants.csv: certs; KEP-266 (kubelet certificate rotation).
"""

from __future__ import annotations

import base64
import binascii
from enum import Enum

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.pki import Certificate, Names
from kubeletpy.base.structs import Struct

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
