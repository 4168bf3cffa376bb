"""The API's certificates: a private authority and what it signs, in the data directory.

kubectl sends its token over TLS only, so even a loopback server needs a certificate. The node's own
server has one from the same authority, and identifies the API by a client certificate. Must never
trust or write anything outside its own directory.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from kubeletpy.host.key_pair import KeyPair
from kubeletpy.host.pki import CertificateError, Names
from kubeletpy.host.tls_limits import limit_key_exchange

__all__ = ["CertificateError", "Certificates", "ensure"]

_LOOPBACK = ("127.0.0.1", "::1")
_API = Names(
    "kubeletpy-local-api",
    dns_names=("localhost", "kubernetes", "kubernetes.default.svc"),
    ip_addresses=_LOOPBACK,
)
_CLIENT = Names("kube-apiserver-kubelet-client", ("system:masters",))


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of the PEM files.

    Attributes:
        ca: the authority's certificate.
        authority: the same with its key, which signs the cluster's certificate requests.
        certificate, key: of the API's server.
        client: the API's identity towards the node's server.
        node: for the node's server; valid for the node's name and loopback.
    """

    ca: Path
    authority: KeyPair
    certificate: Path
    key: Path
    client: KeyPair
    node: KeyPair

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

    def client_context(self) -> ssl.SSLContext:
        """For requests to the node's server. Raises OSError or ssl.SSLError."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.client.certificate, self.client.key)
        return context


def ensure(directory: Path, node_name: str) -> Certificates:
    """The certificates in ``directory``; any that are missing or don't fit are created.

    Blocking.

    Raises:
        CertificateError: the authority can't be used, or the node's name can't be put in a
            certificate.
        OSError: the directory can't be written.
    """
    from kubeletpy.host import signing, x509

    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority = KeyPair.named(directory, "ca")
    if not authority.loads():
        signing.make_authority(authority, "kubeletpy-local-ca")
    server, client, node = (
        KeyPair.named(directory, name) for name in ("server", "kubelet-client", "kubelet-server")
    )
    found = Certificates(
        authority.certificate, authority, server.certificate, server.key, client, node
    )
    pairs = (server, client, node)
    if all(pair.loads() for pair in pairs) and (
        signing.verifies(authority.certificate, *(pair.certificate for pair in pairs))
        and node_name in x509.read_certificate(node.certificate.read_bytes()).names.dns_names
    ):
        return found
    names = (node_name, "localhost")
    as_node = Names(f"system:node:{node_name}", ("system:nodes",), names, _LOOPBACK)
    signing.make_signed(server, authority, _API)
    signing.make_signed(client, authority, _CLIENT)
    signing.make_signed(node, authority, as_node)
    return found
