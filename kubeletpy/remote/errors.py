"""Errors of CRI calls: a class per gRPC status that callers distinguish.

Pure.

Needs no gRPC: pure modules, a simulated runtime and a user's own runtime raise and catch these
without importing it. Must never carry credentials: ``details`` is text that goes to logs, events
and pod statuses, so the builder of an error removes secrets first (``scrub``).
"""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.base.text import scrub


class Code(StrEnum):
    """The status codes of gRPC, by name."""

    OK = "OK"
    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"

    @property
    def shown(self) -> str:
        """The name of gRPC in Go, which people search for: "DeadlineExceeded"."""
        return code_in_words(self.value)


def code_in_words(name: str) -> str:
    """NOT_FOUND is NotFound, CANCELLED is Canceled."""
    return {"OK": "OK", "CANCELLED": "Canceled"}.get(name) or name.title().replace("_", "")


class CRIError(Exception):
    """A call to the runtime or image service that failed.

    ``method`` is the CRI's name of the call ("RunPodSandbox"), ``details`` the runtime's message,
    ``code`` the status. ``target`` is the id, image or pod that the call was about ("" for calls
    about the entire runtime). The text of the exception names them all.
    """

    code: Code = Code.UNKNOWN

    def __init__(
        self, method: str, details: str = "", *, target: str = "", code: Code | None = None
    ) -> None:
        self.method = method
        self.details = scrub(details)
        self.target = target
        if code is not None:
            self.code = code
        about = f" {target}" if target else ""
        super().__init__(f"{method}{about}: {self.details or self.code} ({self.code})")


class Cancelled(CRIError):
    """The runtime, or our own end when it closed, gave up the call."""

    code = Code.CANCELLED


class InvalidArgument(CRIError):
    """The runtime refuses the request; repeating it unchanged is pointless."""

    code = Code.INVALID_ARGUMENT


class DeadlineExceeded(CRIError):
    """No answer in time. The runtime may still be working on it: check before retrying."""

    code = Code.DEADLINE_EXCEEDED


class NotFound(CRIError):
    """The sandbox, container or image does not exist (any more)."""

    code = Code.NOT_FOUND


class AlreadyExists(CRIError):
    """A sandbox or container of that name and attempt already exists."""

    code = Code.ALREADY_EXISTS


class PermissionDenied(CRIError):
    """The runtime, or the registry behind it, denies us access."""

    code = Code.PERMISSION_DENIED


class Unauthenticated(CRIError):
    """The registry requires different credentials."""

    code = Code.UNAUTHENTICATED


class ResourceExhausted(CRIError):
    """A limit was exceeded; also an answer larger than we accept (16 MiB)."""

    code = Code.RESOURCE_EXHAUSTED


class FailedPrecondition(CRIError):
    """Not possible in the current state, such as starting a container that has exited."""

    code = Code.FAILED_PRECONDITION


class Unimplemented(CRIError):
    """The runtime has no such call."""

    code = Code.UNIMPLEMENTED


class Internal(CRIError):
    """The runtime has an internal error."""

    code = Code.INTERNAL


class Unavailable(CRIError):
    """The runtime cannot be reached, or was lost during the call."""

    code = Code.UNAVAILABLE


class InvalidResponse(CRIError):
    """The runtime answered nonsense: an empty id, a status without its metadata."""

    code = Code.INTERNAL


class IncompatibleRuntime(CRIError):
    """The program at the endpoint does not support CRI v1."""

    code = Code.UNIMPLEMENTED


_BY_CODE: dict[Code, type[CRIError]] = {
    kind.code: kind
    for kind in (
        Cancelled,
        InvalidArgument,
        DeadlineExceeded,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        Unauthenticated,
        ResourceExhausted,
        FailedPrecondition,
        Unimplemented,
        Internal,
        Unavailable,
    )
}


def error_for(code: Code, method: str, details: str, *, target: str = "") -> CRIError:
    """The error for a status: the class for its code, or plain CRIError for codes that are not
    distinguished."""
    kind = _BY_CODE.get(code, CRIError)
    return kind(method, details, target=target, code=code)
