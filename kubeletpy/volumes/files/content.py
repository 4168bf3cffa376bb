"""The content of a volume's files, and the credentials that some of it is made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


class PayloadError(Exception):
    """The files of a volume cannot be made; the message names the object and what it lacks."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """One file."""

    data: bytes = field(repr=False)
    mode: int
    owner: int | None = None
    """Uid; None: root."""


Payload = dict[str, FileContent]


@dataclass(frozen=True, slots=True)
class TokenInput:
    """A service account token as one source of a projected volume."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TrustInput:
    """The certificates of ClusterTrustBundles as one source of a projected volume."""

    pem: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CertificateInput:
    """A pod's key and its certificates (PEM) as one source of a projected volume."""

    key: bytes = field(repr=False)
    chain: bytes = field(repr=False)
