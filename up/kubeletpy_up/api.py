"""The embedded API as one thing to start and stop: storage, registry, controllers and server.

Everything it creates lives in its data directory. Must never serve anything but loopback.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
import ssl
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kubeletpy.base.clock import Clock, SystemClock
from kubeletpy.base.host import files
from kubeletpy.base.tasks import Lasting, cancel_tasks, run_all
from kubeletpy_up.controllers.binder import Binder
from kubeletpy_up.controllers.csr_controller import LIFETIME_S, CertificateController
from kubeletpy_up.controllers.garbage_collector import GarbageCollector
from kubeletpy_up.controllers.local_provisioner import LocalProvisioner
from kubeletpy_up.controllers.node_lifecycle import NodeLifecycle
from kubeletpy_up.controllers.pod_claims import DeviceClaims, EphemeralClaims
from kubeletpy_up.controllers.scheduler import Scheduler
from kubeletpy_up.controllers.service_notices import ServiceNotices
from kubeletpy_up.controllers.volume_protection import VolumeProtection
from kubeletpy_up.http.server import Server
from kubeletpy_up.pki import certificates
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, Caller, node_caller
from kubeletpy_up.storage.store import Store

__all__ = ["Endpoint", "LocalApi"]  # for programs that embed it; kept, see docs/library.md

logger = logging.getLogger(__name__)

_EXPIRE_SECONDS = 60.0
_RENEW_SECONDS = 3600.0
_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the API listens, and the kubeconfigs to reach it with.

    Attributes:
        url: such as ``https://127.0.0.1:6443``.
        admin_kubeconfig, node_kubeconfig: files, mode 0600.
    """

    url: str
    admin_kubeconfig: Path
    node_kubeconfig: Path


class Controller(Protocol):
    """Something that runs beside the API."""

    def start(self) -> None:
        """Start, within a running event loop."""

    async def stop(self) -> None:
        """End what was started, and wait until it has ended."""


class StaticTokens:
    """The tokens of the kubeconfigs. Compares in constant time."""

    def __init__(self, callers: dict[str, Caller]) -> None:
        self._callers = [(token.encode(), caller) for token, caller in callers.items()]

    def __call__(self, token: str) -> Caller | None:
        """The caller that a token identifies, or None."""
        supplied = token.encode("utf-8", "replace")
        found = None
        for known, caller in self._callers:
            if hmac.compare_digest(known, supplied):
                found = caller
        return found


def _token(path: Path) -> str:
    return files.read_or_make(path, _TOKEN_BYTES).hex()


