"""Certificates and their subjects, as plain data. Pure.

Apart from :mod:`.x509`, which loads a library of 10 MB: that is imported only where a certificate
is read or made.
"""

from __future__ import annotations

from kubeletpy.base.api.times import format_time
from kubeletpy.base.structs import Struct

CLOCK_SET = 1767225600.0
"""Unix seconds of 2026-01-01: a clock that shows less has not been set since the machine booted."""
LEFT = 0.1
"""A certificate is replaced in the last tenth of its life."""


class CertificateError(Exception):
    """A certificate, request or key can't be read or made; the message contains the reason."""


class Names(Struct, frozen=True):
    """Whom a certificate is for; addresses in their canonical form.

    ``others``: alternative names of other kinds, and parts of the subject that are joined into
    one, in readable form.
    """

    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


class Certificate(Struct, frozen=True):
    """A certificate (the first one of its PEM text); times in Unix seconds."""

    names: Names
    not_before: float
    not_after: float
    issuer: str = ""
    """The issuer's common name."""

    def outdated(self, now: float) -> str:
        """Why it can't be used for long after ``now`` (Unix seconds); empty: it can.

        A certificate that becomes valid in the future is fine while the clock has not been set.
        """
        if now >= self.not_after:
            return f"expired at {format_time(self.not_after)}"
        if now >= self.not_after - LEFT * (self.not_after - self.not_before):
            return f"expires at {format_time(self.not_after)}"
        if CLOCK_SET <= now < self.not_before:
            return f"is not valid before {format_time(self.not_before)}"
        return ""

    def lacks(self, names: Names) -> str:
        """The required organizations, DNS names or addresses that it lacks; empty: none."""
        has = self.names
        for what, required, there in (
            ("organization", names.organizations, has.organizations),
            ("DNS name", names.dns_names, has.dns_names),
            ("address", names.ip_addresses, has.ip_addresses),
        ):
            if lacking := sorted(set(required) - set(there)):
                return f"lacks the {what} {', '.join(lacking)}"
        return ""
