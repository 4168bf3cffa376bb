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
from kubeletpy.base.structs import Component
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.node import HttpMetrics
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer
from kubeletpy.server.health import listen, listen_error
from kubeletpy.server.node_view import NodeView
from kubeletpy.server.routes import ServerError
from kubeletpy.server.settings import RunningProgram, ServerSettings
from kubeletpy.server.tls import PairInUse, ServingTls, files_problem, own_pair, self_signed

if TYPE_CHECKING:
    from kubeletpy.server.answers import Explained

log = logging.getLogger(__name__)

CERTIFICATE_CHECK_S = 60.0
"""A certificate's end is wall-clock time, and clocks get set."""


class Ports(Component):
    """The listening sockets, bound at once; nothing is answered before ``serve``.

    Attributes:
        settings: those that they were bound with.
        main, read_only: the sockets; None without a read-only port.
    """

    settings: ServerSettings

    def __post_init__(self) -> None:
        self.main = _bind("port", "--port", self.settings.address, self.settings.port)
        self.read_only: socket.socket | None = None
        if self.settings.read_only_port:
            try:
                self.read_only = _bind(
                    "readOnlyPort",
                    "--read-only-port",
                    self.settings.address,
                    self.settings.read_only_port,
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


class KubeletServer(Component):
    """Serves the ports, and keeps their certificate valid.

    Attributes:
        code: the modules that ``serve`` needs besides those that are loaded with this one.
    """

    code: ClassVar[Sequence[str]] = ("kubeletpy.server.answers",)

    ports: Ports
    view: NodeView
    # reviews tokens and permissions of clients; None without an API.
    reviews: KubeApi | None
    metrics: HttpMetrics
    # for certificates and times in answers.
    clock: Clock
    # the machine's addresses, for the certificate.
    node_ips: Sequence[str]
    # facts for /flagz and /statusz.
    program: RunningProgram
    # the certificate in use; clients are refused while there is none. None if it is in files.
    serving_pair: PairInUse | None = None
    # the node as last read from the API, for its addresses; None if not read yet.
    node: Callable[[], api.Node | None] = lambda: None
    # gets requests as spans.
    tracer: Tracer = NO_TRACER
    # answers /explain; None if it is not served.
    explained: Explained | None = None

    def __post_init__(self) -> None:
        self._settings = self.ports.settings
        self.certificate_problem = ""
        """Why clients refuse the certificate in tlsCertFile, or will soon."""
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
        while self.serving_pair is None:
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

        settings, metrics, stack = self._settings, self.metrics, self._opened
        if settings.access.always_allow and settings.access.anonymous:
            log.warning(
                "anyone who reaches the agent's port has full access: "
                "authentication.anonymous is enabled and authorization.mode is AlwaysAllow",
                extra={"port": self.ports.port},
            )
        access = Access(self.reviews, self.view.node_name, settings.access, self.clock)
        handlers = answers(
            self.view,
            settings,
            stack,
            program=self.program,
            explained=self.explained,
            metrics=metrics,
            clock=self.clock,
        )
        server = AgentServer(
            handlers, access, metrics, debugging=settings.debugging, tracer=self.tracer
        )
        stack.push_async_callback(server.close)
        assert self._made_tls is not None, "it has been started"
        await server.start(self.ports.main, self._made_tls)
        if self.ports.read_only is not None:
            log.warning(
                "the read-only port shows pods and metrics to anyone who reaches it",
                extra={"readOnlyPort": settings.read_only_port, "address": settings.address},
            )
            read_only = AgentServer(handlers, None, metrics, tracer=self.tracer)
            stack.push_async_callback(read_only.close)
            await read_only.start(self.ports.read_only, None)

    async def close(self) -> None:
        """Stop serving, and close connections and resources of handlers."""
        await self._opened.aclose()

    def _check_certificate(self) -> str:
        """Return the problem of the certificate; the node's own is replaced if it must be."""
        pair, now = self._files(), self.clock.now()
        return files_problem(pair, self.view.node_name, self._addresses(), now)

    def _files(self) -> KeyPair:
        """Return the certificate in files; the node's own is made anew if it can't serve."""
        settings = self._settings
        if settings.certificate:
            return KeyPair(Path(settings.certificate), Path(settings.key))
        name, now = self.view.node_name, self.clock.now()
        return self_signed(settings.certificate_dir, name, self._addresses(), now)

    def _first_files(self) -> KeyPair:
        """Return the certificate to start with.

        ``follow_certificate`` checks the node's own of an earlier start once the node is Ready: the
        library for that takes 50 ms to import.
        """
        own = own_pair(self._settings.certificate_dir)
        return own if not self._settings.certificate and own.loads() else self._files()

    def _addresses(self) -> list[str]:
        """Return the machine's addresses, and those that the API has for the node."""
        node: api.Node = self.node() or {}
        in_api = (node.get("status") or {}).get("addresses") or ()
        return [*self.node_ips, *(each.get("address", "") for each in in_api)]

    def _tls(self) -> ServingTls:
        settings, serving_pair = self._settings, self.serving_pair
        pair = KeyPair(Path(settings.certificate), Path(settings.key))
        try:
            if serving_pair is None:
                pair = self._first_files()
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
