"""The common part of the managers of CPUs and memory: a static policy and its state file.

The policy makes the decisions, and the file keeps them: it is read and checked at the start.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from prometheus_client.metrics import Counter

from kubeletpy.base.api import types as api
from kubeletpy.base.host.state_file import StateFile, read_state
from kubeletpy.base.structs import Component, Struct
from kubeletpy.metrics.resources import PlacementMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.placement.model import (
    AllocationRefused,
    Hint,
    Hints,
    PodLevelPlacement,
    containers_in_order,
)
from kubeletpy.resources.placement.state import CpuState, MemoryState, StateError

_DISK_ADVICE = "Repair its file system, then start again; the file itself may be sound."


class StateUnusable(Exception):
    """The agent can't start with this state file; the message states what to do."""

    def __init__(self, path: Path, why: str, advice: str = "") -> None:
        advice = advice or "Drain this node and delete the file, then start again."
        super().__init__(f"{path} can't be used: {why}. {advice}")


S = TypeVar("S", bound=CpuState | MemoryState)


class Form(Struct, Generic[S], frozen=True):
    """The name and format of a state's file.

    Attributes:
        name: the file's.
        setting: the agent's setting that names the policy.
        held: what the entries are, for messages: ``CPUs``.
        read: parses a text to a state; raises StateError.
        write: returns the text of a state.
        none: the state of the policy none.
        requests: counts the containers that request the resource, ``errors`` those refused.
    """

    name: str
    setting: str
    held: str
    read: Callable[[str], S]
    write: Callable[[S], str]
    none: S
    requests: Callable[[PlacementMetrics], Counter]
    errors: Callable[[PlacementMetrics], Counter]


P = TypeVar("P", bound="StaticPolicy[Any]")


class StaticPolicy(Protocol[S]):
    """Decides which part of a resource pods get; a decision is a new state. Pure.

    All methods raise ValueError for an invalid quantity.
    """

    @property
    def pod_level(self) -> PodLevelPlacement:
        """How resources are booked for pods with pod-level resources."""

    def initial(self) -> S:
        """The state of a node on which no container has anything yet."""

    def problem(self, state: S) -> str:
        """Return why a state that was read cannot be used; empty if it can."""

    def requested(self, pod: Pod, container: api.Container) -> object:
        """Return the amount that a container gets of its own; false for nothing."""

    def hints(self, state: S, pod: Pod, container: api.Container | None) -> Hints:
        """Return where it could be allocated; ``container`` None stands for the whole pod."""

    def allocate(self, state: S, pod: Pod, container: api.Container, hint: Hint) -> S:
        """The state after a container gets its own. Raises AllocationRefused."""

    def allocate_pool(self, state: S, pod: Pod, hint: Hint) -> S:
        """The state after a pod gets its pool. Raises AllocationRefused."""


