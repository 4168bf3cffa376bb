"""CRI calls over gRPC: each declared in a line, with a deadline, typed errors, metrics and a span.

:class:`ServiceCalls` makes the calls of one service. :func:`unary` and :func:`streamed` declare a
call by its method of the protocol; :class:`RemoteServices` has the calls of both services. Must
never log or raise a request's content, as pull requests carry credentials, nor decide when to call.
"""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from operator import attrgetter
from typing import Any, Protocol, TypeVar, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from kubeletpy.base.structs import Component
from kubeletpy.base.text import scrub
from kubeletpy.metrics.trace.model import NO_TRACER, OpenSpan, Tracer
from kubeletpy.remote import errors as remote_errors
from kubeletpy.remote import verify
from kubeletpy.remote.connection import MAX_RECEIVE, GrpcChannel, cancellation_requested, stubs
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.generated.operations import OPERATIONS
from kubeletpy.remote.protocol import ImageService, RuntimeService

Answer = TypeVar("Answer", bound=Message)


class CallMetrics(Protocol):
    """Where calls are counted."""

    def call_done(self, operation: str, seconds: float, failed: bool) -> None:
        """Count a call that ended; ``operation`` is the kubelet's operation_type."""

    def sandbox_done(self, runtime_handler: str, seconds: float, failed: bool) -> None:
        """Count a RunPodSandbox that ended, by the runtime handler of its pod."""


class NoMetrics:
    """CallMetrics for a program that counts no calls."""

    def call_done(self, operation: str, seconds: float, failed: bool) -> None:
        """Ignore the call, as nothing is counted."""

    def sandbox_done(self, runtime_handler: str, seconds: float, failed: bool) -> None:
        """Ignore the sandbox, as nothing is counted."""


class ServiceCalls(Component):
    """The calls of one service ("RuntimeService", "ImageService") over one connection.

    ``request_timeout`` is runtimeRequestTimeout in seconds. Each call is a span of ``tracer``,
    whose context is passed to the runtime.
    """

    connection: GrpcChannel
    service: str
    metrics: CallMetrics
    request_timeout: float = remote_errors.DEFAULT_REQUEST_TIMEOUT
    tracer: Tracer = NO_TRACER

    def __post_init__(self) -> None:
        described = cri.DESCRIPTOR.services_by_name[self.service]
        self._service = described.full_name
        self._stubs = stubs(self.connection.channel, described)

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

        ``own`` is the timeout in seconds that the request itself carries (errors.deadline_for).
        ``target`` names in errors what the call is about. ``check`` returns the fault of an answer,
        which is then raised as InvalidResponse. ``secrets`` are kept out of errors. Raises
        CRIError.
        """
        if own < 0:
            raise remote_errors.InvalidArgument(
                method, f"negative timeout {own:g} s", target=target
            )
        timeout = remote_errors.deadline_for(method, self.request_timeout, own=own)
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
                raise remote_errors.InvalidResponse(method, problem, target=target)
            return response

    async def stream(
        self, method: str, request: Message, answer: type[Answer], *, most: int | None = None
    ) -> AsyncIterator[Answer]:
        """Call ``method`` and yield its answers as they arrive.

        ``most`` bounds the bytes of all answers; None: there is no bound. Raises CRIError, and
        ResourceExhausted for more bytes.
        """
        timeout = remote_errors.deadline_for(method, self.request_timeout)
        with self._counted(method), self._traced(method) as span:
            self._must_be_open(method, "")
            metadata = tuple(span.carrier.items())
            call = self._stubs[method](request, timeout=timeout, metadata=metadata)
            try:
                received = 0
                async for data in call:
                    received += len(data)
                    if most is not None and received > most:
                        raise remote_errors.ResourceExhausted(
                            method, f"the list is larger than {most} bytes"
                        )
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
    ) -> remote_errors.CRIError:
        """Convert gRPC's error to one of ours, without the secrets."""
        code, details = remote_errors.Code[error.code().name], scrub(error.details() or "", secrets)
        if remote_errors.is_silence(code, details):
            code = remote_errors.Code.DEADLINE_EXCEEDED
            details = remote_errors.runtime_is_silent(method, self.connection.endpoint, timeout)
        return remote_errors.error_for(code, method, details, target=target)

    def _must_be_open(self, method: str, target: str) -> None:
        """Raises Cancelled when the connection is closed (gRPC's own error is a bare Exception)."""
        if self.connection.closed:
            raise remote_errors.Cancelled(method, "the connection is closed", target=target)

    def _unless_ours(self, method: str, target: str) -> BaseException:
        """Return why a wait was canceled: our task was, or the channel was closed."""
        if self.connection.closed and not cancellation_requested():
            return remote_errors.Cancelled(method, "the connection was closed", target=target)
        return asyncio.CancelledError()

    @contextmanager
    def _traced(self, method: str) -> Iterator[OpenSpan]:
        """Open a span as OpenTelemetry's gRPC client for Go does (its conventions of 1.39)."""
        name = f"{self._service}/{method}"
        attributes = {
            "rpc.method": name,
            "rpc.system.name": "grpc",
            "server.address": self.connection.endpoint,
        }
        with self.tracer.span(name, attributes, client=True) as span:
            code = remote_errors.Code.OK
            try:
                yield span
            except remote_errors.CRIError as error:
                code = error.code
                raise
            except asyncio.CancelledError:
                code = remote_errors.Code.CANCELLED
                raise
            finally:
                span.set("rpc.response.status_code", code.reported)

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
            self.metrics.call_done(OPERATIONS[method], loop.time() - start, failed)


