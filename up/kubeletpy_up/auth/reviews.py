"""Reviews: who a token is, who I am, and whether somebody may do something. Nothing is stored.

Pure. Must never echo a token back.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.api.types import JSON
from kubeletpy_up.auth.authorizer import Request
from kubeletpy_up.errors import Cause, bad_request, invalid
from kubeletpy_up.requests import Caller

_GROUP = "authorization.k8s.io"
Authenticate = Callable[[str, tuple[str, ...]], tuple[Caller, JSON] | None]
Authorize = Callable[[Caller, Request], str | None]


def _user_info(caller: Caller) -> JSON:
    info: JSON = {"username": caller.user, "groups": list(caller.groups)}
    if caller.uid:
        info["uid"] = caller.uid
    return info


def token_review(review: JSON, authenticate: Authenticate, own_audience: str) -> JSON:
    """Answer a TokenReview; ``own_audience`` is the API's own."""
    spec: JSON = review.get("spec") or {}
    if not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    audiences = tuple(spec.get("audiences") or ())
    found = authenticate(str(spec.get("token") or ""), audiences)
    status: JSON = {"user": {}, "error": "invalid bearer token"}
    if found is not None:
        status = {"authenticated": True, "user": _user_info(found[0])}
        if audiences:
            valid = found[1].get("aud", audiences)
            status["audiences"] = [audience for audience in audiences if audience in valid]
        else:
            status["audiences"] = [own_audience]
    kept = {"audiences": spec["audiences"]} if audiences else {}
    return _answer(review, spec=kept, status=status)


def _answer(review: JSON, **parts: JSON) -> JSON:
    """A review is nobody's object: it has metadata only if it came with some."""
    kept = {key: value for key, value in review.items() if key != "metadata" or value}
    return {**kept, **parts}


def self_subject_review(review: JSON, caller: Caller) -> JSON:
    """Answer ``kubectl auth whoami``."""
    return {**review, "status": {"userInfo": _user_info(caller)}}


def access_review(review: JSON, caller: Caller, authorize: Authorize) -> JSON:
    """Answer a (Self|Local)SubjectAccessReview; ``caller`` is used where the spec has no user."""
    spec: JSON = review.get("spec") or {}
    if str(review.get("kind", "")).startswith("Self"):
        spec = {key: value for key, value in spec.items() if key not in ("user", "groups")}
    elif not spec.get("user") and not spec.get("groups"):
        text = 'Invalid value: "": at least one of user or group must be specified'
        raise invalid("", "", [Cause("FieldValueInvalid", "spec.user", text)], _GROUP)
    if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
        text = (
            "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must "
            "be specified"
        )
        raise invalid("", "", [Cause("FieldValueInvalid", "spec.resourceAttributes", text)], _GROUP)
    subject = caller
    if spec.get("user") or spec.get("groups"):
        subject = Caller(str(spec.get("user") or ""), tuple(spec.get("groups") or ()))
    wanted: JSON = spec.get("resourceAttributes") or {}
    if not wanted:
        refused = None if subject.is_admin else "only administrators may"
    else:
        refused = authorize(subject, _request(wanted))
    status: JSON = {"allowed": refused is None}
    if refused:
        status["reason"] = refused
    return _answer(review, status=status)


def _request(wanted: JSON) -> Request:
    group, resource = wanted.get("group") or "", wanted.get("resource") or ""
    return Request(
        verb=wanted.get("verb") or "",
        resource=f"{resource}.{group}" if group else resource,
        subresource=wanted.get("subresource") or "",
        namespace=wanted.get("namespace") or "",
        name=wanted.get("name") or "",
    )