class LocalApi:
    """A Kubernetes API for one node.

    Args:
        data_dir: for the database, certificates, keys and kubeconfigs; created if missing.
        node_name: the node whose identity the node kubeconfig carries.
        port: to listen on; 0 for a free one.
        strict: refuse what a real cluster's Node authorizer and NodeRestriction would.
        service_account_volumes: mount service account tokens into pods.
        certificate_lifetime: the longest that is signed for nodes, in seconds.
        clock: the time of day.
        volumes_dir: where the built-in provisioner creates volumes; None: no provisioner.
        compress_watches: answer watches that begin with a list as kube-apiserver 1.37 does, a gzip
            member for each flush; on loopback this only costs time.
        single_node: refuse to register other nodes than ``node_name``.
        feature_gates: gates that are on here although Kubernetes has them off by default, such as
            those of the node's agent. Pods lose the fields whose gate is off and not listed.
        node_metrics: serve metrics.k8s.io; without it, the group is absent, as in a cluster without
            a metrics server. For nodes whose runtime measures nothing.
        kubelet_host: where the node's own server is reached; empty: at the address it reports.
        listening: more sockets to serve, such as one in another network namespace.
    """

    def __init__(
        self,
        data_dir: Path,
        node_name: str,
        *,
        port: int = 6443,
        host: str = "127.0.0.1",
        strict: bool = True,
        service_account_volumes: bool = False,
        certificate_lifetime: float = LIFETIME_S,
        clock: Clock | None = None,
        volumes_dir: Path | None = None,
        compress_watches: bool = False,
        single_node: bool = False,
        feature_gates: Collection[str] = (),
        node_metrics: bool = True,
        kubelet_host: str = "",
        listening: Sequence[socket.socket] = (),
    ) -> None:
        self._listening = listening
        self._dir = data_dir
        self._node_name = node_name
        self._address = (host, port)
        self._strict = strict
        self._mount_tokens = service_account_volumes
        self._clock = clock or SystemClock()
        self._store: Store | None = None
        self._server: Server | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._contexts: tuple[ssl.SSLContext, ssl.SSLContext]
        self._lifetime = certificate_lifetime
        self._volumes_dir = volumes_dir
        self._compress_watches = compress_watches
        self._only_node = node_name if single_node else ""
        self._gates = feature_gates
        self._node_metrics = node_metrics
        self._kubelet_host = kubelet_host
        self._threads = Lasting()
        self._controllers: list[Controller] = []
        self._certificates: CertificateController
        self.registry: Registry

    async def start(self) -> Endpoint:
        """Start serving.

        Raises:
            StoreError: the database can't be opened.
            CertificateError: a certificate can't be created, such as for the node's name.
            OSError: the directory can't be written, or the port is taken.
            ValueError: the host is not loopback.
        """
        self._dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            tls = await self._ensure_certificates()
            self._store = Store(str(self._dir / "api.db"), self._clock)
            return await self._serve(self._store, tls)
        except BaseException:
            await self.stop()
            raise

    async def _serve(self, store: Store, tls: certificates.Certificates) -> Endpoint:
        self.registry = Registry(
            self._clock,
            store,
            strict=self._strict,
            service_account_volumes=self._mount_tokens,
            signing_key=files.read_or_make(self._dir / "sa.key"),
            root_ca=tls.ca_pem(),
            only_node=self._only_node,
            feature_gates=self._gates,
        )
        admin, node = _token(self._dir / "admin.token"), _token(self._dir / "node.token")
        callers = {admin: ADMIN, node: node_caller(self._node_name)}
        self.registry.static_tokens = StaticTokens(callers)
        self._certificates = CertificateController(self.registry, tls.authority, self._lifetime)
        self._controllers = [
            NodeLifecycle(self.registry),
            EphemeralClaims(self.registry),
            DeviceClaims(self.registry),
            Binder(self.registry),
            VolumeProtection(self.registry),
            Scheduler(self.registry),
            self._certificates,
            GarbageCollector(self.registry),
            ServiceNotices(self.registry),
        ]
        if self._volumes_dir is not None:
            self._controllers.append(
                LocalProvisioner(self.registry, self._volumes_dir, self._node_name)
            )
        for controller in self._controllers:
            controller.start()
        self._contexts = tls.server_context(), tls.client_context()
        self._server = Server(
            self.registry,
            *self._contexts,
            compress_watches=self._compress_watches,
            node_metrics=self._node_metrics,
            kubelet_host=self._kubelet_host,
        )
        host, port = self._address
        port = await self._server.start(host, port, self._listening)
        url = f"https://{f'[{host}]' if ':' in host else host}:{port}"
        endpoint = Endpoint(url, self._dir / "admin.kubeconfig", self._dir / "node.kubeconfig")
        self._write_kubeconfigs(endpoint, tls)
        self._expire()
        self._renewal = asyncio.create_task(self._renew(endpoint, tls))
        logger.info("The embedded API serves", extra={"url": url})
        return endpoint

    def _write_kubeconfigs(self, endpoint: Endpoint, tls: certificates.Certificates) -> None:
        url, ca_pem, node = endpoint.url, tls.ca_pem(), node_caller(self._node_name).user
        for path, user, token, pair in (
            (endpoint.admin_kubeconfig, ADMIN.user, "admin.token", tls.admin),
            (endpoint.node_kubeconfig, node, "node.token", None),
        ):
            secret = _token(self._dir / token)
            certificates.write(path, url, ca_pem, user=user, token=secret, pair=pair)

    async def _renew(self, endpoint: Endpoint, tls: certificates.Certificates) -> None:
        """Replace certificates that end soon, and use them, until cancelled."""
        written = tls.ca_pem(), tls.admin.certificate.read_bytes()
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                tls = await self._ensure_certificates()
                tls.reload(*self._contexts)
                found = tls.ca_pem(), tls.admin.certificate.read_bytes()
                if found != written:
                    self.registry.replace_root_ca(found[0])
                    self._write_kubeconfigs(endpoint, tls)
                    written = found
            except (certificates.CertificateError, OSError) as error:
                logger.warning(
                    "The API's certificates could not be renewed", extra={"error": str(error)}
                )

    async def _ensure_certificates(self) -> certificates.Certificates:
        return await self._threads.finish(
            asyncio.to_thread(
                certificates.ensure, self._dir / "pki", self._node_name, self._clock.now()
            )
        )

    def _expire(self) -> None:
        self.registry.expire_events()
        self._certificates.expire()
        self._expiry = asyncio.get_running_loop().call_later(_EXPIRE_SECONDS, self._expire)

    async def stop(self) -> None:
        """Stop serving; watches end at once. May be called more than once."""
        await cancel_tasks((self._renewal,))
        self._renewal = None
        await self._threads.close()
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._server is not None:
            await self._server.stop()
            self._server = None
        await run_all(*(controller.stop() for controller in self._controllers))
        self._controllers = []
        if self._store is not None:
            self._store.close()
            self._store = None
