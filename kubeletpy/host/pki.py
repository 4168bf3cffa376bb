"""Certificates, keys and whom they are for, as plain data.

Apart from the X.509 library, which is loaded where one is read or made (:mod:`.x509`,
:mod:`.signing`) and not before. Must never print or log a key.
"""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass
from pathlib import Path

from kubeletpy.host.private_files import write_private


class CertificateError(Exception):
    """A certificate, request or key can't be read or made; the message says why."""


@dataclass(frozen=True, slots=True)
class Names:
    """Whom a certificate is for; addresses in their canonical form.

    ``others``: alternative names of further kinds and parts of the subject that are joined into
    one, as people read them.
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


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key: PEM files."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, directory: Path, name: str) -> KeyPair:
        """``NAME.crt`` and ``NAME.key`` in a directory."""
        return cls(directory / f"{name}.crt", directory / f"{name}.key")

    def loads(self) -> bool:
        """Whether both are there and belong together."""
        with contextlib.suppress(OSError, ssl.SSLError, ValueError):
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            return True
        return False

    def store(self, certificate: bytes, key: bytes) -> None:
        """Write both (PEM), private and atomically. Raises OSError."""
        self.certificate.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self.key, key)
        write_private(self.certificate, certificate)