def _read_answer(kind: type[Answer], data: bytes, method: str, target: str) -> Answer:
    """Parse the message that the runtime sent. Raises InvalidResponse; its text quotes no bytes."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise remote_errors.InvalidResponse(
            method,
            f"the runtime's answer of {len(data)} bytes is no {kind.DESCRIPTOR.name} of CRI v1 "
            "(a damaged message, or text that is not UTF-8): check the runtime's version and "
            "log, and restart it",
            target=target,
        ) from None


# Calls declared by their methods of the protocol

Method = TypeVar("Method", bound=Callable[..., Any])

MOST_STREAMED = 4 * MAX_RECEIVE
"""Bytes of a list that is streamed: beyond, it is requested in parts. A runtime whose stream never
ends would fill the memory otherwise."""


class _Declared:
    """The properties of a call that its protocol method declares."""

    def __init__(self, like: Callable[..., Any]) -> None:
        service, _, name = like.__qualname__.partition(".")
        code = like.__code__
        self.service = service
        self.call = "".join(part.capitalize() for part in name.split("_"))
        self.response = getattr(cri, f"{self.call}Response")
        self._request = getattr(cri, f"{self.call}Request")
        self._fields = code.co_varnames[1 : code.co_argcount]

    def request(self, args: tuple[Any, ...], fields: Mapping[str, Any]) -> Any:
        """Return the request message; it is the argument ``request`` if there is no other."""
        fields = {**dict(zip(self._fields, args, strict=False)), **fields}
        return fields["request"] if "request" in fields else self._request(**fields)


def unary(
    like: Method,
    *,
    answer: str = "",
    target: str = "",
    own: str = "",
    check: Callable[[Any], str] | None = None,
    believe: Callable[[Any], Any] = lambda value: value,
) -> Method:
    """Declare a call with one answer.

    ``stop_container = unary(RuntimeService.stop_container, target="container_id", own="timeout")``
    has that method's signature. Its name gives the names of the call and of both messages, its
    arguments are the fields of the request.

    Args:
        like: the protocol's method.
        answer: the field that is returned, which must be set unless it is repeated; if empty, the
            message is returned, or None if it never has any field.
        target: the field of the request that names in errors what the call is about.
        own: the field of the request that is a timeout, in seconds.
        check: returns what is wrong with the message.
        believe: leaves out of the value what can't be true.
    """
    declared = _Declared(like)
    fields = declared.response.DESCRIPTOR.fields_by_name
    value_of: Callable[[Any], Any] = attrgetter(answer) if answer else _message_or_none
    if answer and not fields[answer].is_repeated:
        check = check or _is_set(answer)

    @wraps(like)
    async def method(self: RemoteServices, *args: Any, **kwargs: Any) -> Any:
        request = declared.request(args, kwargs)
        message = await self.services[declared.service].unary(
            declared.call,
            request,
            declared.response,
            own=getattr(request, own) if own else 0.0,
            target=attrgetter(target)(request) if target else "",
            check=check,
        )
        return believe(value_of(message))

    return cast(Method, method)


def streamed(
    like: Method, items: str, believe: Callable[[Any, Any], Any] = lambda items, filter: items
) -> Method:
    """Declare a list in pieces, of which the field ``items`` is yielded one by one.

    ``believe`` leaves out of a piece what can't be true; its second argument is the list's filter.
    """
    declared = _Declared(like)

    @wraps(like)
    async def method(self: RemoteServices, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        request = declared.request(args, kwargs)
        selection = request.filter if "filter" in request.DESCRIPTOR.fields_by_name else None
        async for message in self.services[declared.service].stream(
            declared.call, request, declared.response, most=MOST_STREAMED
        ):
            for item in believe(getattr(message, items), selection):
                yield item

    return cast(Method, method)


def _is_set(field: str) -> Callable[[Any], str]:
    def check(message: Any) -> str:
        by_presence = message.DESCRIPTOR.fields_by_name[field].message_type is not None
        found = message.HasField(field) if by_presence else getattr(message, field)
        return "" if found else f"{field} not set"

    return check


def _message_or_none(message: Any) -> Any:
    return message if message.DESCRIPTOR.fields else None


# The calls of both services

REQUESTED_VERSION = "0.1.0"
"""The kubelet's constant in VersionRequest since CRI began; runtimes ignore it."""


