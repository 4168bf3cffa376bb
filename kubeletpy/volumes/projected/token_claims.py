"""Reads the life of a token that an earlier agent left in a pod's volume, if it fits the pod.

Pure. The signature is not checked: the claims decide when the next token is requested, and nothing
else. Must never show a token or a claim. Source: docs/reference/behaviour.md, i4.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod

MAX_TOKEN_BYTES = 16384
"""Kubernetes' tokens have 1 to 2 kB."""
SKEW_S = 60.0
"""How far the API server's clock may be ahead of ours."""


class TokenKey(Struct, frozen=True):
    """The properties of a requested token."""

    account: str
    audience: str
    """Empty: the API server's own."""
    seconds: int
    account_uid: str = ""
    """If set, only for the account with this uid."""


class Life(Struct, frozen=True):
    """How long a token is valid."""

    seconds: int
    expires_at: float
    """Unix seconds."""


def life_of(token: str, pod: Pod, key: TokenKey, now: float) -> Life | None:
    """The life of a token that is still valid; None: it does not fit, a new one must be requested.

    It must be bound to this very pod and account, for the audience, and live no longer than was
    requested. A server that extends the life of its own tokens states their intended end in
    ``warnafter``.

    Args:
        token: anything.
        now: Unix seconds.
    """
    claims = _claims(token)
    about = claims.get("kubernetes.io")
    if not isinstance(about, dict):
        return None
    bound = (
        about.get("namespace") == pod.namespace
        and _field(about, "pod", "uid") == pod.uid
        and _field(about, "pod", "name") == pod.name
        and _field(about, "serviceaccount", "name") == key.account
        and key.account_uid in ("", _field(about, "serviceaccount", "uid"))
    )
    audiences = claims.get("aud")
    audiences = [audiences] if isinstance(audiences, str) else audiences
    # the server's own audiences are its secret; the API refuses two tokens at one path
    requested = bool(audiences) if not key.audience else audiences == [key.audience]
    if not (bound and requested):
        return None
    begin, end = _seconds(claims.get("iat")), _seconds(claims.get("exp"))
    end = min(end, _seconds(about.get("warnafter", end)))
    if not (0 < end - begin <= key.seconds and begin <= now + SKEW_S and now < end):
        return None
    return Life(math.ceil(end - begin), end)


def _claims(token: str) -> Mapping[str, Any]:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > MAX_TOKEN_BYTES:
        return {}
    try:
        text = base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), b"-_", validate=True)
        found = json.loads(text)
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _field(about: Mapping[str, Any], kind: str, name: str) -> object:
    """A field of the claims about an object; None if it is empty or absent."""
    of_kind = about.get(kind)
    return of_kind.get(name) or None if isinstance(of_kind, dict) else None


def _seconds(value: object) -> float:
    """Unix seconds, or a number that is in no range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
