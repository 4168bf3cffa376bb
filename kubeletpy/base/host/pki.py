"""Certificates and their subjects, as plain data. Pure.

Apart from :mod:`.x509`, which loads a library of 10 MB: that is imported only where a key or a
certificate is made, or a request is read. A node that has its certificates starts without it.
"""

from __future__ import annotations

import base64
import ipaddress
import re

from kubeletpy.base.api.times import format_time, parse_time
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


# Reading. Which certificate is trusted is OpenSSL's decision, never one of this code: it finds when
# a certificate ends, and whom it is for. Source: RFC 5280, 4.1; DER of ITU-T X.690.

MAX_PEM_BYTES = 256 * 1024
_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----\n.*?-----END CERTIFICATE-----\n?", re.DOTALL
)
_COMMON_NAME, _ORGANIZATION, _ALTERNATIVES = b"\x55\x04\x03", b"\x55\x04\x0a", b"\x55\x1d\x11"
"""The identifiers 2.5.4.3, 2.5.4.10 and 2.5.29.17."""
_VERSION, _EXTENSIONS = 0xA0, 0xA3
_DNS_NAME, _IP_ADDRESS = 0x82, 0x87
_UTC_TIME = 0x17
"""A time with two digits of the year: from 50 on, of the last century."""
_ENCODINGS = {0x1C: "utf-32-be", 0x1E: "utf-16-be"}
"""Encodings of texts by their tag; those of others are UTF-8 or part of it."""

_Element = tuple[int, bytes]


def certificates_of(pem: bytes) -> list[bytes]:
    """The certificates in a PEM text, leaf first; anything else in it is ignored."""
    found: list[bytes] = _CERTIFICATE.findall(pem[:MAX_PEM_BYTES].replace(b"\r\n", b"\n"))
    return [each if each.endswith(b"\n") else each + b"\n" for each in found]


def read_certificate(pem: bytes) -> Certificate:
    """The fields of the first certificate of a PEM text, without names of other kinds.

    Raises CertificateError.
    """
    found = certificates_of(pem)
    if not found:
        raise CertificateError("there is no certificate in it")
    try:
        text = b"".join(found[0].splitlines()[1:-1])
        return _certificate(base64.b64decode(text, validate=True))
    except (ValueError, IndexError, OverflowError) as error:
        raise CertificateError(f"the certificate can't be read: {error}") from None


def _certificate(der: bytes) -> Certificate:
    [(_, certificate)] = _elements(der)
    [(_, signed), _, _] = _elements(certificate)
    fields = _elements(signed)
    if fields[0][0] == _VERSION:
        del fields[0]
    _, _, (_, issuer), (_, validity), (_, subject), *others = fields
    begins, ends = map(_moment, _elements(validity))
    extensions = [content for tag, content in others if tag == _EXTENSIONS]
    dns, addresses = _alternatives(extensions[0]) if extensions else ((), ())
    common, organizations = _subject(subject)
    names = Names(common, organizations, dns, addresses)
    return Certificate(names, begins, ends, _subject(issuer)[0])


def _elements(data: bytes) -> list[_Element]:
    """The elements of DER in order: tag and content. Raises ValueError, IndexError."""
    found, at = [], 0
    while at < len(data):
        tag, length, at = data[at], data[at + 1], at + 2
        if length > 0x80:
            size, at = length - 0x80, at + length - 0x80
            length = int.from_bytes(data[at - size : at], "big")
        elif length == 0x80:
            raise ValueError("an element has no length")
        if at + length > len(data):
            raise ValueError("an element is cut off")
        found.append((tag, data[at : at + length]))
        at += length
    return found


def _moment(element: _Element) -> float:
    tag, content = element
    digits = content.decode("ascii")
    if tag == _UTC_TIME:
        digits = ("19" if digits >= "50" else "20") + digits
    return parse_time(f"{digits[:8]}T{digits[8:]}")


def _subject(name: bytes) -> tuple[str, tuple[str, ...]]:
    """The common name and the organizations; parts that are joined into one are left out."""
    common, organizations = "", []
    for _, joined in _elements(name):
        parts = _elements(joined)
        if len(parts) > 1:
            continue
        [(_, identifier), (tag, content)] = _elements(parts[0][1])
        if identifier == _COMMON_NAME:
            common = content.decode(_ENCODINGS.get(tag, "utf-8"))
        elif identifier == _ORGANIZATION:
            organizations.append(content.decode(_ENCODINGS.get(tag, "utf-8")))
    return common, tuple(organizations)


def _alternatives(extensions: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The DNS names and the IP addresses among the alternative names."""
    dns, addresses = [], []
    [(_, every)] = _elements(extensions)
    for _, extension in _elements(every):
        (_, identifier), *_, (_, value) = _elements(extension)
        if identifier != _ALTERNATIVES:
            continue
        [(_, names)] = _elements(value)
        for tag, content in _elements(names):
            if tag == _DNS_NAME:
                dns.append(content.decode("ascii"))
            elif tag == _IP_ADDRESS and len(content) in (4, 16):
                addresses.append(str(ipaddress.ip_address(content)))
    return tuple(dns), tuple(addresses)
