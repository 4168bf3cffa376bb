"""Reads a pod's state from the runtime, and decodes the events that it sends.

Must never change anything in the runtime.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from kubeletpy.base.clock import Clock, steady_ns
from kubeletpy.base.structs import Component, Struct, field
from kubeletpy.base.tasks import run_together
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    PodRuntimeStatus,
    RuntimeHealth,
    RuntimePodSummary,
    SandboxStatus,
    event_observed_at,
)
from kubeletpy.remote.errors import CRIError, InvalidResponse, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.names import (
    POD_UID,
    TERMINATION_MESSAGE_PATH,
    TERMINATION_MESSAGE_POLICY,
    read_labels,
    sandbox_rank,
    termination_file,
)
from kubeletpy.runtime_manager.read import status_reader
from kubeletpy.runtime_manager.read.status_reader import OwnStarts, PodIdentity, ReadContainer

# The termination message of a container: from the file it may write, or the end of its log.
#
# Both files are written by the container and hostile, and whoever mounts their directories from
# the host can move them. Only the file that the agent made for the container and a log below
# podLogsDir are read, never a volume that is mounted at the path of the message. It must be a
# regular file; links are not followed, reading never blocks, and only the last bytes are read.
# Must never raise for what is in them. Source: docs/reference/behaviour.md, e5.

MAX_FILE_BYTES = 4096
MAX_LOG_BYTES = 2048
MAX_LOG_LINES = 80
LOG_WINDOW = 256 * 1024
"""Bytes at a log's end that are searched for those lines. A line of a CRI log is at most 16 KiB,
and only the last 2048 bytes of text count."""
FALLBACK_TO_LOGS = "FallbackToLogsOnError"


class MessageRoots(Struct, frozen=True):
    """Where the agent's own files are: the kubelet's root directory, and podLogsDir."""

    root_dir: str
    pod_logs: str


def has_message_source(status: cri.ContainerStatus) -> bool:
    """Whether there may be anything to read: the container has ended and has a file or a log."""
    return status.state == cri.CONTAINER_EXITED and (
        bool(status.annotations.get(TERMINATION_MESSAGE_PATH))
        or status.annotations.get(TERMINATION_MESSAGE_POLICY) == FALLBACK_TO_LOGS
    )


def may_end_in_log(status: cri.ContainerStatus) -> bool:
    """Whether the end of the log may be the message: the runtime completes a log after the exit."""
    return (
        status.annotations.get(TERMINATION_MESSAGE_POLICY) == FALLBACK_TO_LOGS
        and status.exit_code != 0
        and status.reason != "ContainerCannotRun"
    )


def read_termination_message(status: cri.ContainerStatus, roots: MessageRoots) -> str:
    """The message of an ended container, "" when it left none. Blocks on the files."""
    message = ""
    file = _own_file(status, roots) if status.annotations.get(TERMINATION_MESSAGE_PATH) else ""
    if file:
        try:
            message = read_tail(roots.root_dir, file, MAX_FILE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            message = ""
        except OSError as error:
            return f"Error on reading termination log {file}: {_why(error)}"
    if message or not may_end_in_log(status) or not status.log_path:
        return message
    try:
        tail = read_tail(roots.pod_logs, status.log_path, LOG_WINDOW, container_id=status.id)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"Error on reading termination message from logs: {_why(error)}"
    return last_log_text(tail)


def read_tail(root: str, path: str, limit: int, *, container_id: str = "") -> bytes:
    """The last ``limit`` bytes of a regular file below ``root``.

    With a ``container_id`` the runtime's link to that container's log is followed.

    Raises:
        OSError: it cannot be opened, is somewhere else, or is another link or not a regular file.
    """
    from kubeletpy.base.host.files import open_container_log

    descriptor, _ = open_container_log(root, path, container_id)
    try:
        return os.pread(descriptor, limit, max(0, os.fstat(descriptor).st_size - limit))
    finally:
        os.close(descriptor)


def _own_file(status: cri.ContainerStatus, roots: MessageRoots) -> str:
    """The file that the agent made for the container's message; empty: none is mounted."""
    owner = read_labels(status.labels)
    for mount in status.mounts:
        file = termination_file(
            roots.root_dir, owner.pod_uid, owner.container_name, mount.host_path
        )
        if file:
            return file
    return ""


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def last_log_text(tail: bytes) -> str:
    """The text of the last records at the end of a log file, in CRI or JSON format.

    At most the last 80 records and 2048 bytes; records that cannot be read (the first may be
    truncated) are left out.
    """
    texts: list[bytes] = []
    for line in reversed(tail.split(b"\n")):
        if len(texts) == MAX_LOG_LINES:
            break
        text = _record_text(line)
        if text is not None:
            texts.append(text)
    return b"".join(reversed(texts))[-MAX_LOG_BYTES:].decode("utf-8", "replace")


