"""The reasons of the events that the agent records, and of rejections. Pure.

The members are written from docs/reference/events.csv and docs/reference/reasons.csv: admission.
Apart from the generated module, because these names are imported from here.
"""

from __future__ import annotations

from kubeletpy.kubeapi.events.generated.reasons import COUNTED, AdmissionReason, Reason

__all__ = ["OUT_OF", "AdmissionReason", "EventReason", "Reason", "metric_label"]

OUT_OF = "OutOf"
EventReason = Reason | AdmissionReason


def metric_label(reason: AdmissionReason) -> str:
    """The ``reason`` of kubelet_admission_rejections_total, whose labels are bounded."""
    if reason.name not in AdmissionReason.__members__:
        return "OutOfExtendedResources"
    return reason.value if reason.value in COUNTED else "Other"
