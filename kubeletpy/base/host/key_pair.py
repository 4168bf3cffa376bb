"""A certificate and its key, in files."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

from kubeletpy.base.host.private_files import write_private
from kubeletpy.base.structs import Struct


class KeyPair(Struct, frozen=True):
    """A certificate and its key: PEM files."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, directory: Path, name: str) -> KeyPair:
        """``NAME.crt`` and ``NAME.key`` in a directory."""
        return cls(directory / f"{name}.crt", directory / f"{name}.key")

    def loads(self) -> bool:
        """Whether both exist and belong together."""
        with contextlib.suppress(OSError, ssl.SSLError, ValueError):
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.certificate, self.key)
            return True
        return False

    def store(self, certificate: bytes, key: bytes) -> None:
        """Write both (PEM) atomically, as private files. Raises OSError."""
        self.certificate.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self.key, key)
        write_private(self.certificate, certificate)
