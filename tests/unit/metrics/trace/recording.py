"""A tracer that keeps its spans, in place of a collector."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType

from kubeletpy.metrics.trace.model import Attributes, OpenSpan


@dataclass
class Recorded:
    """One span."""

    name: str
    attributes: dict[str, str | int]
    kind: str
    error: str | None = None
    ended: bool = False
    carrier: Mapping[str, str] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when an attribute is set."""

    def set(self, name: str, value: str | int) -> None:
        self.attributes[name] = value
        self.changed.set()

    def failed(self, why: str) -> None:
        self.error = why

    def __enter__(self) -> OpenSpan:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.ended = True
        if error is not None:
            self.error = str(error)


class Recording:
    """A :class:`~kubeletpy.metrics.trace.model.Tracer`."""

    def __init__(self) -> None:
        self.spans: list[Recorded] = []
        self.begun = asyncio.Event()

    def span(self, name: str, attributes: Attributes, *, client: bool = False) -> OpenSpan:
        return self._kept(Recorded(name, dict(attributes), "client" if client else "internal"))

    def request(self, name: str, attributes: Callable[[], Attributes]) -> OpenSpan:
        return self._kept(Recorded(name, dict(attributes()), "server"))

    def _kept(self, span: Recorded) -> OpenSpan:
        self.spans.append(span)
        self.begun.set()
        return span
