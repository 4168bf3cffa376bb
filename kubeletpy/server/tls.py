"""The TLS of the agent's server: its certificate (own, from files or the cluster) and client CA.

Files are checked when a client connects, so a rotated certificate or CA needs no restart. An
unusable new file is reported once; the old one stays in use. Must never log a key.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.host.files import KeyPair, Stamp, stamp
from kubeletpy.base.host.pki import Certificate, CertificateError, Names
from kubeletpy.base.structs import Component
from kubeletpy.base.wire.listener import limit_key_exchange
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.node import CertificateMetrics
from kubeletpy.node.certificates import request
from kubeletpy.node.certificates.certificate_manager import CertificateManager, Purpose
from kubeletpy.node.certificates.store import CertificateStore, certificate_dir, repair_link
from kubeletpy.pods.pod import SUBDOMAIN

log = logging.getLogger(__name__)

VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1_2,
    "VersionTLS11": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}
"""tlsMinVersion; nothing below 1.2 is accepted, whatever is set."""
_SELF_SIGNED = "kubelet"
"""Base name of the files of the node's own certificate."""
PairInUse = Callable[[], KeyPair | None]
"""Returns the certificate to serve with now, or None if there is none: clients are refused."""


def own_pair(directory: Path) -> KeyPair:
    """Return the paths of the node's own certificate, which may not exist."""
    return KeyPair.named(directory, _SELF_SIGNED)


def self_signed(
    directory: Path, node_name: str, addresses: Sequence[str], now: float | None = None
) -> KeyPair:
    """Return ``kubelet.crt`` and ``kubelet.key``, made anew if they can't serve the node. Blocking.

    Args:
        directory: where they are.
        node_name: a name that the certificate must have.
        addresses: IP addresses and other names of the node.
        now: Unix seconds; None for the machine's clock.

    Raises:
        CertificateError: a name can't go into a certificate.
        OSError: the directory can't be written.
    """
    from kubeletpy.base.host import x509

    pair = own_pair(directory)
    ips = tuple(dict.fromkeys(filter(None, map(_canonical_ip, addresses))))
    others = [each for each in addresses if SUBDOMAIN.fullmatch(each) and not _canonical_ip(each)]
    names = Names(node_name, dns_names=tuple(dict.fromkeys([node_name, *others])), ip_addresses=ips)
    now = time.time() if now is None else now
    if why := _why_made_anew(pair, names, now):
        x509.make_self_signed(pair, names, now=now)
        log.info(
            "made a serving certificate for the node",
            extra={"certificate": str(pair.certificate), "why": why},
        )
    return pair


def _why_made_anew(pair: KeyPair, names: Names, now: float) -> str:
    """Return why the node's own certificate can't stay, or "" if it can.

    A certificate that an authority issued is replaced by an administrator (:func:`files_problem`).
    """
    if not pair.certificate.exists():
        return "there is none"
    try:
        found = _read(pair)
    except (CertificateError, OSError) as error:
        return f"it can't be read: {error}"
    if not pair.loads():
        return "its key is missing, or that of another certificate"
    if not _made_by_a_node(found):
        return ""
    why = found.outdated(now) or found.lacks(names)
    return f"the previous one {why}" if why else ""


def _read(pair: KeyPair) -> Certificate:
    """Read the certificate of a pair. Raises CertificateError, OSError."""
    from kubeletpy.base.host import x509

    return x509.read_certificate(pair.certificate.read_bytes())


def _made_by_a_node(certificate: Certificate) -> bool:
    """Return whether an agent or a kubelet has made a certificate for itself.

    The kubelet makes an authority for each certificate: NODE-ca@SECONDS signs NODE@SECONDS.
    """
    name, issuer = certificate.names.common_name, certificate.issuer
    return bool(name) and issuer in (name, "-ca@".join(name.rsplit("@", 1)))


def _canonical_ip(address: str) -> str:
    """Return an address as a certificate contains it, or "" for a name or one with a zone."""
    try:
        return "" if "%" in address else str(ipaddress.ip_address(address))
    except ValueError:
        return ""


def files_problem(pair: KeyPair, node_name: str, addresses: Sequence[str], now: float) -> str:
    """Return why clients refuse a certificate that the agent may not replace, or will soon; or "".

    Blocking. Files that can't be read are reported when they are loaded.

    Args:
        now: Unix seconds.
    """
    try:
        found = _read(pair)
    except (CertificateError, OSError):
        return ""
    why = found.outdated(now)
    covered = {*found.names.dns_names, *found.names.ip_addresses}
    if not why and covered.isdisjoint({node_name, *addresses}):
        why = f"has neither the node's name {node_name} nor one of its addresses"
    if not why:
        return ""
    return (
        f"the serving certificate {pair.certificate} {why}: clients that check it refuse this "
        "node's port. Replace the file; the agent uses the new one at once"
    )


