"""What certificates and requests for them say, new keys and requests: by the openssl command.

Blocking: call it on a thread. Everything read may come from strangers: what openssl can't read is a
CertificateError. Keys go to openssl through pipes; must never write, print or log one.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from dataclasses import dataclass

from kubeletpy.host.openssl import CertificateError, plain, run

MAX_PEM_BYTES = 256 * 1024
_NAME_FORM = "utf8,sep_multiline,sname,esc_ctrl,esc_msb"
"""One part a line, and nothing in a part looks like a line's end to anybody: ASCII only."""
_TOGETHER = " + "
"""Between the parts of a name that stand on one line."""
_ALTERNATIVES = "X509v3 Subject Alternative Name:"
_DNS_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----\n.*?-----END CERTIFICATE-----\n?", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Names:
    """Whom a certificate is for; addresses in their canonical form.

    ``others``: alternative names of further kinds and parts of the subject that are joined into
    one, as openssl shows them.
    """

    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    ip_addresses: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate (the first one of its PEM text); times in Unix seconds."""

    names: Names
    not_before: float
    not_after: float


def new_key() -> bytes:
    """A private key (P-256), PEM. Raises CertificateError."""
    return run("ecparam", "-name", "prime256v1", "-genkey", "-noout")


def public_key(key: bytes) -> bytes:
    """The public part of a private key, DER. Raises CertificateError."""
    return run("pkey", "-pubout", "-outform", "DER", data=key)


def new_request(key: bytes, names: Names) -> bytes:
    """A request for a certificate (PKCS #10, PEM).

    Raises:
        CertificateError: openssl is missing or failed, or a name can't stand in a certificate.
    """
    subject = "".join(f"/O={plain(each)}" for each in names.organizations)
    subject += f"/CN={plain(names.common_name)}"
    alternatives = [f"DNS:{plain(each)}" for each in names.dns_names]
    alternatives += [f"IP:{plain(each)}" for each in names.ip_addresses]
    more = ("-addext", "subjectAltName=" + ",".join(alternatives)) if alternatives else ()
    return run("req", "-new", "-key", "/dev/stdin", "-subj", subject, *more, data=key)


def certificates_of(pem: bytes) -> list[bytes]:
    """The certificates in a PEM text, leaf first; anything else in it is left out."""
    found: list[bytes] = _CERTIFICATE.findall(pem[:MAX_PEM_BYTES].replace(b"\r\n", b"\n"))
    return [each if each.endswith(b"\n") else each + b"\n" for each in found]


def read_certificate(pem: bytes) -> Certificate:
    """What the first certificate of a PEM text says. Raises CertificateError."""
    found = certificates_of(pem)
    if not found:
        raise CertificateError("there is no certificate in it")
    text = run(
        *("x509", "-noout", "-startdate", "-enddate", "-subject", "-nameopt", _NAME_FORM),
        *("-ext", "subjectAltName"),
        data=found[0],
    ).decode(errors="replace")
    return Certificate(_names(text), _time(text, "notBefore="), _time(text, "notAfter="))


def read_request(pem: bytes) -> Names:
    """Whom a request is for; not whether its signature is right. Raises CertificateError."""
    text = run(
        *("req", "-noout", "-text", "-subject", "-nameopt", _NAME_FORM),
        *("-reqopt", "no_pubkey,no_sigdump"),
        data=pem[:MAX_PEM_BYTES],
    )
    return _names(text.decode(errors="replace"))


def _names(text: str) -> Names:
    # not splitlines(): it also splits at what strangers may have in their names
    lines = text.split("\n")
    common, organizations, joined = "", [], []
    # the last one: of a request's long form the subject comes first on a line of its own
    start = max((at for at, line in enumerate(lines) if line == "subject="), default=len(lines))
    for line in lines[start + 1 :]:
        if not line.startswith("    "):
            break
        key, _, value = line[4:].partition("=")
        if _TOGETHER in value:
            joined.append(line[4:])
        elif key == "CN":
            common = value
        elif key == "O":
            organizations.append(value)
    dns, addresses, others = _alternatives(lines)
    return Names(common, tuple(organizations), dns, addresses, (*others, *joined))


def _alternatives(lines: list[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    dns, addresses, others = [], [], []
    for at, line in enumerate(lines[:-1]):
        if not line.strip().startswith(_ALTERNATIVES):
            continue
        for each in lines[at + 1].strip().split(", "):
            kind, _, value = each.partition(":")
            if kind == "DNS" and _DNS_NAME.fullmatch(value):
                dns.append(value)
            elif kind == "IP Address" and (address := _address(value)):
                addresses.append(address)
            else:
                others.append(each)
        break
    return tuple(dns), tuple(addresses), tuple(others)


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def _time(text: str, label: str) -> float:
    for line in text.split("\n"):
        if line.startswith(label):
            try:
                return float(ssl.cert_time_to_seconds(line.removeprefix(label)))
            except ValueError:
                break
    raise CertificateError(f"openssl shows no {label.rstrip('=')}")
