"""Builds the agent's server: one or two ports, their certificate, and later the handlers.

Ports are bound first, so that the node can report its port; they are served once the agent runs.
Must not import the modules that serve (:mod:`.answers`, and with it aiohttp): no node needs them to
be Ready.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import CertificateError
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.node import HttpMetrics
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer
from kubeletpy.server.health import listen, listen_error
from kubeletpy.server.node_view import NodeView
from kubeletpy.server.routes import ServerError
from kubeletpy.server.settings import RunningProgram, ServerSettings
from kubeletpy.server.tls import PairInUse, ServingTls, files_problem, self_signed

if TYPE_CHECKING:
    from kubeletpy.server.answers import Explained

log = logging.getLogger(__name__)

CERTIFICATE_CHECK_S = 60.0
"""A certificate's end is wall-clock time, and clocks get set."""


class Ports:
    """The listening sockets, bound at once; nothing is answered before ``serve``.

    Attributes:
        settings: those that they were bound with.
        main, read_only: the sockets; None without a read-only port.
    """

    def __init__(self, settings: ServerSettings) -> None:
        """Bind the ports of the settings. Raises ServerError if one is taken."""
        self.settings = settings
        self.main = _bind("port", "--port", settings.address, settings.port)
        self.read_only: socket.socket | None = None
        if settings.read_only_port:
            try:
                self.read_only = _bind(
                    "readOnlyPort",
                    "--read-only-port",
                    settings.address,
                    settings.read_only_port,
                    short_answers=True,
                )
            except ServerError:
                self.main.close()
                raise

    @property
    def port(self) -> int:
        """Returns the number of the main port."""
        return int(self.main.getsockname()[1])

    def close(self) -> None:
        """Close the listening sockets."""
        for each in (self.main, self.read_only):
            if each is not None:
                each.close()


