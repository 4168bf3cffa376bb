"""Errors of CRI calls, with a class per gRPC status that callers distinguish, and deadlines. Pure.

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
    def reported(self) -> str:
        """The name of gRPC in Go, which people search for: "DeadlineExceeded"."""
        return go_code_name(self.value)


def go_code_name(name: str) -> str:
    """Return the name of a status code in Go: NotFound for NOT_FOUND, Canceled for CANCELLED."""
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
    """Return the error for a status: of the class for its code, or a plain CRIError."""
    kind = _BY_CODE.get(code, CRIError)
    return kind(method, details, target=target, code=code)


# Timeouts: gRPC's own texts ("Deadline Exceeded") name neither the call nor the time

_OWN_TEXTS = ("", "deadline exceeded", "stream removed", "stream removed (deadline exceeded)")


def is_silence(code: Code, details: str) -> bool:
    """Whether a status comes from gRPC itself, because the deadline passed without an answer.

    If not, the peer sent the text, which is kept.
    """
    text = details.strip().lower()
    if code is Code.DEADLINE_EXCEEDED:
        return text in _OWN_TEXTS
    return code in (Code.UNKNOWN, Code.CANCELLED) and "(deadline exceeded)" in text


def no_answer(timeout: float | None) -> str:
    """Return the message of a timeout: ``no answer within 120s``."""
    return "no answer in time" if timeout is None else f"no answer within {timeout:g}s"


def runtime_is_silent(method: str, endpoint: str, timeout: float | None) -> str:
    """Return the message of a CRI call without an answer, with a remedy."""
    return (
        f"{no_answer(timeout)} to {method} from the container runtime at {endpoint}; check that it "
        "is running and not overloaded or stopped, or raise runtimeRequestTimeout"
    )


# Deadlines

DEFAULT_REQUEST_TIMEOUT = 120.0
"""Seconds; KubeletConfiguration's runtimeRequestTimeout."""

NO_DEADLINE = frozenset({"PullImage", "GetContainerEvents"})
"""Calls without a time limit: cancel them to give up."""


def deadline_for(method: str, request_timeout: float, *, own: float = 0.0) -> float | None:
    """Return the seconds that ``method`` (the CRI's name) may take, or None for no limit.

    The rules are the kubelet's (cri-client; docs/reference/constants.csv: cri).

    ``request_timeout`` is runtimeRequestTimeout in seconds. ``own`` is the timeout the request
    itself carries, in seconds: StopContainer's grace period, ExecSync's and CheckpointContainer's
    timeout.
    """
    if method in NO_DEADLINE:
        return None
    if method == "RunPodSandbox":
        return 2 * request_timeout
    if method == "StopContainer":
        return own + request_timeout
    if method == "ExecSync":
        return own + request_timeout if own else None
    if method == "CheckpointContainer":
        return max(own, request_timeout)
    return request_timeout
