"""Certificate requests: what they may request, and how they may be decided."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_DECIDED = ("Approved", "Denied", "Failed")
_MIN_SECONDS = 600


def validate(report: Report, obj: JSON) -> None:
    """A request, with any decision about it."""
    spec: JSON = obj.get("spec") or {}
    if not _is_pem(spec.get("request"), b"CERTIFICATE REQUEST"):
        reported = spec.get("request") or ""
        report.invalid("spec.request", reported, "PEM block type must be CERTIFICATE REQUEST")
    usages = spec.get("usages") or []
    if not usages:
        report.required("spec.usages")
    for index, usage in enumerate(usages):
        report.supported(f"spec.usages[{index}]", usage, _USAGES)
    for index, usage in enumerate(usages):
        if usage in usages[:index]:
            report.duplicate(f"spec.usages[{index}]", usage)
    _signer(report, spec.get("signerName") or "")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _MIN_SECONDS:
        detail = "may not specify a duration less than 600 seconds (10 minutes)"
        report.invalid("spec.expirationSeconds", seconds, detail)
    _conditions(report, (obj.get("status") or {}).get("conditions") or [])
    certificate = (obj.get("status") or {}).get("certificate")
    if certificate and not _is_pem(certificate, b"CERTIFICATE"):
        detail = "must contain at least one CERTIFICATE PEM block"
        report.invalid("status.certificate", "<certificate data>", detail)


def _is_pem(text: str | None, kind: bytes) -> bool:
    try:
        return b"-----BEGIN " + kind + b"-----" in base64.b64decode(text or "")
    except (binascii.Error, ValueError):
        return False


def _signer(report: Report, name: str) -> None:
    if not name:
        report.required("spec.signerName")
        return
    domain, slash, path = name.partition("/")
    if not (slash and path) or "." not in domain or formats.dns_subdomain(domain):
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        report.invalid("spec.signerName", name, detail)


def _conditions(report: Report, conditions: list[JSON]) -> None:
    seen: list[str] = []
    for index, condition in enumerate(conditions):
        path, kind = f"status.conditions[{index}]", condition.get("type") or ""
        if not kind:
            report.required(f"{path}.type")
        allowed = ("True",) if kind in _DECIDED else ("False", "True", "Unknown")
        report.one_of(f"{path}.status", condition.get("status"), allowed)
        if kind in ("Approved", "Denied") and {"Approved", "Denied"} & {*seen} - {kind}:
            both = [f'conditions[{{"type": "{each}"}}]' for each in ("Approved", "Denied")]
            detail = "must specify at most one of: " + ", ".join(f"`{each}`" for each in both)
            report.invalid_text("status.conditions", f'"{{{", ".join(both)}}}"', detail)
        if kind in seen:
            report.duplicate(f"{path}.type", kind)
        seen.append(kind)


def check_change(report: Report, new: JSON, old: JSON, subresource: str) -> None:
    """A decision is final, and is made through ``approval`` only."""
    after, before = _decisions(new), _decisions(old)
    for kind in _DECIDED:
        if before.count(kind) > after.count(kind):
            detail = f'updates may not remove a condition of type "{kind}"'
            report.forbidden("status.conditions", detail)
    if subresource != "approval":
        for kind in ("Approved", "Denied"):
            if after.count(kind) > before.count(kind):
                detail = f'updates may not add a condition of type "{kind}"'
                report.forbidden("status.conditions", detail)
    certificate = (old.get("status") or {}).get("certificate")
    if certificate and (new.get("status") or {}).get("certificate") != certificate:
        detail = "updates may not modify existing certificate content"
        report.forbidden("status.certificate", detail)


def _decisions(request: JSON) -> list[str]:
    conditions = (request.get("status") or {}).get("conditions") or ()
    return [str(condition.get("type")) for condition in conditions]
