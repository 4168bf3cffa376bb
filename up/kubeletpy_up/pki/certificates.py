"""The API's authority, what it signs, kubeconfigs, and subjects of certificate requests.

kubectl sends its token over TLS only, so even a loopback server needs a certificate. The node's own
server has one from the same authority, and identifies the API by a client certificate. Files are
private and replaced atomically. Must never trust or write anything outside its own directory, and
never log a token.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import ssl
import time
from pathlib import Path
from typing import Any

from kubeletpy.base.host.files import KeyPair, write_private
from kubeletpy.base.host.pki import CertificateError, Names
from kubeletpy.base.structs import Struct
from kubeletpy.base.wire.listener import limit_key_exchange
from kubeletpy_up.pki import csr_rules
from kubeletpy_up.requests import ADMIN, ADMIN_GROUP

__all__ = ["CertificateError", "Certificates", "ensure"]

_LOOPBACK = ("127.0.0.1", "::1")
_API = Names(
    "kubeletpy-local-api",
    dns_names=("localhost", "kubernetes", "kubernetes.default.svc"),
    ip_addresses=_LOOPBACK,
)
_CLIENT = Names("kube-apiserver-kubelet-client", (ADMIN_GROUP,))
_ADMIN = Names(ADMIN.user, (ADMIN_GROUP,))


class Certificates(Struct, frozen=True):
    """Paths of the PEM files.

    Attributes:
        ca: the authority's certificate.
        authority: the same with its key, which signs the cluster's certificate requests.
        certificate, key: of the API's server.
        client: the API's identity towards the node's server.
        node: for the node's server; valid for the node's name and loopback.
        admin: the administrator's identity, for clients that use no tokens.
    """

    ca: Path
    authority: KeyPair
    certificate: Path
    key: Path
    client: KeyPair
    node: KeyPair
    admin: KeyPair

    def ca_pem(self) -> str:
        """The authority's certificate. Raises OSError."""
        return self.ca.read_text()

    def server_context(self) -> ssl.SSLContext:
        """For the server: clients may present a certificate. Raises OSError or ssl.SSLError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        limit_key_exchange(context)
        context.load_cert_chain(self.certificate, self.key)
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(str(self.ca))
        return context

    def reload(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        """Make new connections use the files' contents. Raises OSError or ssl.SSLError."""
        for context, pair in ((server, KeyPair(self.certificate, self.key)), (client, self.client)):
            context.load_cert_chain(pair.certificate, pair.key)
            context.load_verify_locations(str(self.ca))

    def client_context(self) -> ssl.SSLContext:
        """For requests to the node's server. Raises OSError or ssl.SSLError."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.client.certificate, self.client.key)
        return context


def ensure(directory: Path, node_name: str, now: float | None = None) -> Certificates:
    """The certificates in ``directory``; those that are missing or can't serve are created.

    Blocking. A new authority makes all others anew; clients that have the old one must read their
    kubeconfig again.

    Args:
        now: Unix seconds; None: by the machine's clock.

    Raises:
        CertificateError: the authority can't be used, or the node's name can't be put in a
            certificate.
        OSError: the directory can't be written.
    """
    from kubeletpy.base.host import x509

    now = time.time() if now is None else now
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = KeyPair.named(directory, "ca")
    if not _stays(authority, Names(""), now):
        x509.make_authority(authority, "kubeletpy-local-ca", now=now)
    server, client, node, admin = (
        KeyPair.named(directory, name)
        for name in ("server", "kubelet-client", "kubelet-server", "admin")
    )
    found = Certificates(
        authority.certificate, authority, server.certificate, server.key, client, node, admin
    )
    as_node = Names(
        f"system:node:{node_name}", ("system:nodes",), (node_name, "localhost"), _LOOPBACK
    )
    for pair, names in ((server, _API), (client, _CLIENT), (node, as_node), (admin, _ADMIN)):
        stays = _stays(pair, names, now)
        if not stays or not x509.verifies(authority.certificate, pair.certificate, now=now):
            x509.make_signed(pair, authority, names, now=now)
    return found


def _stays(pair: KeyPair, names: Names, now: float) -> bool:
    """Whether a certificate has its key and these names, and does not end soon."""
    from kubeletpy.base.host import x509

    if not pair.loads():
        return False
    certificate = x509.read_certificate(pair.certificate.read_bytes())
    return not (certificate.outdated(now) or certificate.lacks(names))


# Kubeconfigs: one for people, one for the node.


def write(
    path: Path, server: str, ca_pem: str, *, user: str, token: str, pair: KeyPair | None = None
) -> None:
    """Write a kubeconfig (JSON, which is YAML too) for one user of one server, mode 0600.

    Args:
        server: URL, such as ``https://127.0.0.1:6443``.
        ca_pem: the authority that signed the server's certificate.
        pair: the user's client certificate, besides the token.

    Raises:
        OSError: it can't be written, or the pair can't be read.
    """
    cluster = "kubeletpy"
    identity = {"token": token}
    if pair is not None:
        identity["client-certificate-data"] = _encoded(pair.certificate.read_bytes())
        identity["client-key-data"] = _encoded(pair.key.read_bytes())
    of_server = {"server": server, "certificate-authority-data": _encoded(ca_pem.encode())}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "clusters": [{"name": cluster, "cluster": of_server}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }
    write_private(path, json.dumps(config, indent=2) + "\n")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


_AT_ONCE = 2


class SubjectReader:
    """Reads the subjects of certificate requests before the registry handles the requests.

    Untrusted requests may be long, and the registry works within one step of the event loop, which
    must not block: they are read on threads, a few at once. Admission decides about them.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def common_name(self, obj: Any) -> str | None:
        """The subject of a CertificateSigningRequest that a client sent; None if unreadable.

        Requests for signers other than those of nodes are not read: None.
        """
        spec = obj.get("spec") if isinstance(obj, dict) else None
        if not isinstance(spec, dict) or spec.get("signerName") not in csr_rules.SIGNERS:
            return None
        from kubeletpy.base.host import x509

        try:
            pem = base64.b64decode(str(spec.get("request") or ""))
            async with self._turns:
                return (await asyncio.to_thread(x509.read_request, pem)).common_name
        except (binascii.Error, ValueError, CertificateError):
            return None
