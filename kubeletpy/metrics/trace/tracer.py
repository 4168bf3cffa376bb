"""Where spans are sent besides the pod's own trace: the interface, and the one that sends nothing.

Pure. The other one is :mod:`kubeletpy.metrics.trace.otlp`, loaded only when tracing is configured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol

Attributes = Mapping[str, str | int]


class OpenSpan(Protocol):
    """A span that is sent when its ``with`` ends; an exception that ends it is its error."""

    @property
    def carrier(self) -> Mapping[str, str]:
        """The header that passes this span to the server: W3C's ``traceparent``; empty when off."""
        ...

    def set(self, name: str, value: str | int) -> None:
        """Add an attribute. Must not be a secret: spans are sent without encryption."""
        ...

    def failed(self, why: str) -> None:
        """It ends with an error that is no exception."""
        ...

    def __enter__(self) -> OpenSpan: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Tracer(Protocol):
    """Makes spans."""

    def span(self, name: str, attributes: Attributes, *, client: bool = False) -> OpenSpan:
        """A span below the current one of this task, or of a trace of its own.

        ``client``: a call to another process; it never becomes the current one.
        """
        ...

    def request(self, name: str, attributes: Callable[[], Attributes]) -> OpenSpan:
        """A request from another process: a trace of its own."""
        ...


class _Unsent:
    __slots__ = ()
    carrier: Mapping[str, str] = {}

    def set(self, name: str, value: str | int) -> None:
        """Nothing."""

    def failed(self, why: str) -> None:
        """Nothing."""

    def __enter__(self) -> OpenSpan:
        return self

    def __exit__(self, *_: object) -> None:
        return None


class _NoTracer:
    def span(self, name: str, attributes: Attributes, *, client: bool = False) -> OpenSpan:
        return _UNSENT

    def request(self, name: str, attributes: Callable[[], Attributes]) -> OpenSpan:
        return _UNSENT


_UNSENT = _Unsent()
NO_TRACER: Tracer = _NoTracer()
"""Sends nothing."""
