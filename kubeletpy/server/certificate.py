"""The certificate that the agent's server gets from the cluster (serverTLSBootstrap)."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.node import CertificateMetrics
from kubeletpy.node.certificates import request
from kubeletpy.node.certificates.certificate_manager import CertificateManager, Purpose
from kubeletpy.node.certificates.store import CertificateStore, certificate_dir, repair_link

log = logging.getLogger(__name__)


def comes_from_cluster(settings: KubeletSettings) -> bool:
    """Whether the server's certificate is requested from the cluster."""
    enabled = settings.feature_gates.enabled("RotateKubeletServerCertificate")
    return settings.server_tls_bootstrap and settings.enable_server and enabled


class ServingCertificate:
    """Requested for the names that the API shows for the node, and renewed in time."""

    def __init__(
        self,
        settings: KubeletSettings,
        flags: NodeFlags,
        kube_api: KubeApi | None,
        clock: Clock,
        *,
        node_name: str,
        node: Callable[[], api.Node | None],
        metrics: CertificateMetrics,
        rng: random.Random,
    ) -> None:
        """Args:
        kube_api: None: standalone, nothing can be requested.
        node: the node as the API last showed it; None: not yet.
        """
        given = KeyPair(Path(settings.tls_cert_file), Path(settings.tls_private_key_file))
        self._store = CertificateStore(
            certificate_dir(flags), "kubelet-server", given if settings.tls_cert_file else None
        )
        self._api = kube_api
        self._clock = clock
        self._node_name = node_name
        self._node = node
        self._dns_only = settings.feature_gates.enabled("AllowDNSOnlyNodeCSR")
        self._manager = CertificateManager(
            Purpose(
                "serving",
                request.SERVING_SIGNER,
                failed=metrics.server_renew_errors.inc,
                replaced=metrics.server_rotation.observe,
            ),
            self._store,
            clock,
            names=self._names,
            api=self._request_client,
            rng=rng,
        )
        metrics.server_ttl.set_function(lambda: self._manager.ttl)

    async def start(self) -> None:
        """Load what an earlier run left behind."""
        await repair_link(self._store, self._clock.now())
        await self._manager.load()
        if self._api is None and self._manager.current is None:
            log.warning(
                "serverTLSBootstrap needs a --kubeconfig: no client can connect to the port"
            )

    async def run(self) -> None:
        """Keep it valid until cancelled."""
        await self._manager.run()

    def node_changed(self) -> None:
        """The API has shown the node: its names may have changed."""
        self._manager.poke()

    def in_use(self) -> KeyPair | None:
        """The newest pair; None while there is none."""
        pair = self._manager.current
        return pair.files if pair is not None else None

    def _names(self) -> Names | None:
        # the addresses in the API's Node object: the approver of requests compares with them
        node = self._node()
        if node is None:
            return None
        addresses = (node.get("status") or {}).get("addresses") or ()
        return request.serving_names(self._node_name, addresses, dns_only=self._dns_only)

    @asynccontextmanager
    async def _request_client(self, _valid: bool) -> AsyncIterator[KubeApi]:
        assert self._api is not None, "without an API nothing is requested"
        yield self._api
