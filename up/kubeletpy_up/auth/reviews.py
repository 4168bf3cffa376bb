"""Reviews: who a token is, who I am, and whether somebody may do something. Nothing is stored.

Pure. Must never echo a token back.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.api.types import JSON
from kubeletpy_up.auth.authorizer import Request
from kubeletpy_up.requests import Caller

Authenticate = Callable[[str, tuple[str, ...]], tuple[Caller, JSON] | None]
Authorize = Callable[[Caller, Request], str | None]


def _user_info(caller: Caller) -> JSON:
    info: JSON = {"username": caller.user, "groups": list(caller.groups)}
    if caller.uid:
        info["uid"] = caller.uid
    return info


def token_review(review: JSON, authenticate: Authenticate) -> JSON:
    """Answer a TokenReview."""
    spec: JSON = review.get("spec") or {}
    audiences = tuple(spec.get("audiences") or ())
    found = authenticate(str(spec.get("token") or ""), audiences)
    status: JSON = {"authenticated": False, "user": {}, "error": "invalid bearer token"}
    if found is not None:
        status = {"authenticated": True, "user": _user_info(found[0])}
        if audiences:
            valid = found[1].get("aud", audiences)
            status["audiences"] = [audience for audience in audiences if audience in valid]
    kept = {"audiences": spec["audiences"]} if audiences else {}
    return {**review, "spec": kept, "status": status}


def self_subject_review(review: JSON, caller: Caller) -> JSON:
    """Answer ``kubectl auth whoami``."""
    return {**review, "status": {"userInfo": _user_info(caller)}}


def access_review(review: JSON, caller: Caller, authorize: Authorize) -> JSON:
    """Answer a (Self|Local)SubjectAccessReview; ``caller`` is used where the spec has no user."""
    spec: JSON = review.get("spec") or {}
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
    return {**review, "status": status}


def _request(wanted: JSON) -> Request:
    group, resource = wanted.get("group") or "", wanted.get("resource") or ""
    return Request(
        verb=wanted.get("verb") or "",
        resource=f"{resource}.{group}" if group else resource,
        subresource=wanted.get("subresource") or "",
        namespace=wanted.get("namespace") or "",
        name=wanted.get("name") or "",
    )
