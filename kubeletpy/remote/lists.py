"""Lists of sandboxes and containers, in parts where one answer would be too large."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from kubeletpy.base.structs import Component, Struct
from kubeletpy.remote import verify
from kubeletpy.remote.calls import ServiceCalls
from kubeletpy.remote.errors import Code, CRIError, ResourceExhausted, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService

log = logging.getLogger(__name__)

IN_PARTS_S = 60.0
"""Seconds during which a list, or a stream, that was too large is requested in parts only."""
_SANDBOX_LIFE = (cri.SANDBOX_READY, cri.SANDBOX_NOTREADY)
_REFUSED = (Code.UNKNOWN, Code.INVALID_ARGUMENT)
_CONTAINER_LIFE = (
    cri.CONTAINER_CREATED,
    cri.CONTAINER_RUNNING,
    cri.CONTAINER_UNKNOWN,
    cri.CONTAINER_EXITED,
)

Selector = dict[str, str]
PodSelectors = Callable[[], Awaitable[Collection[Selector]]]
"""Labels of sandboxes, one set for each pod that this node may have anything of."""
Item = TypeVar("Item", bound=cri.PodSandbox | cri.Container)
Filter = TypeVar("Filter", bound=Message)


class Split(Struct, Generic[Filter], frozen=True):
    """A way to have a list in parts.

    Attributes:
        parts: the filters of the parts; empty when it does not divide this list.
        refusable: a runtime may not support such filters.
    """

    parts: Callable[[Filter], Awaitable[Sequence[Filter]]]
    refusable: bool = False


async def _no_pods() -> Collection[Selector]:
    return ()


class RemoteLists(RuntimeService):
    """Lists sandboxes and containers, in parts where one answer would be too large.

    A runtime's lists contain labels and annotations that pods' owners choose, so a node's list may
    outgrow the largest message. The list is then requested as a stream. If there is none, or its
    messages are too large as well (CRI-O: 3000 items in each), it is requested by state, and by pod
    or sandbox. Parts are requested in the order of life, so that what ends in between is seen
    twice, not never. Must never leave a part out: a list that can't be completed fails.
    """

    def __init__(self, calls: ServiceCalls, pod_selectors: PodSelectors | None = None) -> None:
        """Without ``pod_selectors`` a list of sandboxes is split by state only."""
        self._calls = calls
        self._pod_selectors = pod_selectors or _no_pods
        self._sandbox_list = _List[cri.PodSandbox, cri.PodSandboxFilter](
            "sandboxes", self._sandboxes, self.stream_pod_sandboxes
        )
        self._container_list = _List[cri.Container, cri.ContainerFilter](
            "containers", self._containers, self.stream_containers
        )

    async def list_pod_sandbox(
        self, filter: cri.PodSandboxFilter | None = None
    ) -> Sequence[cri.PodSandbox]:
        """Entries that do not state which sandbox they are, are left out."""
        splits = (Split(_by_sandbox_state), Split(self._by_pod))
        return await self._sandbox_list.get(filter or cri.PodSandboxFilter(), splits)

    async def list_containers(
        self, filter: cri.ContainerFilter | None = None
    ) -> Sequence[cri.Container]:
        """Entries that do not state which container they are, are left out."""
        # cri-dockerd does not select by the unknown state
        splits = (Split(_by_container_state, refusable=True), Split(self._by_sandbox))
        return await self._container_list.get(filter or cri.ContainerFilter(), splits)

    async def _sandboxes(self, filter: cri.PodSandboxFilter) -> tuple[list[cri.PodSandbox], int]:
        answer = await self._calls.unary(
            "ListPodSandbox",
            cri.ListPodSandboxRequest(filter=filter if filter.ByteSize() else None),
            cri.ListPodSandboxResponse,
        )
        return verify.believable_sandboxes(answer.items, filter)

    async def _containers(self, filter: cri.ContainerFilter) -> tuple[list[cri.Container], int]:
        answer = await self._calls.unary(
            "ListContainers",
            cri.ListContainersRequest(filter=filter if filter.ByteSize() else None),
            cri.ListContainersResponse,
        )
        return verify.believable_containers(answer.containers, filter)

    async def _by_pod(self, filter: cri.PodSandboxFilter) -> list[cri.PodSandboxFilter]:
        """Such a list leaves out what belongs to no known pod, as nothing selects it."""
        if filter.id or filter.label_selector:
            return []
        return [_with(filter, label_selector=labels) for labels in await self._pod_selectors()]

    async def _by_sandbox(self, filter: cri.ContainerFilter) -> list[cri.ContainerFilter]:
        if filter.id or filter.pod_sandbox_id:
            return []
        sandboxes = await self.list_pod_sandbox(
            cri.PodSandboxFilter(label_selector=filter.label_selector)
        )
        return [_with(filter, pod_sandbox_id=sandbox.id) for sandbox in sandboxes]


async def _by_sandbox_state(filter: cri.PodSandboxFilter) -> list[cri.PodSandboxFilter]:
    if filter.HasField("state"):
        return []
    return [_with(filter, state=cri.PodSandboxStateValue(state=each)) for each in _SANDBOX_LIFE]


async def _by_container_state(filter: cri.ContainerFilter) -> list[cri.ContainerFilter]:
    if filter.HasField("state"):
        return []
    return [_with(filter, state=cri.ContainerStateValue(state=each)) for each in _CONTAINER_LIFE]


def _with(filter: Filter, **fields: Any) -> Filter:
    """A filter that lets fewer items through."""
    narrower = type(filter)()
    narrower.CopyFrom(filter)
    narrower.MergeFrom(type(filter)(**fields))
    return narrower


class _List(Component, Generic[Item, Filter]):
    """One kind of list."""

    what: str
    ask: Callable[[Filter], Awaitable[tuple[list[Item], int]]]
    stream: Callable[[Filter], AsyncIterator[Item]]

    def __post_init__(self) -> None:
        self._streams = True
        self._warned = False
        self._too_large_until = 0.0
        self._stream_too_large_until = 0.0

    async def get(self, filter: Filter, splits: Sequence[Split[Filter]]) -> Sequence[Item]:
        """The items that the filter lets through. Raises CRIError."""
        loop = asyncio.get_running_loop()
        known = filter == type(filter)() and loop.time() < self._too_large_until
        try:
            if not known:
                return await self._answer(filter)
        except ResourceExhausted as error:
            if filter == type(filter)():
                if not self._too_large_until:
                    log.warning(
                        "the runtime's list is too large for one message, requesting parts of it: "
                        "pods with very large labels or annotations are the reason",
                        extra={"list": self.what, "error": str(error)},
                    )
                self._too_large_until = loop.time() + IN_PARTS_S
        if self._streams and loop.time() >= self._stream_too_large_until:
            try:
                return [item async for item in self.stream(filter)]
            except Unimplemented:
                self._streams = False
            except ResourceExhausted:
                self._stream_too_large_until = loop.time() + IN_PARTS_S
        return await self._parts(filter, splits)

    async def _answer(self, filter: Filter) -> list[Item]:
        """One answer without what the filter does not let through."""
        believed, dropped = await self.ask(filter)
        if dropped and not self._warned:
            self._warned = True
            log.warning(
                "the runtime ignores the filter of a list: each pod costs the list of the whole "
                "node; check the runtime's version",
                extra={"list": self.what, "dropped": dropped},
            )
        return believed

    async def _parts(self, filter: Filter, splits: Sequence[Split[Filter]]) -> Sequence[Item]:
        """The parts of a list that is too large; if two parts have an item, the later wins."""
        found: dict[str, Item] = {}
        for number, split in enumerate(splits, 1):
            parts = await split.parts(filter)
            if not parts:
                continue
            try:
                for part in parts:
                    try:
                        items: Sequence[Item] = await self._answer(part)
                    except ResourceExhausted:
                        items = await self._parts(part, splits[number:])
                    found.update((item.id, item) for item in items)
            except CRIError as error:
                if not split.refusable or error.code not in _REFUSED:
                    raise
                found.clear()
                continue
            return list(found.values())
        raise ResourceExhausted("List", f"the list of {self.what} cannot be had in smaller parts")
