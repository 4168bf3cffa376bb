"""Makes one CRI call: deadline, typed errors, metrics. The client gives the calls their meaning.

Must never log or raise a request's content: pull requests carry credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from kubeletpy.base.text import scrub
from kubeletpy.metrics.trace.model import NO_TRACER, OpenSpan, Tracer
from kubeletpy.remote import cancellation
from kubeletpy.remote.connection import GrpcChannel
from kubeletpy.remote.errors import (
    Cancelled,
    Code,
    CRIError,
    InvalidArgument,
    InvalidResponse,
    ResourceExhausted,
    error_for,
)
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.operations import OPERATIONS
from kubeletpy.remote.silence import is_silence, runtime_is_silent
from kubeletpy.remote.stubs import stubs
from kubeletpy.remote.timeouts import DEFAULT_REQUEST_TIMEOUT, deadline_for

Answer = TypeVar("Answer", bound=Message)


class CallMetrics(Protocol):
    """Where calls are counted."""

    def call_done(self, operation: str, seconds: float, failed: bool) -> None:
        """A call ended; ``operation`` is the kubelet's operation_type."""
        ...

    def sandbox_done(self, runtime_handler: str, seconds: float, failed: bool) -> None:
        """A RunPodSandbox ended."""
        ...


class NoMetrics:
    """Counts nothing."""

    def call_done(self, operation: str, seconds: float, failed: bool) -> None:
        """Ignored."""

    def sandbox_done(self, runtime_handler: str, seconds: float, failed: bool) -> None:
        """Ignored."""


class ServiceCalls:
    """The calls of one service ("RuntimeService", "ImageService") over one connection.

    ``request_timeout`` is runtimeRequestTimeout in seconds. Each call is a span of ``tracer``, of
    which is passed to the runtime.
    """

    def __init__(
        self,
        connection: GrpcChannel,
        service: str,
        metrics: CallMetrics,
        request_timeout: float = DEFAULT_REQUEST_TIMEOUT,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.connection = connection
        self._tracer = tracer
        self.request_timeout = request_timeout
        self._metrics = metrics
        described = cri.DESCRIPTOR.services_by_name[service]
        self._service = described.full_name
        self._stubs = stubs(connection.channel, described)

    async def unary(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        *,
        own: float = 0.0,
        target: str = "",
        check: Callable[[Answer], str] | None = None,
        secrets: Iterable[str] = (),
    ) -> Answer:
        """Call ``method`` and return its answer, of class ``answer``.

        ``own`` is the timeout in seconds that the request itself carries (timeouts.deadline_for).
        ``target`` names in errors what the call is about. ``check`` returns the fault of an answer,
        which is then raised as InvalidResponse. ``secrets`` are kept out of errors. Raises
        CRIError.
        """
        if own < 0:
            raise InvalidArgument(method, f"negative timeout {own:g} s", target=target)
        timeout = deadline_for(method, self.request_timeout, own=own)
        with self._counted(method), self._traced(method) as span:
            self._must_be_open(method, target)
            metadata = tuple(span.carrier.items())
            try:
                data = await self._stubs[method](request, timeout=timeout, metadata=metadata)
            except grpc.aio.AioRpcError as error:
                raise self._typed(error, method, target, secrets, timeout) from None
            except asyncio.CancelledError:
                raise self._unless_ours(method, target) from None
            response = _read_answer(answer, data, method, target)
            problem = check(response) if check else ""
            if problem:
                raise InvalidResponse(method, problem, target=target)
            return response

    async def stream(
        self, method: str, request: Message, answer: type[Answer], *, most: int | None = None
    ) -> AsyncIterator[Answer]:
        """Call ``method`` and yield its answers as they arrive.

        ``most`` bounds the bytes of all answers; None: there is no bound. Raises CRIError, and
        ResourceExhausted for more bytes.
        """
        timeout = deadline_for(method, self.request_timeout)
        with self._counted(method), self._traced(method) as span:
            self._must_be_open(method, "")
            metadata = tuple(span.carrier.items())
            call = self._stubs[method](request, timeout=timeout, metadata=metadata)
            try:
                received = 0
                async for data in call:
                    received += len(data)
                    if most is not None and received > most:
                        raise ResourceExhausted(method, f"the list is larger than {most} bytes")
                    yield _read_answer(answer, data, method, "")
            except grpc.aio.AioRpcError as error:
                raise self._typed(error, method, "", (), timeout) from None
            except asyncio.CancelledError:
                raise self._unless_ours(method, "") from None
            finally:
                call.cancel()

    def _typed(
        self,
        error: grpc.aio.AioRpcError,
        method: str,
        target: str,
        secrets: Iterable[str],
        timeout: float | None,
    ) -> CRIError:
        """Convert gRPC's error to one of ours, without the secrets."""
        code, details = Code[error.code().name], scrub(error.details() or "", secrets)
        if is_silence(code, details):
            code = Code.DEADLINE_EXCEEDED
            details = runtime_is_silent(method, self.connection.endpoint, timeout)
        return error_for(code, method, details, target=target)

    def _must_be_open(self, method: str, target: str) -> None:
        """Raises Cancelled when the connection is closed (gRPC's own error is a bare Exception)."""
        if self.connection.closed:
            raise Cancelled(method, "the connection is closed", target=target)

    def _unless_ours(self, method: str, target: str) -> BaseException:
        """The cause of a cancelled wait: our task was cancelled, or a channel closed under it."""
        if self.connection.closed and not cancellation.is_ours():
            return Cancelled(method, "the connection was closed", target=target)
        return asyncio.CancelledError()

    @contextmanager
    def _traced(self, method: str) -> Iterator[OpenSpan]:
        """A span as OpenTelemetry's gRPC client for Go has it (its conventions of 1.39)."""
        name = f"{self._service}/{method}"
        given = {
            "rpc.method": name,
            "rpc.system.name": "grpc",
            "server.address": self.connection.endpoint,
        }
        with self._tracer.span(name, given, client=True) as span:
            code = Code.OK
            try:
                yield span
            except CRIError as error:
                code = error.code
                raise
            except asyncio.CancelledError:
                code = Code.CANCELLED
                raise
            finally:
                span.set("rpc.response.status_code", code.shown)

    @contextmanager
    def _counted(self, method: str) -> Iterator[None]:
        """Count the call however it ends; a consumer leaving a stream is not a failure."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        failed = True
        try:
            yield
            failed = False
        except GeneratorExit:
            failed = False
            raise
        finally:
            self._metrics.call_done(OPERATIONS[method], loop.time() - start, failed)


def _read_answer(kind: type[Answer], data: bytes, method: str, target: str) -> Answer:
    """The message that the runtime sent. Raises InvalidResponse; its text quotes no bytes."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise InvalidResponse(
            method,
            f"the runtime's answer of {len(data)} bytes is no {kind.DESCRIPTOR.name} of CRI v1 "
            "(a damaged message, or text that is not UTF-8): check the runtime's version and "
            "log, and restart it",
            target=target,
        ) from None
