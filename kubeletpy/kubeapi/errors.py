"""The errors that a Kubernetes API can return instead of an object, as types. Pure.

Must never carry request bodies or credentials, because messages end up in logs and events.
"""

from __future__ import annotations

from kubeletpy.base.api.types import JSON


class ApiError(Exception):
    """The API refused a request or could not be reached.

    Attributes:
        code: HTTP status; 0 when there was no answer.
        reason: the Status object's reason (``NotFound``, ``Conflict``, ...), possibly empty.
        message: for people.
        details: the Status object's details (name, kind, causes), possibly empty.
        retry_after: seconds that the server requests to wait, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        details: JSON | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: JSON = details or {}
        self.retry_after = retry_after


class BadRequest(ApiError):
    """400: the server could not read the request."""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: this identity may not do that (or the authorizer has not seen the relation yet)."""


class NotFound(ApiError):
    """404: no such object (or no such resource)."""


class AlreadyExists(ApiError):
    """409 on create: the name is taken."""


class Conflict(ApiError):
    """409: stale resourceVersion, or a uid precondition that does not hold."""


class Removed(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object breaks a rule; ``details["causes"]`` states which fields."""


class TooManyRequests(ApiError):
    """429: slow down; ``retry_after`` has the seconds."""


class Unavailable(ApiError):
    """No answer (network, timeout, unreadable answer) or 5xx: trying later can help."""


class NoAnswerYet(Unavailable):
    """A first answer is still awaited: so far nothing is wrong."""


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Removed,
    422: Invalid,
    429: TooManyRequests,
}


def from_status(code: int, status: object, *, retry_after: float | None = None) -> ApiError:
    """Make the error for a response.

    Args:
        code: HTTP status; a Status object's own ``code`` is used when this is 0.
        status: the decoded body, normally a Status object. With anything else, such as a proxy's
            answer, only the reason is lost.
        retry_after: seconds of the Retry-After header.
    """
    body: JSON = status if isinstance(status, dict) else {}
    raw_code = body.get("code")
    code = code or (raw_code if isinstance(raw_code, int) else 0)
    reason = body.get("reason")
    reason = reason if isinstance(reason, str) else ""
    message = body.get("message")
    message = message if isinstance(message, str) and message else reason or f"HTTP status {code}"
    details = body.get("details")
    details = details if isinstance(details, dict) else {}
    if retry_after is None:
        seconds = details.get("retryAfterSeconds")
        if isinstance(seconds, int | float) and seconds > 0:
            retry_after = float(seconds)
    kind = _BY_CODE.get(code, Unavailable if code >= 500 or code == 0 else ApiError)
    if code == 409 and reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(message, code=code, reason=reason, details=details, retry_after=retry_after)
