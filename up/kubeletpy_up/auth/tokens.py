"""Service account tokens: signed claims (JWT, HS256) that TokenReview can verify.

Must never log or raise with a token in the message.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import Cause, bad_request, conflict, invalid, not_found
from kubeletpy_up.requests import Caller
from kubeletpy_up.storage.store import Store

ISSUER = "https://kubernetes.default.svc"
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
DEFAULT_SECONDS = 3600
_BOUND_RESOURCES = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class TokenSigner:
    """Signs and verifies claims with one secret key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def sign(self, claims: JSON) -> str:
        """Make a signed token of these claims."""
        header = _b64(b'{"alg":"HS256","typ":"JWT"}')
        body = f"{header}.{_b64(json.dumps(claims, separators=(',', ':')).encode())}"
        return f"{body}.{_b64(self._mac(body))}"

    def verify(self, token: str, now: float) -> JSON | None:
        """A token's claims; None for one that is not ours or has expired."""
        body, _, signature = token.rpartition(".")
        try:
            # as text: what a decoder skips would make many tokens of one
            if not hmac.compare_digest(signature.encode(), _b64(self._mac(body)).encode()):
                return None
            claims: Any = json.loads(_unb64(body.partition(".")[2]))
        except ValueError:
            return None
        return claims if isinstance(claims, dict) and claims.get("exp", 0) > now else None

    def _mac(self, body: str) -> bytes:
        return hmac.new(self._key, body.encode("utf-8", "replace"), hashlib.sha256).digest()


def _bound_object(store: Store, namespace: str, reference: JSON) -> JSON:
    kind, name = str(reference.get("kind") or ""), str(reference.get("name") or "")
    resource = _BOUND_RESOURCES.get(kind)
    if resource is None:
        raise bad_request(f"cannot bind token for serviceaccount to object of kind {kind!r}")
    entry = store.get(resource, "" if resource == "nodes" else namespace, name)
    if entry is None:
        raise not_found(resource, name)
    uid = entry.object["metadata"]["uid"]
    if reference.get("uid") and reference["uid"] != uid:
        raise conflict(
            resource,
            name,
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in "
            "record. The object might have been deleted and then recreated",
        )
    return entry.object


def _lifetime(requested: int | None) -> int:
    seconds = DEFAULT_SECONDS if requested is None else requested
    if MIN_SECONDS <= seconds <= MAX_SECONDS:
        return seconds
    why = (
        "may not specify a duration less than 10 minutes"
        if seconds < MIN_SECONDS
        else "may not specify a duration larger than 2^32 seconds"
    )
    cause = Cause("FieldValueInvalid", "spec.expirationSeconds", f"Invalid value: {seconds}: {why}")
    raise invalid("TokenRequest", "", [cause], "authentication.k8s.io")


def create_token(
    store: Store, signer: TokenSigner, account: JSON, request: JSON, *, now: float, identifier: str
) -> JSON:
    """Answer a TokenRequest for a service account. ``identifier`` becomes the token's id.

    Raises:
        ApiError: 404/409 for the bound object, 422 for a duration out of range.
    """
    meta, spec = account["metadata"], request.get("spec") or {}
    seconds = _lifetime(spec.get("expirationSeconds"))
    namespace, name = meta["namespace"], meta["name"]
    private: JSON = {"namespace": namespace, "serviceaccount": {"name": name, "uid": meta["uid"]}}
    reference: JSON = spec.get("boundObjectRef") or {}
    if reference:
        bound = _bound_object(store, namespace, reference)
        about = {"name": bound["metadata"]["name"], "uid": bound["metadata"]["uid"]}
        private[str(reference["kind"]).lower()] = about
        node_name = (bound.get("spec") or {}).get("nodeName")
        if reference["kind"] == "Pod" and node_name:
            node = store.get("nodes", "", node_name)
            uid = {"uid": node.object["metadata"]["uid"]} if node else {}
            private["node"] = {"name": node_name, **uid}
    audiences = spec.get("audiences") or [ISSUER]
    claims: JSON = {
        "aud": audiences,
        "exp": int(now) + seconds,
        "iat": int(now),
        "iss": ISSUER,
        "jti": identifier,
        "kubernetes.io": private,
        "nbf": int(now),
        "sub": f"system:serviceaccount:{namespace}:{name}",
    }
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": meta["uid"],
            "creationTimestamp": format_time(now),
        },
        "spec": {
            **spec,
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": reference or None,
        },
        "status": {
            "token": signer.sign(claims),
            "expirationTimestamp": format_time(int(now) + seconds),
        },
    }


def account_caller(
    store: Store, signer: TokenSigner, token: str, now: float, audiences: tuple[str, ...] = ()
) -> tuple[Caller, JSON] | None:
    """The service account that a token is for (and its claims); None if it is not valid.

    Valid means: signed by us, not expired, for one of ``audiences`` (ours if none is given), and
    the account and the object that it is bound to still exist.
    """
    claims = signer.verify(token, now)
    if claims is None or not set(claims["aud"]) & set(audiences or (ISSUER,)):
        return None
    private = claims["kubernetes.io"]
    namespace = private["namespace"]
    for kind, resource in (("serviceaccount", "serviceaccounts"), *_CHECKED):
        about = private.get(kind)
        if about is None:
            continue
        entry = store.get(resource, namespace, about["name"])
        if entry is None or entry.object["metadata"]["uid"] != about["uid"]:
            return None
    groups = (
        "system:serviceaccounts",
        f"system:serviceaccounts:{namespace}",
        "system:authenticated",
    )
    return Caller(claims["sub"], groups, private["serviceaccount"]["uid"]), claims


_CHECKED = (("pod", "pods"), ("secret", "secrets"))
