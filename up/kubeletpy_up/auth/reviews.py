"""Reviews: whose a token is, who I am, and whether a user may do something. Nothing is stored.

Pure. Must never echo a token back.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
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
    """A review is not a stored object: it has metadata only if it came with some."""
    kept = {key: value for key, value in review.items() if key != "metadata" or value}
    return {**kept, **parts}


def self_subject_review(review: JSON, caller: Caller, now: float) -> JSON:
    """Answer ``kubectl auth whoami``; ``now``: Unix seconds."""
    metadata = {**(review.get("metadata") or {}), "creationTimestamp": format_time(now)}
    return {**review, "metadata": metadata, "status": {"userInfo": _user_info(caller)}}


_ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


def access_review(review: JSON, caller: Caller, authorize: Authorize) -> JSON:
    """Answer a (Self|Local)SubjectAccessReview; ``caller`` is used where the spec has no user."""
    spec: JSON = review.get("spec") or {}
    if str(review.get("kind", "")).startswith("Self"):
        spec = {key: value for key, value in spec.items() if key not in ("user", "groups")}
    elif not spec.get("user") and not spec.get("groups"):
        text = 'Invalid value: "": at least one of user or group must be specified'
        raise invalid("", "", [Cause("FieldValueInvalid", "spec.user", text)], _GROUP)
    _check_attributes(review, spec)
    subject = caller
    if spec.get("user") or spec.get("groups"):
        subject = Caller(str(spec.get("user") or ""), tuple(spec.get("groups") or ()))
    desired: JSON = spec.get("resourceAttributes") or {}
    if not desired:
        refused = None if subject.is_admin else ""
    else:
        refused = authorize(subject, _request(desired))
    status: JSON = {"allowed": refused is None}
    if refused:
        status["reason"] = refused
    return _answer(review, status=status)


def _check_attributes(review: JSON, spec: JSON) -> None:
    """Check that a review has exactly one question, in one form. Raises ApiError."""
    desired: JSON = spec.get("resourceAttributes") or {}
    path: JSON = spec.get("nonResourceAttributes") or {}
    selectors = {key: desired.get(key) or {} for key in ("fieldSelector", "labelSelector")}
    twice = [key for key, supplied in selectors.items() if _is_twice(supplied)]
    metadata: JSON = review.get("metadata") or {}
    namespace = metadata.get("namespace") or ""
    is_local = str(review.get("kind", "")).startswith("Local")
    if desired and path:
        named = {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
        reported = json.dumps(named, separators=(",", ":"))
        _refuse("spec", f"Invalid value: {reported}: {_ONE_OF}")
    if not desired and not path:
        _refuse("spec", f"Invalid value: null: {_ONE_OF}")
    if twice:
        raw = selectors[twice[0]]["rawSelector"]
        _refuse(
            f"spec.resourceAttributes.{twice[0]}.rawSelector",
            f'Invalid value: "{raw[:63]}": may not specified at the same time as requirements',
        )
    if is_local and (desired.get("namespace") or "") != namespace:
        reported = desired.get("namespace") or ""
        text = f'Invalid value: "{reported}": must match metadata.namespace'
        _refuse("spec.resourceAttributes.namespace", text)
    if {key for key, value in metadata.items() if value} - ({"namespace"} if is_local else set()):
        _refuse("metadata", f"Invalid value: {json.dumps(metadata)[:500]}: must be empty")


def _is_twice(selector: JSON) -> bool:
    return bool(selector.get("rawSelector") and selector.get("requirements"))


def _refuse(field: str, text: str) -> None:
    raise invalid("", "", [Cause("FieldValueInvalid", field, text)], _GROUP)


def _request(desired: JSON) -> Request:
    group, resource = desired.get("group") or "", desired.get("resource") or ""
    return Request(
        verb=desired.get("verb") or "",
        resource=f"{resource}.{group}" if group else resource,
        subresource=desired.get("subresource") or "",
        namespace=desired.get("namespace") or "",
        name=desired.get("name") or "",
        node_selector=_node_selector(desired.get("fieldSelector") or {}),
    )


def _node_selector(selector: JSON) -> str:
    for each in selector.get("requirements") or ():
        values: list[str] = each.get("values") or []
        if (each.get("key"), each.get("operator")) == ("spec.nodeName", "In") and len(values) == 1:
            return values[0]
    return ""
