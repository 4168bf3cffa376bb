"""Reports on each new Service that nothing here serves its address or its name.

Services are stored, since pods get their addresses as variables; traffic is what a cluster adds.
Like each controller it has a module of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy_up.cluster_kinds import refusal
from kubeletpy_up.controllers.reconciler import Key, Reconciler, key_of
from kubeletpy_up.storage.history import Change

REASON = "NotProxied"


def notice(service: JSON) -> str:
    """The message about what does not work for a Service, and what to do instead. Pure."""
    spec = service.get("spec") or {}
    address = spec.get("clusterIP") or ""
    if spec.get("type") == "ExternalName" or address in ("", "None"):
        what, why = "The Service's name is not resolved", "has no DNS server"
    else:
        what, why = f"{address} is not routed to Pods", "runs no service proxy"
    return refusal(what, why, "connect to the addresses of Pods")


class ServiceNotices(Reconciler):
    """Writes one Warning event for each Service that is created while it runs."""

    component = "service-notices"

    def everything(self) -> Iterable[Key]:
        """None: Services of an earlier start have had their event."""
        return ()

    def concerned(self, change: Change) -> Iterable[Key]:
        """The Service that a change has added."""
        if change.resource == "services" and change.type == "ADDED":
            yield key_of("services", change.object)

    def check(self, key: Key) -> None:
        """Report what is not served for a Service."""
        service = self.find(key)
        if service is not None:
            self.report("Service", service, "Warning", REASON, notice(service))
