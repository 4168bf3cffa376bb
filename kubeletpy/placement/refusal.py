"""Why a provider of resources does not give what a container asks for. Pure."""

from __future__ import annotations

UNEXPECTED = "UnexpectedAdmissionError"


class AllocationRefused(Exception):
    """A provider cannot give a container what it asks for: the pod is refused.

    ``reason`` is that of the pod's status, and the text its message. Source:
    docs/reference/behaviour-resources.md, ro, rq, rt.
    """

    def __init__(self, message: str, reason: str = UNEXPECTED) -> None:
        super().__init__(message)
        self.reason = reason


def not_written(file: str, error: OSError) -> AllocationRefused:
    """The refusal when what was given could not be noted on the disk."""
    return AllocationRefused(
        f"Allocate failed due to {file} not being written: {error.strerror or error}, "
        "which is unexpected"
    )
