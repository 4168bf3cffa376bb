"""Refusals of the API: Kubernetes Status errors. Pure.

Every refusal in this package is an :class:`ApiError`; the HTTP layer turns it into the Status
object that kubectl and client-go read. Must never carry a secret's content in a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct

_ALWAYS_DETAILED = frozenset({"Invalid", "NotFound", "MethodNotAllowed"})
"""Reasons whose details are shown even if empty."""
MAX_CAUSES = 100
"""How many causes one Status lists; any more are only counted."""


class Cause(Struct, frozen=True):
    """One field that is wrong: a metav1.StatusCause.

    Attributes:
        reason: FieldValueRequired, FieldValueInvalid, FieldValueNotSupported, FieldValueNotFound,
            FieldValueForbidden, FieldValueDuplicate, FieldValueTooLong, …
        field: path such as ``spec.containers[0].name``.
        message: without the field, such as ``Required value``.
    """

    reason: str
    field: str
    message: str


@dataclass(slots=True)
class ApiError(Exception):
    """A refused request.

    Attributes:
        code: HTTP status.
        reason: metav1.StatusReason, such as ``NotFound``.
        message: for people.
        details: metav1.StatusDetails (name, group, kind, causes, retryAfterSeconds, …).
        continue_: a token with which the list can still be continued.
    """

    code: int
    reason: str
    message: str
    details: JSON = field(default_factory=dict)
    continue_: str = ""

    def __post_init__(self) -> None:
        Exception.__init__(self, self.message)

    def __str__(self) -> str:
        return self.message

    def status(self) -> JSON:
        """The metav1.Status object to answer with."""
        status: JSON = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_} if self.continue_ else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details or self.reason in _ALWAYS_DETAILED:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(resource: str, name: str, group: str = "") -> JSON:
    details: JSON = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if resource:
        details["kind"] = resource
    return details


def _qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def not_found(resource: str, name: str, group: str = "") -> ApiError:
    """404: ``pods "NAME" not found``. ``resource`` is the plural."""
    message = f'{_qualified(resource, group)} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(resource, name, group))


def unknown_path() -> ApiError:
    """404 for a path or resource that the server does not have."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: str, name: str, group: str = "") -> ApiError:
    """409: ``pods "NAME" already exists``."""
    message = f'{_qualified(resource, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(resource, name, group))


def conflict(resource: str, name: str, why: str = "", group: str = "") -> ApiError:
    """409: ``Operation cannot be fulfilled on pods "NAME": WHY``; by default a stale version."""
    why = why or (
        "the object has been modified; "
        "please apply your changes to the latest version and try again"
    )
    message = f'Operation cannot be fulfilled on {_qualified(resource, group)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name, group))


def changed_meanwhile() -> ApiError:
    """409: what a large request has read changes faster than the request is done."""
    message = "the objects that this request concerns keep changing; please try again"
    return ApiError(409, "Conflict", message)


def apply_conflict(message: str, causes: Sequence[Cause]) -> ApiError:
    """409 of server-side apply: causes with reason FieldManagerConflict."""
    return ApiError(409, "Conflict", message, {"causes": _causes(causes)})


def _causes(causes: Sequence[Cause]) -> list[JSON]:
    reported = causes[:MAX_CAUSES]
    return [{"reason": c.reason, "message": c.message, "field": c.field} for c in reported]


def invalid(kind: str, name: str, causes: Sequence[Cause], group: str = "") -> ApiError:
    """422: ``Pod "NAME" is invalid: FIELD: MESSAGE``, several causes in brackets."""
    reported = causes[:MAX_CAUSES]
    messages = (f"{c.field}: {c.message}" if c.field else c.message for c in reported)
    lines = list(dict.fromkeys(messages))
    if len(causes) > len(reported):
        lines.append(f"and {len(causes) - len(reported)} more")
    text = lines[0] if len(lines) == 1 else "[" + ", ".join(lines) + "]"
    details = _details(kind, name, group)
    details["causes"] = _causes(causes)
    qualified = _qualified(kind, group)
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details)


def invalid_options(kind: str, field: str, reason: str, message: str) -> ApiError:
    """422: a wrong option of a request, such as ``dryRun`` of ``CreateOptions``."""
    return invalid(kind, "", [Cause(reason, field, message)], "meta.k8s.io")


def invalid_patch(why: str) -> ApiError:
    """422: a patch whose result is no object of its kind. The object itself is not shown."""
    text = f"Invalid value: {why}"
    cause = {"reason": "FieldValueInvalid", "message": text, "field": "patch"}
    return ApiError(422, "Invalid", f' "" is invalid: patch: {text}', {"causes": [cause]})


def bad_request(message: str) -> ApiError:
    """400: the request is malformed."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: the client is not authenticated."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: str, name: str, why: str, group: str = "") -> ApiError:
    """403: ``pods "NAME" is forbidden: WHY``."""
    subject = f'{_qualified(resource, group)} "{name}"' if name else _qualified(resource, group)
    message = f"{subject} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, _details(resource, name, group))


def removed(message: str, continue_: str = "") -> ApiError:
    """410 with reason Expired: a watch or a continue token that is too old."""
    return ApiError(410, "Expired", message, continue_=continue_)


def method_not_allowed(resource: str, verb: str, group: str = "") -> ApiError:
    """405: the resource does not support the verb."""
    message = f'{verb} is not supported on resources of kind "{_qualified(resource, group)}"'
    return ApiError(405, "MethodNotAllowed", message, _details(resource, "", group))


def not_stored(resource: str, name: str, message: str, group: str = "") -> ApiError:
    """405 for a write to what only clusters have; the message has the reason and the remedy."""
    return ApiError(405, "MethodNotAllowed", message, _details(resource, name, group))


def method_not_served() -> ApiError:
    """405 for a path without that method."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def not_acceptable(offered: Sequence[str]) -> ApiError:
    """406: the client accepts none of the media types that we can write."""
    message = "only the following media types are accepted: " + ", ".join(offered)
    return ApiError(406, "NotAcceptable", message)


def wrong_form(message: str) -> ApiError:
    """406: the answer can't be given in the requested form."""
    return ApiError(406, "NotAcceptable", message)


def unsupported_media_type(got: str, offered: Sequence[str]) -> ApiError:
    """415: a body or a patch of a type that we don't read."""
    message = (
        f"the body of the request was in an unknown format ({got or 'none'}) - "
        f"accepted media types include: {', '.join(offered)}"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> ApiError:
    """413: the body is larger than ``limit`` bytes."""
    return ApiError(
        413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit} bytes"
    )


def too_many_connections(user: str) -> ApiError:
    """429: a user has more than their share of the port's connections."""
    return ApiError(
        429,
        "TooManyRequests",
        f"user {user!r} has too many connections to this server",
        {"retryAfterSeconds": 1},
    )


def unavailable(message: str) -> ApiError:
    """503: a later try may succeed."""
    return ApiError(503, "ServiceUnavailable", message)


def internal(message: str) -> ApiError:
    """500: our own fault; the message states only that something broke."""
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )


def success(resource: str, name: str, uid: str, group: str = "") -> JSON:
    """The Status that answers a completed deletion."""
    details = _details(resource, name, group)
    if uid:
        details["uid"] = uid
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }
