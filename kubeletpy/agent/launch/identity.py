"""The agent's API identity, and how it is kept valid: kubeconfig, bootstrap, rotation.

Nothing here waits for the cluster: an agent whose first certificate is not yet approved runs its
static pods meanwhile, and requests to the API wait for credentials.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from kubeletpy.agent.context import Task
from kubeletpy.base.clock import Clock, SystemClock
from kubeletpy.base.host.pki import CertificateError
from kubeletpy.base.structs import Component, Struct, field
from kubeletpy.config import PROTOBUF, KubeletSettings, NodeFlags
from kubeletpy.kubeapi.client import JSON_FORMAT, KubeClient, WireFormat
from kubeletpy.kubeapi.kubeconfig import (
    Connection,
    CurrentContext,
    KubeconfigError,
    connect_kubeconfig,
    read_kubeconfig,
    stop_loading,
)
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer
from kubeletpy.node.certificates import request, store
from kubeletpy.node.certificates.certificate_manager import CertificateManager, Purpose
from kubeletpy.node.certificates.store import (
    CertificateStore,
    FileFollower,
    certificate_dir,
    repair_link,
)

log = logging.getLogger(__name__)

CLIENT = "kubelet-client"
"""Name of the client certificate's files."""


class AgentIdentity(Struct):
    """The API client, and the tasks that keep its credentials valid."""

    client: KubeClient
    tasks: list[Task] = field(default_factory=list)


async def join(
    settings: KubeletSettings,
    flags: NodeFlags,
    node_name: str,
    metrics: Metrics,
    stack: AsyncExitStack,
    *,
    tracer: Tracer = NO_TRACER,
) -> AgentIdentity | None:
    """The agent's identity; None without --kubeconfig. Whatever must be closed goes on the stack.

    Raises:
        KubeconfigError: the kubeconfig is unusable, and there is no other way in.
    """
    if not flags.kubeconfig:
        log.warning("no --kubeconfig: only static pods are run, and nothing is reported")
        return None
    joining = _Joining(settings, flags, node_name, metrics, tracer)
    identity = await joining.identity()
    stack.push_async_callback(identity.client.close)
    return identity


async def wire_format(content_type: str) -> WireFormat:
    """The format of requests. The code for protobuf is loaded in a thread if it is used."""
    if content_type != PROTOBUF:
        return JSON_FORMAT

    def load() -> WireFormat:
        from kubeletpy.kubeapi.protobuf_format import ProtobufFormat

        return ProtobufFormat()

    return await asyncio.to_thread(load)


class _Joining(Component):
    """One agent's way into its cluster."""

    settings: KubeletSettings
    flags: NodeFlags
    node_name: str
    metrics: Metrics
    tracer: Tracer

    def __post_init__(self) -> None:
        self._kubeconfig = Path(self.flags.kubeconfig)
        self._bootstrap = (
            Path(self.flags.bootstrap_kubeconfig) if self.flags.bootstrap_kubeconfig else None
        )
        self._directory = certificate_dir(self.flags)
        self._clock: Clock = SystemClock()
        self._manager: CertificateManager
        self._store: CertificateStore
        self._client: KubeClient
        self._unwritten = False
        """Whether to write the kubeconfig once there is a certificate."""

    async def identity(self) -> AgentIdentity:
        why = ""
        await repair_link(CertificateStore(self._directory, CLIENT), self._clock.now())
        if self._bootstrap is not None:
            why = await asyncio.to_thread(
                store.kubeconfig_problem, self._kubeconfig, self._clock.now()
            )
        if not why and not self.settings.rotate_certificates:
            self._client = await self._make_client(await self._connect_as_it_is())
            return AgentIdentity(self._client, [self._follow_kubeconfig()])
        if why:
            assert self._bootstrap is not None, "there is a reason only with a bootstrap kubeconfig"
            stop_loading(str(self._kubeconfig))
            try:
                # problems with it must be reported now, not by a request that waits forever
                await asyncio.to_thread(read_kubeconfig, self._bootstrap)
            except KubeconfigError as error:
                raise KubeconfigError(
                    f"{self._kubeconfig} can't be used ({why}), and neither can the bootstrap"
                    f" kubeconfig: {error}"
                ) from None
            log.info(
                "requesting a client certificate",
                extra={"kubeconfig": str(self._kubeconfig), "why": why},
            )
            self._unwritten = True
        return await self._with_manager()

    async def _with_manager(self) -> AgentIdentity:
        context = files = None
        if not self._unwritten:
            context = await asyncio.to_thread(read_kubeconfig, self._kubeconfig)
            files = context.certificate_files()
        algorithm = self.settings.client_certificate_key_algorithm
        self._store = CertificateStore(self._directory, CLIENT, files, algorithm)
        certificates = self.metrics.certificates
        self._manager = CertificateManager(
            Purpose(
                "client",
                request.CLIENT_SIGNER,
                vital=True,
                first_prefix="node-csr-",
                failed=certificates.client_renew_errors.inc,
            ),
            self._store,
            self._clock,
            names=lambda: request.client_names(self.node_name),
            api=self._request_client,
            on_change=self._changed,
        )
        certificates.client_ttl.set_function(lambda: self._manager.ttl)
        borrowed = context is not None and await asyncio.to_thread(self._borrow, context)
        await self._manager.load(renew_now=borrowed)
        self._client = await self._make_client(await self._first_connection())
        keep = self._manager.run if self.settings.rotate_certificates else self._manager.obtain
        pair = FileFollower(lambda: [self._store.current_path], self._manager.reload_if_changed)
        tasks: list[Task] = [
            Task("client-certificate", keep),
            Task("client-certificate-file", pair.run),
        ]
        return AgentIdentity(self._client, [*tasks, self._follow_kubeconfig()])

    def _borrow(self, context: CurrentContext) -> bool:
        """Use a certificate embedded in the kubeconfig until we have our own."""
        inline = context.inline_certificate()
        if inline is None or any(pair.certificate.exists() for pair in self._store.candidates()):
            return False
        try:
            self._store.update(*inline, self._clock.now())
        except (CertificateError, OSError) as error:
            log.warning(
                "the kubeconfig's client certificate can't be stored", extra={"why": str(error)}
            )
        return True

    async def _first_connection(self) -> Connection | None:
        if self._manager.current is None:
            if not self._unwritten:
                return await self._connect_as_it_is()
            return None
        if self._unwritten:
            # an earlier start was killed between the certificate and the kubeconfig
            await self._write()
        return await self._connect()

    async def _make_client(self, connection: Connection | None) -> KubeClient:
        client = KubeClient(
            connection,
            reconnect=self._connect,
            qps=self.settings.kube_api_qps,
            burst=self.settings.kube_api_burst,
            observer=self.metrics.rest_client,
            tracer=self.tracer,
            form=await wire_format(self.settings.content_type),
        )
        self.metrics.rest_client.show(
            lambda protocol: client.usage.protocols.get(protocol, 0),
            lambda: client.usage.watches,
            lambda: client.usage.streams,
        )
        return client

    async def _connect_as_it_is(self) -> Connection:
        return await connect_kubeconfig(str(self._kubeconfig))

    async def _connect(self) -> Connection:
        pair = self._manager.current if hasattr(self, "_manager") else None
        if pair is not None:
            return await connect_kubeconfig(str(self._kubeconfig), pair.files)
        if self._unwritten:
            raise KubeconfigError("there is no client certificate yet")
        return await self._connect_as_it_is()

    @asynccontextmanager
    async def _request_client(self, valid: bool) -> AsyncIterator[KubeApi]:
        """The client for certificate requests: our own while valid, else the initial identity's."""
        if valid:
            yield self._client
            return
        path = self._kubeconfig
        if self._bootstrap is not None and self._bootstrap.exists():
            path = self._bootstrap
        client = await KubeClient.from_kubeconfig(str(path), observer=self.metrics.rest_client)
        try:
            yield client
        finally:
            await client.close()

    async def _renewed(self) -> None:
        await self._client.renew_credentials()
        log.info("credentials have changed", extra={"kubeconfig": str(self._kubeconfig)})

    async def _changed(self) -> None:
        """There is a new certificate."""
        try:
            if self._unwritten:
                await self._write()
            await self._client.renew_credentials()
        except (OSError, KubeconfigError) as error:
            log.error(
                "the new client certificate can't be used yet",
                extra={"kubeconfig": str(self._kubeconfig), "why": str(error)},
            )

    async def _write(self) -> None:
        assert self._bootstrap is not None, "only a bootstrap leaves something to write"

        def write() -> None:
            assert self._bootstrap is not None
            like = read_kubeconfig(self._bootstrap)
            store.write_kubeconfig(self._kubeconfig, like, self._store.current_path.absolute())

        await asyncio.to_thread(write)
        self._unwritten = False

    def _follow_kubeconfig(self) -> Task:
        return Task("kubeconfig-files", FileFollower(self._credential_files, self._renewed).run)

    def _credential_files(self) -> list[Path]:
        """The kubeconfig and the files it names, except for the pair that we write ourselves."""
        try:
            found = read_kubeconfig(self._kubeconfig).files()
        except KubeconfigError:
            return [self._kubeconfig]
        own = self._store.current_path.absolute() if hasattr(self, "_store") else None
        return [path for path in dict.fromkeys(found) if path != own]