class KubeletServer:
    """Serves the ports, and keeps their certificate valid.

    Attributes:
        code: the modules that ``serve`` needs besides those that are loaded with this one.
    """

    code: ClassVar[Sequence[str]] = ("kubeletpy.server.answers",)

    def __init__(
        self,
        ports: Ports,
        view: NodeView,
        reviews: KubeApi | None,
        *,
        metrics: HttpMetrics,
        clock: Clock,
        node_ips: Sequence[str],
        serving_pair: PairInUse | None = None,
        node: Callable[[], api.Node | None] = lambda: None,
        program: RunningProgram,
        tracer: Tracer = NO_TRACER,
        explained: Explained | None = None,
    ) -> None:
        """Set up a server of ports that are bound.

        Args:
            ports: the listening sockets and their settings.
            view: the agent as handlers see it.
            reviews: reviews tokens and permissions of clients; None without an API.
            metrics: of requests.
            clock: for certificates and times in answers.
            node_ips: the machine's addresses, for the certificate.
            serving_pair: returns the certificate in use; clients are refused while there is none.
                None if it is in files.
            node: the node as last read from the API, for its addresses; None if not read yet.
            program: facts for /flagz and /statusz.
            tracer: where requests are sent as spans.
            explained: answers /explain; None if it is not served.
        """
        self._tracer = tracer
        self._ports = ports
        self._settings = ports.settings
        self._view = view
        self._reviews = reviews
        self._metrics = metrics
        self._clock = clock
        self._node_ips = node_ips
        self._serving_pair = serving_pair
        self._node = node
        self.certificate_problem = ""
        """Why clients refuse the certificate in tlsCertFile, or will soon."""
        self._program = program
        self._explained = explained
        self._opened = AsyncExitStack()
        self._made_tls: ServingTls | None = None

    async def start(self) -> None:
        """Read certificate, key and client authority; clients wait until ``serve``.

        Raises:
            ServerError: one of them can't be used.
        """
        self._made_tls = await asyncio.to_thread(self._tls)

    async def follow_certificate(self) -> None:
        """Check the certificate's end and names until canceled; the agent's own is replaced."""
        while self._serving_pair is None:
            try:
                problem = await asyncio.to_thread(self._check_certificate)
            except (OSError, CertificateError) as error:
                problem = (
                    f"the serving certificate in {self._settings.certificate_dir} can't be "
                    f"replaced: {error}"
                )
            if problem and problem != self.certificate_problem:
                log.warning(problem)
            self.certificate_problem = problem
            await asyncio.sleep(CERTIFICATE_CHECK_S)

    async def serve(self) -> None:
        """Serve until closed; call it after ``start``."""
        from kubeletpy.server.access import Access
        from kubeletpy.server.answers import answers
        from kubeletpy.server.app import AgentServer

        settings, metrics, stack = self._settings, self._metrics, self._opened
        if settings.access.always_allow and settings.access.anonymous:
            log.warning(
                "anyone who reaches the agent's port has full access: "
                "authentication.anonymous is enabled and authorization.mode is AlwaysAllow",
                extra={"port": self._ports.port},
            )
        access = Access(self._reviews, self._view.node_name, settings.access, self._clock)
        handlers = answers(
            self._view,
            settings,
            stack,
            program=self._program,
            explained=self._explained,
            metrics=metrics,
            clock=self._clock,
        )
        server = AgentServer(
            handlers, access, metrics, debugging=settings.debugging, tracer=self._tracer
        )
        stack.push_async_callback(server.close)
        assert self._made_tls is not None, "it has been started"
        await server.start(self._ports.main, self._made_tls)
        if self._ports.read_only is not None:
            log.warning(
                "the read-only port shows pods and metrics to anyone who reaches it",
                extra={"readOnlyPort": settings.read_only_port, "address": settings.address},
            )
            read_only = AgentServer(handlers, None, metrics, tracer=self._tracer)
            stack.push_async_callback(read_only.close)
            await read_only.start(self._ports.read_only, None)

    async def close(self) -> None:
        """Stop serving, and close connections and resources of handlers."""
        await self._opened.aclose()

    def _check_certificate(self) -> str:
        """Return the problem of the certificate; the node's own is replaced if it must be."""
        pair, now = self._files(), self._clock.now()
        return files_problem(pair, self._view.node_name, self._addresses(), now)

    def _files(self) -> KeyPair:
        """Return the certificate in files; the node's own is made anew if it can't serve."""
        settings = self._settings
        if settings.certificate:
            return KeyPair(Path(settings.certificate), Path(settings.key))
        name, now = self._view.node_name, self._clock.now()
        return self_signed(settings.certificate_dir, name, self._addresses(), now)

    def _addresses(self) -> list[str]:
        """Return the machine's addresses, and those that the API has for the node."""
        node: api.Node = self._node() or {}
        in_api = (node.get("status") or {}).get("addresses") or ()
        return [*self._node_ips, *(each.get("address", "") for each in in_api)]

    def _tls(self) -> ServingTls:
        settings, serving_pair = self._settings, self._serving_pair
        pair = KeyPair(Path(settings.certificate), Path(settings.key))
        try:
            if serving_pair is None:
                pair = self._files()
            client_ca = Path(settings.client_ca) if settings.client_ca else None
            in_use = serving_pair or (lambda: pair)
            return ServingTls(in_use, client_ca, settings.tls_min_version, settings.tls_ciphers)
        except (OSError, ssl.SSLError, CertificateError) as error:
            files = (str(pair.certificate), str(pair.key), settings.client_ca)
            named = ", ".join(filter(None, files))
            raise ServerError(
                f"the server's TLS files can't be used ({named}): {error}; check tlsCertFile, "
                "tlsPrivateKeyFile and authentication.x509.clientCAFile"
            ) from error


def _bind(
    field: str, flag: str, address: str, port: int, *, short_answers: bool = False
) -> socket.socket:
    try:
        return listen(address, port, short_answers=short_answers)
    except OSError as error:
        raise listen_error(field, flag, address, port, error) from error
