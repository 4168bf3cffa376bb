"""Why a provider of resources does not allocate what a container requests. Pure."""

from __future__ import annotations

from kubeletpy.kubeapi.events.reasons import AdmissionReason

UNEXPECTED = AdmissionReason.UNEXPECTED_ADMISSION_ERROR


class AllocationRefused(Exception):
    """A provider cannot allocate what a container requests: the pod is refused.

    ``reason`` is that of the pod's status, and the text its message; ``container`` is the one that
    requested, if known. Source: docs/reference/behaviour-resources.md, ro, rq, rt.
    """

    def __init__(
        self, message: str, reason: AdmissionReason = UNEXPECTED, container: str = ""
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.container = container


def not_written(file: str, error: OSError) -> AllocationRefused:
    """The refusal when an allocation could not be recorded on the disk."""
    where = f" ({error.filename})" if error.filename else ""
    return AllocationRefused(
        f"Allocate failed due to {file} not being written: {error.strerror or error}{where}, "
        "which is unexpected"
    )
