"""Which user a client certificate identifies. Pure: the TLS layer has verified the chain.

Its common name is the user, its organizations are the groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from ssl import cert_time_to_seconds
from typing import Any

from kubeletpy_up.requests import Caller


def caller(certificate: Mapping[str, Any] | None, now: float) -> Caller | None:
    """The user of a certificate; None without one, or if it has expired since it was verified.

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