class RemoteServices(RuntimeService, ImageService):
    """The calls of both services, except the lists of :class:`RemoteLists`."""

    def __init__(self, runtime: ServiceCalls, images: ServiceCalls, metrics: CallMetrics) -> None:
        self.services = {"RuntimeService": runtime, "ImageService": images}
        self._calls = runtime
        self._image_calls = images
        self._sandbox_metrics = metrics

    # -- the runtime ------------------------------------------------------------------------------
    status = unary(RuntimeService.status, check=verify.wrong_status)
    runtime_config = unary(RuntimeService.runtime_config)
    update_runtime_config = unary(RuntimeService.update_runtime_config)

    # -- sandboxes --------------------------------------------------------------------------------
    stop_pod_sandbox = unary(RuntimeService.stop_pod_sandbox, target="pod_sandbox_id")
    remove_pod_sandbox = unary(RuntimeService.remove_pod_sandbox, target="pod_sandbox_id")
    pod_sandbox_status = unary(
        RuntimeService.pod_sandbox_status,
        target="pod_sandbox_id",
        check=verify.wrong_sandbox_status,
    )
    update_pod_sandbox_resources = unary(
        RuntimeService.update_pod_sandbox_resources, target="pod_sandbox_id"
    )
    port_forward = unary(RuntimeService.port_forward, answer="url", target="pod_sandbox_id")
    stream_pod_sandboxes = streamed(
        RuntimeService.stream_pod_sandboxes,
        "pod_sandboxes",
        lambda items, filter: verify.believable_sandboxes(items, filter)[0],
    )

    # -- containers -------------------------------------------------------------------------------
    start_container = unary(RuntimeService.start_container, target="container_id")
    stop_container = unary(RuntimeService.stop_container, target="container_id", own="timeout")
    remove_container = unary(RuntimeService.remove_container, target="container_id")
    container_status = unary(
        RuntimeService.container_status, target="container_id", check=verify.wrong_container_status
    )
    update_container_resources = unary(
        RuntimeService.update_container_resources, target="container_id"
    )
    reopen_container_log = unary(RuntimeService.reopen_container_log, target="container_id")
    exec = unary(RuntimeService.exec, answer="url", target="container_id")
    attach = unary(RuntimeService.attach, answer="url", target="container_id")
    stream_containers = streamed(
        RuntimeService.stream_containers,
        "containers",
        lambda items, filter: verify.believable_containers(items, filter)[0],
    )

    # -- stats and metrics ------------------------------------------------------------------------
    container_stats = unary(RuntimeService.container_stats, answer="stats", target="container_id")
    list_container_stats = unary(RuntimeService.list_container_stats, answer="stats")
    stream_container_stats = streamed(RuntimeService.stream_container_stats, "container_stats")
    pod_sandbox_stats = unary(
        RuntimeService.pod_sandbox_stats, answer="stats", target="pod_sandbox_id"
    )
    list_pod_sandbox_stats = unary(RuntimeService.list_pod_sandbox_stats, answer="stats")
    stream_pod_sandbox_stats = streamed(
        RuntimeService.stream_pod_sandbox_stats, "pod_sandbox_stats"
    )
    list_metric_descriptors = unary(RuntimeService.list_metric_descriptors, answer="descriptors")
    list_pod_sandbox_metrics = unary(RuntimeService.list_pod_sandbox_metrics, answer="pod_metrics")
    stream_pod_sandbox_metrics = streamed(
        RuntimeService.stream_pod_sandbox_metrics, "pod_sandbox_metrics"
    )

    # -- images -----------------------------------------------------------------------------------
    list_images = unary(ImageService.list_images, answer="images", believe=verify.believable_images)
    stream_images = streamed(
        ImageService.stream_images, "images", lambda items, _: verify.believable_images(items)
    )
    image_status = unary(
        ImageService.image_status, target="image.image", check=verify.wrong_image_status
    )
    remove_image = unary(ImageService.remove_image, target="image.image")
    image_fs_info = unary(ImageService.image_fs_info)

    # -- what needs more than a line --------------------------------------------------------------
    async def version(self) -> cri.VersionResponse:
        return await self._calls.unary(
            "Version",
            cri.VersionRequest(version=REQUESTED_VERSION),
            cri.VersionResponse,
            check=verify.wrong_version,
        )

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig, runtime_handler: str) -> str:
        loop = asyncio.get_running_loop()
        start = loop.time()
        failed = True
        try:
            answer = await self._calls.unary(
                "RunPodSandbox",
                cri.RunPodSandboxRequest(config=config, runtime_handler=runtime_handler),
                cri.RunPodSandboxResponse,
                target=f"{config.metadata.namespace}/{config.metadata.name}",
                check=lambda answer: verify.unset(answer, "pod_sandbox_id"),
            )
            failed = False
            return answer.pod_sandbox_id
        finally:
            self._sandbox_metrics.sandbox_done(runtime_handler, loop.time() - start, failed)

    async def create_container(
        self, pod_sandbox_id: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        answer = await self._calls.unary(
            "CreateContainer",
            cri.CreateContainerRequest(
                pod_sandbox_id=pod_sandbox_id, config=config, sandbox_config=sandbox_config
            ),
            cri.CreateContainerResponse,
            target=f"{config.metadata.name} in sandbox {pod_sandbox_id}",
            check=lambda answer: verify.unset(answer, "container_id"),
        )
        return answer.container_id

    async def checkpoint_container(
        self, container_id: str, location: str, timeout: int = 0
    ) -> None:
        seconds = max(timeout, int(self._calls.request_timeout))
        await self._calls.unary(
            "CheckpointContainer",
            cri.CheckpointContainerRequest(
                container_id=container_id, location=location, timeout=seconds
            ),
            cri.CheckpointContainerResponse,
            own=timeout,
            target=container_id,
        )

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: float
    ) -> cri.ExecSyncResponse:
        """The runtime counts whole seconds: a fraction is rounded up."""
        return await self._calls.unary(
            "ExecSync",
            cri.ExecSyncRequest(container_id=container_id, cmd=cmd, timeout=math.ceil(timeout)),
            cri.ExecSyncResponse,
            own=timeout,
            target=container_id,
        )

    async def get_container_events(self) -> AsyncIterator[cri.ContainerEventResponse]:
        async for event in self._calls.stream(
            "GetContainerEvents", cri.GetEventsRequest(), cri.ContainerEventResponse
        ):
            yield event

    async def pull_image(
        self,
        image: cri.ImageSpec,
        auth: cri.AuthConfig | None = None,
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> str:
        answer = await self._image_calls.unary(
            "PullImage",
            cri.PullImageRequest(image=image, auth=auth, sandbox_config=sandbox_config),
            cri.PullImageResponse,
            target=image.image,
            check=lambda answer: verify.unset(answer, "image_ref"),
            secrets=secrets_of(auth),
        )
        return answer.image_ref


def secrets_of(auth: cri.AuthConfig | None) -> tuple[str, ...]:
    """Return the secret strings of a credential, also the password inside ``auth``."""
    if auth is None:
        return ()
    try:
        inside = base64.b64decode(auth.auth, validate=True).decode().partition(":")[2]
    except ValueError:
        inside = ""
    return (auth.password, auth.auth, auth.identity_token, auth.registry_token, inside)
