"""A container runtime in memory, in the image of containerd: it outlives the agents it serves.

Its methods are the work behind the CRI's calls. A call whose client disconnects is canceled, as in
containerd. A sandbox or container in creation is then cleaned up, a container in its start ends
with StartError, and a stop sends no SIGKILL. Latencies are virtual.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kubeletpy.remote.errors import Code, CRIError, FailedPrecondition, NotFound, PermissionDenied
from kubeletpy.remote.generated import api_pb2 as cri
from tests.sim import scripts
from tests.sim.events import EventQueue
from tests.sim.history import History
from tests.sim.loop import call_later
from tests.sim.records import Container, Sandbox, matches, now_ns

KILLED, START_ERROR = 137, 128
TASK = "failed to create containerd task: failed to"
CANCELED = f"{TASK} create shim task: context canceled"
CANCELED_SHIM = f"{TASK} start shim: start failed: : signal: killed: unknown"
NO_PROGRAM = f'{TASK} create shim task: exec: "/nope": stat /nope: no such file or directory'
PAUSE = "sim.test/pause:1"
NO_DEVICE = "kubeletpy.local/none="
"""The kind of a CDI device that no machine has: this runtime obeys, and refuses it by its name."""

Observer = Callable[[str, Container | Sandbox], None]
"""Called with (what, whom) right after each change."""


class SimRuntime:
    """The runtime's process and the containers below it."""

    def __init__(
        self, rng: random.Random, history: History, *, events: bool, task_events: bool = False
    ) -> None:
        """Without ``events`` it is a containerd 1.6, or another runtime without task events."""
        self._rng = rng
        self._history = history
        self.sandboxes: dict[str, Sandbox] = {}
        self.containers: dict[str, Container] = {}
        self.images: dict[str, None] = {PAUSE: None}
        self.registry_up = True
        self.network_ready = True
        self.start_takes = (0.02, 0.06)
        """Seconds that StartContainer takes: least and most."""
        self.commands: dict[str, tuple[float, cri.ExecSyncResponse]] = {}
        """Commands that a container runs, by their first word: seconds, and the answer."""
        self.events = EventQueue(rng) if events else None
        self.task_events = EventQueue(rng) if task_events and not events else None
        self.reports = self.events or self.task_events
        self.observers: list[Observer] = []
        self.refuses: Callable[[cri.PodSandboxConfig], str] = lambda config: ""
        """The error of a sandbox that can't be made like this; empty: it can."""
        self._names: set[str] = set()
        self.has_lost = False
        """Whether records have vanished with the machine."""
        self._numbers: Counter[str] = Counter()
        self._runs: Counter[tuple[str, str]] = Counter()

    # -- sandboxes ---------------------------------------------------------------------------

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig) -> str:
        meta = config.metadata
        name = f"{meta.name}_{meta.namespace}_{meta.uid}_{meta.attempt}"
        self._reserve("sandbox", name)
        try:
            await self._takes(0.12, 0.4)
        except asyncio.CancelledError:
            if self._rng.random() < 0.7:
                self._names.discard(name)
            else:  # its network could not be torn down: the record stays, not ready
                self._make_sandbox(config, ready=False)
            raise
        if not self.network_ready:
            self._names.discard(name)
            raise CRIError("RunPodSandbox", "failed to setup network for sandbox")
        if error := self.refuses(config):
            self._names.discard(name)
            raise CRIError("RunPodSandbox", error)
        sandbox = self._make_sandbox(config)
        self._emit(cri.CONTAINER_CREATED_EVENT, sandbox.id, sandbox)
        self._emit(cri.CONTAINER_STARTED_EVENT, sandbox.id, sandbox)
        return sandbox.id

    def _make_sandbox(self, config: cri.PodSandboxConfig, *, ready: bool = True) -> Sandbox:
        copy = cri.PodSandboxConfig()
        copy.CopyFrom(config)
        number = self._number("s")
        host = config.linux.security_context.namespace_options.network == cri.NODE
        index = int(number[1:])
        ip = "" if host else f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}"
        sandbox = self.sandboxes[number] = Sandbox(number, copy, ip, now_ns(), ready=ready)
        self._changed("sandbox-run", sandbox)
        return sandbox

    async def stop_pod_sandbox(self, sandbox_id: str) -> None:
        await self._takes(0.02, 0.08)
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            return
        for container in self._inside(sandbox):
            self._stop_now(container)
        await self._takes(0.02, 0.08)
        self.kill_sandbox(sandbox)

    async def remove_pod_sandbox(self, sandbox_id: str) -> None:
        await self.stop_pod_sandbox(sandbox_id)
        await self._takes(0.01, 0.05)
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            return
        for container in self._inside(sandbox):
            self._forget(container)
        self._names.discard(sandbox.name)
        del self.sandboxes[sandbox_id]
        self._changed("sandbox-remove", sandbox)
        self._emit(cri.CONTAINER_DELETED_EVENT, sandbox_id, None)

    def kill_sandbox(self, sandbox: Sandbox) -> None:
        """The sandbox ends: its own process has been killed, or it was stopped."""
        if not sandbox.ready:
            return
        sandbox.ready = False
        self._changed("sandbox-stop", sandbox)
        self._emit(cri.CONTAINER_STOPPED_EVENT, sandbox.id, sandbox)

    # -- containers --------------------------------------------------------------------------

    async def create_container(self, sandbox_id: str, config: cri.ContainerConfig) -> str:
        await self._takes(0.005, 0.01)
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise NotFound("CreateContainer", "sandbox not found", target=sandbox_id)
        if not sandbox.ready:
            raise CRIError("CreateContainer", "no running task found", target=sandbox_id)
        desired = config.image.image
        image = next((i for i in self.images if desired in (i, scripts.image_id(i))), None)
        if image is None:
            raise NotFound("CreateContainer", f"image {desired!r} not found", target=sandbox_id)
        for device in config.CDI_devices:
            if device.name.startswith(NO_DEVICE):
                why = f"CDI device injection failed: unresolvable CDI devices {device.name}"
                raise CRIError("CreateContainer", why, target=sandbox_id)
        copy = cri.ContainerConfig()
        copy.CopyFrom(config)
        container = Container(
            self._number("c"),
            sandbox,
            copy,
            image,
            scripts.Script(),
            created_at=now_ns(),
            tells_resources=self.events is not None,
        )
        self._reserve("container", container.reserved)
        try:
            await self._takes(0.02, 0.07)
        except asyncio.CancelledError:
            self._names.discard(container.reserved)
            raise
        if sandbox_id not in self.sandboxes:
            self._names.discard(container.reserved)
            raise NotFound("CreateContainer", "sandbox vanished", target=sandbox_id)
        container.created_at = now_ns()
        self.containers[container.id] = container
        self._changed("create", container)
        self._emit(cri.CONTAINER_CREATED_EVENT, container.id, sandbox)
        return container.id

    async def start_container(self, container_id: str) -> None:
        container = self._get("StartContainer", container_id)
        if container.state != cri.CONTAINER_CREATED or container.busy:
            raise FailedPrecondition("StartContainer", "not created", target=container_id)
        container.busy = True
        try:
            await self._takes(*self.start_takes)
        except asyncio.CancelledError:
            call_later(self._rng.uniform(0.0, 0.1), self._abandon, container)
            raise
        container.busy = False
        runs = (container.uid, container.name)
        container.script = scripts.script_of(container.image, self._runs[runs])
        if not container.sandbox.ready or not container.script.starts:
            container.message = container.message or NO_PROGRAM
            self._end(container, START_ERROR, "StartError")
            raise CRIError("StartContainer", "failed to start task", target=container_id)
        if container.id not in self.containers:
            raise NotFound("StartContainer", "container vanished", target=container_id)
        self._runs[runs] += 1
        container.state = cri.CONTAINER_RUNNING
        container.started_at = now_ns()
        self._touch_log(container)
        self._changed("start", container)
        self._emit(cri.CONTAINER_STARTED_EVENT, container.id, container.sandbox)
        if container.script.runs_for is not None:
            container.timer = call_later(
                container.script.runs_for, self._end, container, container.script.exit_code, ""
            )

    async def stop_container(self, container_id: str, timeout: int) -> None:
        await self._takes(0.002, 0.01)
        container = self.containers.get(container_id)
        if container is None:
            if self.events is not None:
                return
            raise NotFound("StopContainer", "not found", target=container_id)
        self._changed("stop-asked", container)
        if not container.running:
            return
        if timeout > 0:
            self._signal(container)
            try:
                async with asyncio.timeout(timeout):
                    await container.ended.wait()
            except TimeoutError:
                pass
        await self._takes(0.002, 0.01)
        self._stop_now(container)

    async def remove_container(self, container_id: str) -> None:
        container = self.containers.get(container_id)
        if container is None:
            return
        if container.busy:
            raise CRIError("RemoveContainer", "it is in starting state", target=container_id)
        if container.stuck and container.sandbox.ready:
            raise FailedPrecondition(
                "RemoveContainer", "cannot delete running task", target=container_id
            )
        container.busy = True
        self._stop_now(container)
        try:
            await self._takes(0.005, 0.03)
        except asyncio.CancelledError:
            container.busy = False
            raise
        self._forget(container)

    async def update_pod_sandbox_resources(
        self, sandbox_id: str, resources: cri.LinuxContainerResources | None
    ) -> None:
        await self._takes(0.002, 0.01)
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise NotFound("UpdatePodSandboxResources", "not found", target=sandbox_id)
        if resources is not None:
            sandbox.config.linux.resources.CopyFrom(resources)

    async def update_container_resources(
        self, container_id: str, linux: cri.LinuxContainerResources
    ) -> None:
        container = self._get("UpdateContainerResources", container_id)
        await self._takes(0.005, 0.03)
        if not container.running:
            raise CRIError("UpdateContainerResources", "not running", target=container_id)
        container.config.linux.resources.MergeFrom(linux)
        self._changed("update", container)

    def kill_container(self, container: Container, code: int = KILLED) -> None:
        """The container's process dies by somebody's hand (an OOM, an operator)."""
        self._end(container, code, "OOMKilled" if code == KILLED else "Error")

    def lose_everything(self) -> None:
        """The machine has restarted, and nothing is kept of what was on it but the images."""
        for container in self.containers.values():
            if container.timer is not None:
                container.timer.cancel()
        self._history.note("runtime", "loses everything")
        self.containers.clear()
        self.sandboxes.clear()
        self._names.clear()
        self.has_lost = True

    # -- reads -------------------------------------------------------------------------------

    def list_sandboxes(self, chosen: cri.PodSandboxFilter | None) -> list[cri.PodSandbox]:
        chosen = chosen or cri.PodSandboxFilter()
        return [
            sandbox.item()
            for sandbox in self.sandboxes.values()
            if chosen.id in ("", sandbox.id)
            and matches(sandbox.config.labels, chosen.label_selector)
        ]

    def list_containers(self, chosen: cri.ContainerFilter | None) -> list[cri.Container]:
        chosen = chosen or cri.ContainerFilter()
        return [
            container.item()
            for container in self.containers.values()
            if chosen.id in ("", container.id)
            and chosen.pod_sandbox_id in ("", container.sandbox.id)
            and matches(container.config.labels, chosen.label_selector)
        ]

    def sandbox_status(self, sandbox_id: str) -> cri.PodSandboxStatusResponse:
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise NotFound("PodSandboxStatus", "not found", target=sandbox_id)
        return cri.PodSandboxStatusResponse(status=sandbox.status())

    def container_status(self, container_id: str) -> cri.ContainerStatusResponse:
        container = self._get("ContainerStatus", container_id)
        return cri.ContainerStatusResponse(status=container.status())

    def container_stats(self, container_id: str) -> cri.ContainerStats:
        container = self._get("ContainerStats", container_id)
        stats = cri.ContainerStats()
        stats.attributes.id = container.id
        stats.memory.usage_bytes.value = container.memory_used
        return stats

    def running(self, uid: str | None = None) -> list[Container]:
        """Containers that run, of one pod or of all."""
        return [c for c in self.containers.values() if c.running and uid in (None, c.uid)]

    # -- images ------------------------------------------------------------------------------

    async def pull_image(self, image: str, auth: cri.AuthConfig | None) -> str:
        host = scripts.host(image)
        await self._takes(*((20.0, 40.0) if host == scripts.SLOW else (0.2, 2.0)))
        if not self.registry_up:
            raise CRIError("PullImage", "connection refused", target=image, code=Code.UNKNOWN)
        if host == scripts.MISSING:
            raise NotFound("PullImage", "not found", target=image)
        supplied = (auth.username, auth.password) if auth else ("", "")
        if host == scripts.SECRET and supplied != (scripts.USERNAME, scripts.PASSWORD):
            raise PermissionDenied("PullImage", "authorization failed", target=image)
        self.images[image] = None
        return scripts.image_id(image)

    def image(self, name: str) -> cri.Image | None:
        """An image by name or id."""
        for image in self.images:
            if name in (image, scripts.image_id(image)):
                return cri.Image(
                    id=scripts.image_id(image),
                    repo_tags=[image],
                    size=1000,
                    username="root",
                    pinned=image == PAUSE,
                )
        return None

    # -- inside ------------------------------------------------------------------------------

    def _signal(self, container: Container) -> None:
        if container.term_sent:
            return
        container.term_sent = True
        takes = container.script.term_takes
        if takes is not None:
            call_later(takes, self._end, container, container.script.term_code, "")

    def _stop_now(self, container: Container) -> None:
        self._changed("stop-asked", container)
        if container.running:
            self._end(container, KILLED, "Error")

    def _end(self, container: Container, code: int, reason: str) -> None:
        if container.state == cri.CONTAINER_EXITED or container.id not in self.containers:
            return
        was_running = container.running
        container.state = cri.CONTAINER_EXITED
        container.exit_code, container.finished_at = code, now_ns()
        container.reason = reason or ("Completed" if code == 0 else "Error")
        if container.timer is not None:
            container.timer.cancel()
        container.ended.set()
        if was_running:
            self._write_termination_message(container)
        self._changed("exit", container)
        self._emit(cri.CONTAINER_STOPPED_EVENT, container.id, container.sandbox)

    def _abandon(self, container: Container) -> None:
        """The start of a container ends without its client."""
        container.busy = False
        container.abandoned = True
        old = self.events is None
        container.message = self._rng.choice((CANCELED, CANCELED_SHIM)) if old else CANCELED
        container.stuck = old and self._rng.random() < 0.2
        self._end(container, START_ERROR, "StartError")

    def _forget(self, container: Container) -> None:
        if self.containers.pop(container.id, None) is None:
            return
        self._names.discard(container.reserved)
        self._changed("remove", container)
        self._emit(cri.CONTAINER_DELETED_EVENT, container.id, container.sandbox)

    def _inside(self, sandbox: Sandbox) -> list[Container]:
        return [c for c in self.containers.values() if c.sandbox is sandbox]

    def _get(self, method: str, container_id: str) -> Container:
        container = self.containers.get(container_id)
        if container is None:
            raise NotFound(method, "not found", target=container_id)
        return container

    def _reserve(self, kind: str, name: str) -> None:
        if name in self._names:
            raise CRIError("Create", f'failed to reserve {kind} name "{name}": it is reserved')
        self._names.add(name)

    def _number(self, kind: str) -> str:
        self._numbers[kind] += 1
        return f"{kind}{self._numbers[kind]}"

    async def _takes(self, least: float, most: float) -> None:
        await asyncio.sleep(self._rng.uniform(least, most))

    def _touch_log(self, container: Container) -> None:
        log = Path(container.sandbox.config.log_directory, container.config.log_path)
        if log.parent.is_dir():
            log.touch()

    def _write_termination_message(self, container: Container) -> None:
        for mount in container.config.mounts:
            if mount.container_path.endswith("termination-log"):
                path = Path(mount.host_path)
                if path.exists():
                    path.write_text(f"bye from {container.id}")

    def _changed(self, what: str, whom: Container | Sandbox) -> None:
        if what == "stop-asked" and isinstance(whom, Container):
            whom.stop_asked = True
        else:
            notified = f"{whom}" if isinstance(whom, Container) else f"{whom.id} {whom.name}"
            if what == "exit" and isinstance(whom, Container):
                notified += f" code={whom.exit_code}"
            self._history.note("runtime", f"{what} {notified}")
        for observer in self.observers:
            observer(what, whom)

    def _emit(self, kind: cri.ContainerEventType, about: str, sandbox: Sandbox | None) -> None:
        event = cri.ContainerEventResponse(
            container_id=about, container_event_type=kind, created_at=now_ns()
        )
        if self.task_events is not None and kind == cri.CONTAINER_STOPPED_EVENT:
            self.task_events.put(event)
        if self.events is None:
            return
        if sandbox is not None and sandbox.id in self.sandboxes:
            event.pod_sandbox_status.CopyFrom(sandbox.status())
            event.containers_statuses.extend(c.status() for c in self._inside(sandbox))
        self.events.put(event)
