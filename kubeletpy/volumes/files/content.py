"""The content of a volume's files, and the credentials that some of it is made of. Pure."""

from __future__ import annotations

from kubeletpy.base.structs import Hidden, HidesFields, Struct


class PayloadError(Exception):
    """The files of a volume cannot be made; the message names the object and what it lacks."""


class FileContent(HidesFields, Struct, frozen=True):
    """One file."""

    data: Hidden[bytes]
    mode: int
    owner: int | None = None
    """Uid; None: root."""


Payload = dict[str, FileContent]


class TokenInput(HidesFields, Struct, frozen=True):
    """A service account token as one source of a projected volume."""

    token: Hidden[str]


class TrustInput(HidesFields, Struct, frozen=True):
    """The certificates of ClusterTrustBundles as one source of a projected volume."""

    pem: Hidden[bytes]


class CertificateInput(HidesFields, Struct, frozen=True):
    """A pod's key and its certificates (PEM) as one source of a projected volume."""

    key: Hidden[bytes]
    chain: Hidden[bytes]