class ServingTls(Component):
    """Provides the SSL context of each new connection, which follows the files.

    Raises OSError or ssl.SSLError if the files can't be used when it is made.
    """

    # called when a client connects.
    pair: PairInUse
    # PEM file; None if no client certificate is requested.
    client_ca: Path | None = None
    # tlsMinVersion.
    min_version: str = ""
    # tlsCipherSuites.
    ciphers: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._seen = self._reload_changed(self.pair())
        self._current = self._load(self.pair())

    def trusts(self, connection: ssl.SSLObject | None) -> bool:
        """Return whether a client's certificate was verified against the current CAs.

        A connection made before the file changed no longer counts: its client must reconnect. A new
        serving certificate alone changes nothing.
        """
        if connection is None or self.client_ca is None:
            return True
        newest = self.newest()
        used = connection.context
        return isinstance(used, LoadedTls) and used.authorities == newest.authorities

    def _load(self, pair: KeyPair | None) -> LoadedTls:
        context = LoadedTls(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = VERSIONS[self.min_version]
        limit_key_exchange(context)
        # a resumed session is not verified again. Tickets are off; sessions that TLS 1.2 keeps by
        # id belong to one context, and each change of the files makes another
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        if names := openssl_names(self.ciphers):
            context.set_ciphers(names)
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        if self.client_ca is not None:
            text = self.client_ca.read_bytes()
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=text.decode("ascii", "replace") or "\n")
            context.authorities = hashlib.sha256(text).digest()
        return context

    def newest(self) -> LoadedTls:
        """Return the context of the files as they are now."""
        pair = self.pair()
        seen = self._reload_changed(pair)
        if seen != self._seen:
            self._seen = seen
            try:
                self._current = self._load(pair)
            except (OSError, ssl.SSLError) as error:
                log.warning(
                    "the new serving certificate or client authority can't be used; "
                    "the old one goes on",
                    extra={
                        "why": str(error),
                        "certificate": str(pair.certificate) if pair is not None else "none",
                    },
                )
        return self._current

    def _reload_changed(self, pair: KeyPair | None) -> tuple[Stamp | None, ...]:
        paths = [] if pair is None else [pair.certificate, pair.key]
        paths += [] if self.client_ca is None else [self.client_ca]
        return tuple(stamp(path) for path in paths)


class LoadedTls(ssl.SSLContext):
    """The contents of the files at one time. Never changed afterwards."""

    authorities = b""
    """Digest of the client CA file."""


def openssl_names(suites: Sequence[str]) -> str:
    """Return tlsCipherSuites, which have the names of Go, as a cipher list of OpenSSL.

    ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`` is ``ECDHE-RSA-AES128-GCM-SHA256``. Suites of TLS 1.3
    are left out, since they are always enabled.
    """
    names = []
    for suite in suites:
        exchange, found, cipher = suite.removeprefix("TLS_").partition("_WITH_")
        if not found:
            continue
        name = cipher.replace("AES_128_CBC", "AES128").replace("AES_256_CBC", "AES256")
        name = name.replace("AES_128", "AES128").replace("AES_256", "AES256")
        name = name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
        prefix = "" if exchange == "RSA" else exchange + "_"
        names.append((prefix + name).replace("_", "-"))
    return ":".join(names)


def comes_from_cluster(settings: KubeletSettings) -> bool:
    """Return whether the certificate is requested from the cluster (serverTLSBootstrap)."""
    enabled = settings.feature_gates.enabled("RotateKubeletServerCertificate")
    return settings.server_tls_bootstrap and settings.enable_server and enabled


class ServingCertificate(Component):
    """The certificate from the cluster, for the node's names in the API; it is renewed in time."""

    # with the files of a certificate to begin with.
    settings: KubeletSettings
    # with the directory of certificates.
    flags: NodeFlags
    # None if the agent is standalone, so that nothing can be requested.
    kube_api: KubeApi | None
    clock: Clock
    # a name of the certificate.
    node_name: str
    # the node as last read from the API; None if it was not read yet.
    node: Callable[[], api.Node | None]
    metrics: CertificateMetrics
    # spreads renewals.
    rng: random.Random

    def __post_init__(self) -> None:
        settings, metrics = self.settings, self.metrics
        configured = KeyPair(Path(settings.tls_cert_file), Path(settings.tls_private_key_file))
        self._store = CertificateStore(
            certificate_dir(self.flags),
            "kubelet-server",
            configured if settings.tls_cert_file else None,
            settings.server_certificate_key_algorithm,
        )
        self._manager = CertificateManager(
            Purpose(
                "serving",
                request.SERVING_SIGNER,
                failed=metrics.server_renew_errors.inc,
                replaced=metrics.server_rotation.observe,
            ),
            self._store,
            self.clock,
            names=self._names,
            api=self._request_client,
            rng=self.rng,
        )
        metrics.server_ttl.set_function(lambda: self._manager.ttl)

    async def start(self) -> None:
        """Load the certificate of an earlier run, if there is one."""
        await repair_link(self._store, self.clock.now())
        await self._manager.load()
        if self.kube_api is None and self._manager.current is None:
            log.warning(
                "serverTLSBootstrap needs a --kubeconfig: no client can connect to the port"
            )

    async def run(self) -> None:
        """Keep the certificate valid until canceled."""
        await self._manager.run()

    def node_changed(self) -> None:
        """Re-check the names, since the node has been read from the API."""
        self._manager.poke()

    def in_use(self) -> KeyPair | None:
        """Return the newest pair, or None while there is none."""
        pair = self._manager.current
        return pair.files if pair is not None else None

    def _names(self) -> Names | None:
        # the addresses in the API's Node object: the approver of requests compares with them
        node = self.node()
        if node is None:
            return None
        addresses = (node.get("status") or {}).get("addresses") or ()
        dns_only = self.settings.feature_gates.enabled("AllowDNSOnlyNodeCSR")
        return request.serving_names(self.node_name, addresses, dns_only=dns_only)

    @asynccontextmanager
    async def _request_client(self, _valid: bool) -> AsyncIterator[KubeApi]:
        assert self.kube_api is not None, "without an API nothing is requested"
        yield self.kube_api
