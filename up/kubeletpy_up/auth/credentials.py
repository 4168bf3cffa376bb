"""Identities by bootstrap token and client certificate. Pure: the TLS layer verifies chains.

With a bootstrap token, a machine may request a node's first certificate, and no more. They are
Secrets of type bootstrap.kubernetes.io/token in kube-system, as kubeadm makes them.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable, Mapping
from ssl import cert_time_to_seconds
from typing import Any

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy_up.requests import BOOTSTRAP_GROUP, Caller

NAMESPACE = "kube-system"
TYPE = "bootstrap.kubernetes.io/token"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_EXTRA_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


def looks_like_one(token: str) -> bool:
    """Whether a bearer token has a bootstrap token's form."""
    return _TOKEN.fullmatch(token) is not None


def caller_of_token(
    token: str, find: Callable[[str, str, str], JSON | None], now: float
) -> Caller | None:
    """The user of a bootstrap token; None if unknown, expired, or not for authentication.

    Args:
        find: (resource key, namespace, name) -> object or None.
        now: Unix seconds.
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    identifier, secret = match.groups()
    found = find("secrets", NAMESPACE, f"bootstrap-token-{identifier}")
    if found is None or found.get("type") != TYPE or found["metadata"].get("deletionTimestamp"):
        return None
    data = {key: _text(value) for key, value in (found.get("data") or {}).items()}
    known = data.get("token-secret", "")
    if not hmac.compare_digest(known.encode(), secret.encode()):
        return None
    if data.get("token-id") != identifier or data.get("usage-bootstrap-authentication") != "true":
        return None
    if data.get("expiration") and _ended(data["expiration"], now):
        return None
    extra = [each for each in data.get("auth-extra-groups", "").split(",") if each]
    if not all(_EXTRA_GROUP.fullmatch(each) for each in extra):
        return None
    return Caller(
        f"system:bootstrap:{identifier}", (BOOTSTRAP_GROUP, *extra, "system:authenticated")
    )


def _text(value: object) -> str:
    try:
        return base64.b64decode(str(value)).decode()
    except (binascii.Error, ValueError):
        return ""


def _ended(moment: str, now: float) -> bool:
    try:
        return parse_time(moment) <= now
    except ValueError:
        return True


def caller_of_certificate(certificate: Mapping[str, Any] | None, now: float) -> Caller | None:
    """The user of a certificate; None without one, or if it has expired since it was verified.

    The common name is the user, the organizations are the groups.

    Args:
        certificate: as ``ssl.SSLSocket.getpeercert`` returns it.
        now: Unix seconds.
    """
    if not certificate or cert_time_to_seconds(certificate["notAfter"]) < now:
        return None
    user, groups = "", []
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                user = value
            elif key == "organizationName":
                groups.append(value)
    return Caller(user, (*groups, "system:authenticated")) if user else None
