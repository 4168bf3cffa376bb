"""Certificates and their subjects, as plain data. Pure.

Kept apart from the X.509 library, which is only loaded where a certificate is read or made
(:mod:`.x509`, :mod:`.signing`).
"""

from __future__ import annotations

from kubeletpy.structs import Struct


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