class StaticManager(Component, Generic[S, P]):
    """A provider of a resource (``ResourceProvider``), except ``settle`` and ``release``."""

    name: ClassVar[str]
    form: ClassVar[Form[Any]]

    policy: P | None
    """None: the policy none."""
    root_dir: Path
    """Has the file that keeps the state."""
    metrics: PlacementMetrics

    def __post_init__(self) -> None:
        self.state: S = self.form.none if self.policy is None else self.policy.initial()
        self._file = StateFile(self.root_dir / self.form.name, self._capture, "state not written")
        self._unsettled: dict[str, list[str]] = {}
        """Containers whose resources are not booked on the disk, by uid of the pod."""

    async def start(self) -> None:
        """Continue from the file's content, or write the state of a fresh node to it.

        Raises:
            StateUnusable: the file can't be read, is damaged, belongs to another policy, does
                not suit this machine, or can't be written.
        """
        path = self._file.path
        try:
            text = self._read()
            self.state = self.state if text is None else self._checked(text)
        except StateError as error:
            raise StateUnusable(path, str(error)) from error
        except OSError as error:
            raise StateUnusable(path, error.strerror or str(error), _DISK_ADVICE) from error
        if text == self.form.write(self.state):
            return  # a read-only disk does not keep the agent from starting
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            await self._file.write()
        except OSError as error:
            if self.policy is not None:
                raise StateUnusable(path, error.strerror or str(error), _DISK_ADVICE) from error
            self._file.failed(error)

    async def close(self) -> None:
        """Finish the writes of the state file."""
        await self._file.close()

    def _capture(self) -> Callable[[], bytes]:
        state = self.state
        return lambda: self.form.write(state).encode("utf-8", "surrogateescape")

    def _read(self) -> str | None:
        """Return the file's text, or None if it is absent or empty. Blocking."""
        try:
            return read_state(self._file.path).decode("utf-8", "surrogateescape") or None
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise StateError(str(error)) from error

    def _checked(self, text: str) -> S:
        """Return the state to continue from: that of the file, or a fresh one."""
        found: S = self.form.read(text)
        fresh = self.state
        if found.policy != fresh.policy:
            raise StateError(
                f'{self.form.setting} is "{fresh.policy}", and the {self.form.held} in it were '
                f'given by "{found.policy}"'
            )
        if self.policy is None or found.is_empty:
            return fresh
        if why := self.policy.problem(found):
            raise StateError(why)
        return found

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        """Return where a container's request could be allocated."""
        return {} if self.policy is None else self.policy.hints(self.state, pod, container)

    def is_requested_by(self, pod: Pod) -> bool:
        """Whether any container of a pod gets some of the resource as its own."""
        policy = self.policy
        return policy is not None and any(
            policy.requested(pod, each) for each in containers_in_order(pod)
        )

    def book(self, pod: Pod, container: api.Container, hint: Hint) -> bool:
        """Book a container's request, or its pod's pool. Raises AllocationRefused."""
        policy = self.policy
        if policy is None:
            return False
        before, pools = self.state, policy.pod_level.pools(pod)
        if not pools and not policy.requested(pod, container):
            return False
        try:
            if pools:
                self.state = policy.allocate_pool(before, pod, hint)
            else:
                self.form.requests(self.metrics).inc()
                self.state = self._allocate(policy, pod, container, hint)
        except AllocationRefused:
            self._count_refusal("pod" if pools else "node")
            raise
        if self.state is before:
            return False
        if pools:  # the first container reserves what its pod gets as one
            names = [each["name"] for each in containers_in_order(pod)]
            self.form.requests(self.metrics).inc(sum(self.owns(pod, name) for name in names))
            self._unsettled[pod.uid] = names
        else:
            self._unsettled.setdefault(pod.uid, []).append(container["name"])
        return True

    @abstractmethod
    def owns(self, pod: Pod, container: str) -> bool:
        """Whether a container has something that no other shares, not even in its pod."""

    def _allocate(self, policy: P, pod: Pod, container: api.Container, hint: Hint) -> S:
        state: S = policy.allocate(self.state, pod, container, hint)
        return state

    def _keep(self, uids: Collection[str], after: S) -> list[str]:
        """Continue from a state that has only the pods ``uids``; returns the other ones."""
        for uid in self._unsettled.keys() - set(uids):
            del self._unsettled[uid]
        before, self.state = self.state, after
        if after is before:
            return []
        self._file.write_soon()
        return sorted({*before.entries, *before.pools} - {*after.entries})

    def _source(self, pod: Pod) -> str:
        """Where a pod's resources come from, as metrics name it."""
        return "pod" if pod.uid in self.state.pools else "node"

    def _count_refusal(self, source: str) -> None:
        self.form.errors(self.metrics).inc()
        self.metrics.allocation_errors.labels(self.name, source).inc()

    def _count_allocation(self, pod: Pod, container: str, source: str) -> None:
        kind = "exclusive" if self.owns(pod, container) else "shared"
        self.metrics.allocations.labels(self.name, source).inc()
        self.metrics.assignments.labels(self.name, f"{source}_{kind}").inc()
