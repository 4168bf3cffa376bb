"""The identity of a client. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from ssl import cert_time_to_seconds
from typing import Any

from kubeletpy.base.structs import Struct

AUTHENTICATED = "system:authenticated"


class Identity(Struct, frozen=True):
    """An authenticated client, or the anonymous one."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


ANONYMOUS = Identity("system:anonymous", ("system:unauthenticated",))


def of_certificate(certificate: Mapping[str, Any] | None, now: float) -> Identity | None:
    """The identity in a verified client certificate: common name and organizations; None: none.

    Args:
        certificate: as ``ssl.SSLSocket.getpeercert`` gives it.
        now: Unix seconds; a connection may outlive the certificate that it started with.
    """
    if not certificate or cert_time_to_seconds(certificate["notAfter"]) < now:
        return None
    user, groups = "", []
    for names in certificate.get("subject", ()):
        for key, value in names:
            if key == "commonName":
                user = value
            elif key == "organizationName":
                groups.append(value)
    return Identity(user, _authenticated(groups)) if user else None


def of_review(user: Mapping[str, Any]) -> Identity | None:
    """The user of a TokenReview's status; None when it has no name."""
    name = str(user.get("username") or "")
    if not name:
        return None
    extra = tuple(
        (str(key), tuple(str(value) for value in values or ()))
        for key, values in sorted((user.get("extra") or {}).items())
    )
    groups = [str(group) for group in user.get("groups") or ()]
    return Identity(name, _authenticated(groups), str(user.get("uid") or ""), extra)


def _authenticated(groups: list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*groups, AUTHENTICATED]))
