"""A server's certificate for 127.0.0.1, and the contexts of both sides."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.kubeapi.kubeconfig import ALPN


@dataclass(frozen=True)
class Certificates:
    """Made in a directory: ``ca.crt``, ``server.crt`` and its key."""

    directory: Path

    @classmethod
    def made(cls, directory: Path) -> Certificates:
        authority = KeyPair.named(directory, "ca")
        x509.make_authority(authority, "ca")
        names = Names("api", (), ("api.test",), ("127.0.0.1",))
        x509.make_signed(KeyPair.named(directory, "server"), authority, names)
        return cls(directory)

    def server(self, *protocols: str) -> ssl.SSLContext:
        """The context of a server; with ``protocols`` it chooses one of them."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context

    def client(self) -> ssl.SSLContext:
        """Trusts the server, and offers what the agent offers."""
        context = ssl.create_default_context(cafile=self.directory / "ca.crt")
        context.set_alpn_protocols(ALPN)
        return context
