"""The text of a call that ended because nobody answered in time. Pure.

gRPC's own texts ("Deadline Exceeded", "Stream removed (Deadline Exceeded)") name neither the call
nor the time. A text that the peer sent is kept.
"""

from __future__ import annotations

from kubeletpy.remote.errors import Code

_OWN_TEXTS = ("", "deadline exceeded", "stream removed", "stream removed (deadline exceeded)")


def is_silence(code: Code, details: str) -> bool:
    """Whether a status comes from gRPC itself, because the deadline passed without an answer."""
    text = details.strip().lower()
    if code is Code.DEADLINE_EXCEEDED:
        return text in _OWN_TEXTS
    return code in (Code.UNKNOWN, Code.CANCELLED) and "(deadline exceeded)" in text


def no_answer(timeout: float | None) -> str:
    """The message of a timeout: ``no answer within 120s``."""
    return "no answer in time" if timeout is None else f"no answer within {timeout:g}s"


def runtime_is_silent(method: str, endpoint: str, timeout: float | None) -> str:
    """The message of a CRI call without an answer, with a remedy."""
    return (
        f"{no_answer(timeout)} to {method} from the container runtime at {endpoint}; check that it "
        "is running and not overloaded or stopped, or raise runtimeRequestTimeout"
    )
