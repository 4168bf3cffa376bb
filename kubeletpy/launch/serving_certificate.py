"""The certificate that the agent's server has from the cluster (serverTLSBootstrap)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kubeletpy.agent import Agent
from kubeletpy.certificates import request
from kubeletpy.certificates.manager import CertificateManager, Purpose
from kubeletpy.certificates.mending import mend_link
from kubeletpy.certificates.store import CertificateStore
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.host.key_pair import KeyPair
from kubeletpy.host.pki import Names
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.server.tls import PairInUse
from kubeletpy.serving import certificate_dir

log = logging.getLogger(__name__)


async def serving_certificate(
    agent: Agent, settings: KubeletSettings, flags: NodeFlags, client: KubeClient | None
) -> PairInUse | None:
    """What gives the certificate in use; None when it does not come from the cluster.

    The agent gets the task that keeps it valid.
    """
    enabled = settings.feature_gates.enabled("RotateKubeletServerCertificate")
    if not (settings.server_tls_bootstrap and settings.enable_server and enabled):
        return None
    given = KeyPair(Path(settings.tls_cert_file), Path(settings.tls_private_key_file))
    store = CertificateStore(
        certificate_dir(flags), "kubelet-server", given if settings.tls_cert_file else None
    )
    name = agent.parts.node.name
    dns_only = settings.feature_gates.enabled("AllowDNSOnlyNodeCSR")
    metrics = agent.metrics.certificates

    def names() -> Names | None:
        # as the API knows the node: who approves requests goes by that
        node = agent.node.node if agent.node is not None else None
        if node is None:
            return None
        addresses = (node.get("status") or {}).get("addresses") or ()
        return request.serving_names(name, addresses, dns_only=dns_only)

    @asynccontextmanager
    async def api(_valid: bool) -> AsyncIterator[KubeApi]:
        assert client is not None, "without an API nothing is asked"
        yield client

    manager = CertificateManager(
        Purpose(
            "serving",
            request.SERVING_SIGNER,
            failed=metrics.server_renew_errors.inc,
            replaced=metrics.server_rotation.observe,
        ),
        store,
        agent.parts.clock,
        names=names,
        api=api,
        rng=agent.parts.rng,
    )
    metrics.server_ttl.set_function(lambda: manager.ttl)
    await mend_link(store, agent.parts.clock.now())
    await manager.load()
    if client is not None and agent.node is not None:
        agent.node.on_answer = manager.poke
        agent.companions.append(("serving-certificate", manager.run))
    elif manager.current is None:
        log.warning("serverTLSBootstrap needs a --kubeconfig: no client can connect to the port")

    def in_use() -> KeyPair | None:
        pair = manager.current
        return pair.files if pair is not None else None

    return in_use