def _record_text(line: bytes) -> bytes | None:
    if line.startswith(b"{"):
        try:
            log = json.loads(line)
        except (ValueError, RecursionError):
            return None
        text = log.get("log") if isinstance(log, dict) else None
        return text.encode("utf-8", "replace") if isinstance(text, str) else None
    fields = line.split(b" ", 3)
    if len(fields) != 4 or fields[1] not in (b"stdout", b"stderr"):
        return None
    partial = fields[2].split(b":", 1)[0] == b"P"
    return fields[3] if partial else fields[3] + b"\n"


logger = logging.getLogger(__name__)

MAX_CONCURRENT_READS = 16
"""Status calls in flight at once, for the whole node."""
READ_AT_ONCE = 100
"""Containers of an event that are read in one turn of the event loop: a pod may have thousands."""

T = TypeVar("T")


class StatusSource(Component):
    """Reads the pods of a runtime, with a bounded number of calls at once."""

    runtime: RuntimeService
    clock: Clock
    # Termination messages are read below them.
    roots: MessageRoots
    # The starts that failed in this agent's own life: their ends count.
    own_starts: OwnStarts = field(default_factory=OwnStarts)

    def __post_init__(self) -> None:
        self._reads = asyncio.Semaphore(MAX_CONCURRENT_READS)

    def now(self) -> int:
        """Nanoseconds of the event loop's clock, as statuses are stamped."""
        return steady_ns()

    async def read_pod_status(self, uid: str, name: str, namespace: str) -> PodRuntimeStatus:
        """All that the runtime has of a pod.

        Raises:
            CRIError: a call failed (except for records that vanish meanwhile).
        """
        observed_at = self.now()
        requested, ended, containers = await self._listed(uid)
        statuses, read = await run_together(
            self._sandbox_statuses(requested), self._container_statuses(uid, containers)
        )
        identity = PodIdentity(uid, name, namespace)
        return status_reader.pod_status_from_cri(identity, [*statuses, *ended], read, observed_at)

    async def _listed(self, uid: str) -> tuple[list[str], list[SandboxStatus], dict[str, str]]:
        """The sandboxes of a pod to read, those whose entry is sufficient, and container to
        sandbox.

        None of it holds an answer of the runtime.
        """
        selector = {POD_UID: uid}
        sandboxes, containers = await run_together(
            self.runtime.list_pod_sandbox(cri.PodSandboxFilter(label_selector=selector)),
            self.runtime.list_containers(cri.ContainerFilter(label_selector=selector)),
        )
        ours = [s for s in sandboxes if s.labels.get(POD_UID) == uid]
        newest = max(ours, key=sandbox_rank, default=None)
        requested = [s.id for s in ours if s is newest or _is_ready(s)]
        ended = [
            status_reader.sandbox_from_list(s) for s in ours if s is not newest and not _is_ready(s)
        ]
        return requested, ended, {c.id: c.pod_sandbox_id for c in containers}

    async def list_pods(self) -> list[RuntimePodSummary]:
        """Every pod, dead ones included. Raises CRIError."""
        sandboxes, containers = await run_together(
            self.runtime.list_pod_sandbox(), self.runtime.list_containers()
        )
        return status_reader.summaries_from_lists(sandboxes, containers)

    async def health(self) -> RuntimeHealth:
        """Query the runtime's health. Never raises."""
        try:
            answer = await self.runtime.status()
        except CRIError as error:
            return RuntimeHealth(False, False, str(error), str(error))
        return status_reader.health_from_conditions(answer.status.conditions)

    async def read_containers(self, ids: Iterable[tuple[str, str]]) -> list[ReadContainer]:
        """State and last words of containers, given as (id, sandbox id), without vanished ones.

        Raises:
            CRIError: a call failed.
        """
        read = await _all_or_none(lambda pair: self._read_container(*pair), dict(ids).items())
        return [container for container in read if container is not None]

    async def _container_statuses(
        self, uid: str, containers: Mapping[str, str]
    ) -> list[ContainerStatus]:
        """The containers that are the pod's; each answer is dropped as soon as it is read."""

        async def one(pair: tuple[str, str]) -> ContainerStatus | None:
            record = await self._read_container(*pair)
            return None if record is None else status_reader.container_of_pod(record, uid)

        found = await _all_or_none(one, containers.items())
        return [status for status in found if status is not None]

    async def read_sandbox(self, sandbox_id: str) -> cri.PodSandboxStatus:
        """State of one sandbox.

        Raises:
            CRIError: the call failed, or its answer is empty.
        """
        answer = await self.runtime.pod_sandbox_status(sandbox_id)
        if not answer.HasField("status") or not answer.status.id:
            raise InvalidResponse("PodSandboxStatus", "pod sandbox status is nil")
        return answer.status

    async def event_to_status(
        self, event: cri.ContainerEventResponse, previous: PodRuntimeStatus | None = None
    ) -> PodRuntimeStatus | None:
        """The pod's status as an event shows it; None when it does not show enough: then query.

        An event covers one sandbox: what ``previous`` has of the pod's other ones is kept. So is
        what it has of containers that had ended: every event of a pod repeats them.
        """
        sandbox = event.pod_sandbox_status
        observed_at = event_observed_at(event.created_at, int(self.clock.now() * 1e9), self.now())
        if not event.HasField("pod_sandbox_status") or not sandbox.id or observed_at is None:
            return None
        owner = read_labels(sandbox.labels)
        if not owner.pod_uid:
            return None
        ended = _ended(previous) if previous is not None else {}
        containers: list[ContainerStatus] = []
        for number, status in enumerate(event.containers_statuses, 1):
            read = ended.get(status.id)
            if read is None or not _is_that_end(status, read):
                record = await self._with_message(status, sandbox.id)
                read = status_reader.container_of_pod(record, owner.pod_uid)
            if read is not None:
                containers.append(read)
            if number % READ_AT_ONCE == 0:
                await asyncio.sleep(0)
        identity = PodIdentity(owner.pod_uid, owner.pod_name, owner.pod_namespace)
        fresh = status_reader.pod_status_from_cri(identity, [sandbox], containers, observed_at)
        if previous is None:
            return fresh
        return status_reader.replace_sandbox_records(previous, sandbox.id, fresh)

    async def _sandbox_statuses(self, ids: Sequence[str]) -> list[cri.PodSandboxStatus]:
        async def one(sandbox_id: str) -> cri.PodSandboxStatus | None:
            async with self._reads:
                try:
                    return await self.read_sandbox(sandbox_id)
                except NotFound:
                    return None

        found = await _all_or_none(one, ids)
        return [status for status in found if status is not None]

    async def _read_container(self, container_id: str, sandbox_id: str) -> ReadContainer | None:
        async with self._reads:
            try:
                answer = await self.runtime.container_status(container_id)
            except NotFound:
                return None
        if not answer.HasField("status"):
            raise InvalidResponse("ContainerStatus", "no status", target=container_id)
        return await self._with_message(answer.status, sandbox_id)

    async def _with_message(self, status: cri.ContainerStatus, sandbox_id: str) -> ReadContainer:
        if self.own_starts.is_abandoned(status):
            return ReadContainer(status, sandbox_id, start_abandoned=True)
        message = ""
        if has_message_source(status):
            # The file may be on a volume of the pod that hangs.
            message = await asyncio.to_thread(read_termination_message, status, self.roots)
        return ReadContainer(status, sandbox_id, message)


U = TypeVar("U")


async def _all_or_none(read: Callable[[U], Awaitable[T]], keys: Iterable[U]) -> list[T]:
    """The results of ``read`` for each key, in order; when one fails the others are canceled.

    There are as many tasks as may read at once, not one for each key.
    """
    numbered = list(enumerate(keys))
    found: dict[int, T] = {}
    left = iter(numbered)

    async def read_some() -> None:
        for number, key in left:
            found[number] = await read(key)

    await run_together(*(read_some() for _ in numbered[:MAX_CONCURRENT_READS]))
    return [found[number] for number, _ in numbered]


def _ended(status: PodRuntimeStatus) -> dict[str, ContainerStatus]:
    return {each.id: each for each in status.containers if each.state is ContainerState.EXITED}


def _is_that_end(status: cri.ContainerStatus, known: ContainerStatus) -> bool:
    """Whether a container's record can show nothing new: it had ended when ``known`` was read."""
    return (
        status.state == cri.CONTAINER_EXITED
        and status.finished_at == known.finished_at
        and status.exit_code == known.exit_code
        and not may_end_in_log(status)
    )


def _is_ready(sandbox: cri.PodSandbox) -> bool:
    return bool(sandbox.state == cri.SANDBOX_READY)
