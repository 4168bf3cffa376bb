"""Metrics of the node's certificates: remaining lifetime, renewals and their failures."""

from __future__ import annotations

import math

from kubeletpy.metrics.families import Families

LIFETIMES = (
    *(60, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000),
    124416000,
)
"""Seconds: a minute to four years."""


class CertificateMetrics:
    """For the client and the serving certificate; without one its TTL is +Inf."""

    def __init__(self, families: Families) -> None:
        self.client_ttl = families.gauge(
            "kubelet_certificate_manager_client_ttl_seconds",
            "Time until the client certificate ends; negative when it has, +Inf without one.",
        )
        self.client_renew_errors = families.counter(
            "kubelet_certificate_manager_client_expiration_renew_errors",
            "Failures to renew the client certificate.",
        )
        self.server_ttl = families.gauge(
            "kubelet_certificate_manager_server_ttl_seconds",
            "Time until the serving certificate ends; negative when it has, +Inf without one.",
        )
        self.server_rotation = families.histogram(
            "kubelet_certificate_manager_server_rotation_seconds",
            "How long the previous serving certificate was in use when it was replaced.",
            buckets=LIFETIMES,
        )
        self.server_renew_errors = families.counter(
            "kubelet_server_expiration_renew_errors",
            "Failures to renew the serving certificate.",
        )
        self.client_ttl.set(math.inf)
        self.server_ttl.set(math.inf)
