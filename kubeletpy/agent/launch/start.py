"""Starts an agent: connects to runtime and API, reads the machine, builds it and runs it."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from kubeletpy.agent.agent import Agent
from kubeletpy.agent.build import build
from kubeletpy.agent.context import ApiClients, Machine, OfflineHost, Outside
from kubeletpy.agent.errors import LaunchError
from kubeletpy.agent.launch import runtime as launch_runtime
from kubeletpy.agent.launch.identity import join
from kubeletpy.agent.placement import has_placement
from kubeletpy.base.clock import SystemClock
from kubeletpy.base.host.files import remove_unfinished
from kubeletpy.base.host.inotify import DirectoryWatch
from kubeletpy.base.host.machine import INIT, moment, process_started_at
from kubeletpy.base.host.patient_threads import SteadyThreads
from kubeletpy.base.host.program import run_program
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import background, cancel_tasks, until_one_ends
from kubeletpy.config import KubeletSettings, LoadedConfig, NodeFlags
from kubeletpy.config.effects import Notice
from kubeletpy.config.gates import known_gates
from kubeletpy.config.settings import Tracing
from kubeletpy.config.version_choice import ResolvedVersion
from kubeletpy.images.records.ledger import RecordsUnreadable
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer
from kubeletpy.metrics.trace.watched_loop import WatchedLoop, watching
from kubeletpy.node.eviction.machine import MachineSignals
from kubeletpy.node.facts import (
    MachineFacts,
    NodeAddresses,
    NodeOptions,
    capacity,
    node_name,
    reserved_cpus,
)
from kubeletpy.node.guards.at_start import this_machine
from kubeletpy.node.machine import read_machine_facts
from kubeletpy.node.stats.collector import withheld_huge_pages
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.connection import EndpointError
from kubeletpy.remote.containerd import RemoteContent, task_exits
from kubeletpy.resources.cgroups.setup import KernelFacts, read_kernel_facts, set_up
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.resources.cgroups.values import CgroupError
from kubeletpy.resources.placement.machine import MachineTopology, TopologyUnknown, read_machine
from kubeletpy.resources.placement.static_manager import StateUnusable
from kubeletpy.resources.plugins.plugin_manager import SocketRegistrations
from kubeletpy.server.build import Ports
from kubeletpy.server.routes import ServerError
from kubeletpy.server.settings import ServerSettings
from kubeletpy.volumes.files.disk import share

REVIEW_QPS, REVIEW_BURST = 50, 100
"""Requests per second to the API on behalf of clients, separate from what pods need."""

log = logging.getLogger(__name__)


async def run_agent(loaded: LoadedConfig) -> None:
    """Run a node agent until cancelled.

    Raises:
        ConfigError: settings that can't work on this machine.
        LaunchError: the machine or the runtime is unusable.
        KubeconfigError: the kubeconfig can't be read.
    """
    if not loaded.node.lock_file:
        await _run(loaded)
        return

    await run_locked(loaded.node, _run(loaded))


async def _run(loaded: LoadedConfig) -> None:
    async with AsyncExitStack() as stack:
        manager = _service_manager()
        agent = await make_agent(loaded, stack, manager)
        if manager is not None:
            manager.notify("READY=1")
        await agent.run()


def _service_manager() -> ServiceManager | None:
    if "NOTIFY_SOCKET" not in os.environ:
        return None

    return ServiceManager(os.environ)


async def make_agent(
    loaded: LoadedConfig, stack: AsyncExitStack, manager: ServiceManager | None = None
) -> Agent:
    """Connect to everything, build the agent and start it; the stack closes all of it.

    ``manager``: the one whose watchdog to notify; None: there is none.
    """
    asyncio.get_running_loop().set_default_executor(SteadyThreads())
    return await launch_runtime.make_for_version(
        loaded, stack, partial(_create_agent, manager=manager)
    )


async def _create_agent(
    loaded: LoadedConfig,
    stack: AsyncExitStack,
    resolved: ResolvedVersion | None,
    *,
    manager: ServiceManager | None,
) -> Agent:
    settings, flags = loaded.settings, loaded.node
    metrics, clock, root = new_metrics(settings), SystemClock(), Path(flags.root_dir)
    make_root(root)
    facts = read_machine_facts(root)
    name = node_name(flags, facts.hostname)
    tracer, untraced = _tracing(settings, name, stack)
    runtime = _connect(settings, metrics, root, stack, tracer)
    ports = bind_ports(settings, flags, stack)
    clear_unfinished(flags)
    identity = await join(settings, flags, name, metrics, stack, tracer=tracer)
    asking = asyncio.ensure_future(
        launch_runtime.resolve_version(
            loaded, identity.client if identity is not None else None, resolved
        )
    )
    stack.push_async_callback(cancel_tasks, (asking,))
    info = await launch_runtime.wait_for_runtime(runtime)
    node_ips = NodeAddresses(await launch_runtime.find_node_ips(flags, facts))
    resolved = await asking
    if resolved.version != settings.feature_gates.version:
        raise launch_runtime.OtherVersion(resolved)
    await launch_runtime.record_version_choice(resolved, root)
    _share_root(root)
    kernel = read_kernel_facts()
    now = clock.now()
    cgroups = await _cgroups(settings, facts, kernel, runtime, metrics.runtime.losing_support)
    kubepods = cgroups.names.kubepods if cgroups is not None else ""
    outside = Outside(
        machine=Machine(
            facts,
            kernel,
            node_ips,
            cgroups=cgroups,
            signals=MachineSignals.for_this_machine(
                clock,
                kubepods,
                flags.root_dir,
                runtime,
                huge_pages=withheld_huge_pages(settings, facts),
            ),
            guarded=this_machine(),
            topology=_topology(settings),
            booted_at=process_started_at(now, INIT),
            started_at=process_started_at(now),
        ),
        runtime=runtime,
        images=runtime,
        content=RemoteContent(runtime.image_connection, runtime.image_fs_info),
        task_exits=partial(task_exits, runtime.connection),
        runtime_info=info,
        read_runtime_info=partial(launch_runtime.query_runtime, runtime),
        clock=clock,
        api=api_clients(settings, identity.client) if identity is not None else None,
        metrics=metrics,
        credentials=[
            *(identity.tasks if identity is not None else ()),
            *launch_runtime.follow_addresses(flags, facts, node_ips),
        ],
        ports=ports,
        on_connection=runtime.add_listener,
        plugins=SocketRegistrations(),
        watchdog=manager.keep_alive if manager is not None and manager.watchdog_s else None,
        notices=(*loaded.notices, *untraced),
        kubernetes=resolved,
        tracer=tracer,
        offline_host=OfflineHost(partial(moment, facts.boot_id), run_program),
    )
    if isinstance(loop := asyncio.get_running_loop(), WatchedLoop):
        metrics.process.longest_turn.set_function(loop.turns.take_longest)
        stack.enter_context(watching(loop, metrics.process.stalls.inc))
    return await start_built(loaded, outside, stack)


async def start_built(loaded: LoadedConfig, outside: Outside, stack: AsyncExitStack) -> Agent:
    """Build an agent and start it; the stack closes it. Raises LaunchError."""
    try:
        agent = build(loaded.settings, loaded.node, outside)
        stack.push_async_callback(agent.close)
        await agent.start()
    except (ServerError, RecordsUnreadable, StateUnusable) as error:
        raise LaunchError(str(error)) from error
    return agent


def _topology(settings: KubeletSettings) -> MachineTopology | None:
    """The machine's topology, if any resource is assigned by place. Raises LaunchError."""
    if not has_placement(settings):
        return None
    try:
        return read_machine()
    except TopologyUnknown as error:
        raise LaunchError(str(error)) from error


def api_clients(settings: KubeletSettings, client: KubeClient) -> ApiClients:
    beat = min(settings.node_status_update_frequency, settings.node_lease_duration_seconds)
    return ApiClients(
        pods=client,
        heartbeats=client.apart(qps=0, burst=0, timeout=beat),
        events=client.limited(qps=settings.event_record_qps, burst=settings.event_burst),
        reviews=client.limited(qps=REVIEW_QPS, burst=REVIEW_BURST),
    )


async def _cgroups(
    settings: KubeletSettings,
    facts: MachineFacts,
    kernel: KernelFacts,
    runtime: RemoteRuntime,
    losing_support: Callable[[], None],
) -> CgroupTree | None:
    try:
        return await set_up(
            settings,
            kernel,
            runtime,
            capacity=capacity(facts, NodeOptions.from_settings(settings, NodeFlags())),
            reserved_cpus=reserved_cpus(settings),
            losing_support=losing_support,
        )
    except CgroupError as error:
        raise LaunchError(f"cgroups of pods: {error}") from error


def new_metrics(settings: KubeletSettings) -> Metrics:
    gates = settings.feature_gates
    metrics = Metrics(gates.version, gates.enabled)
    metrics.process.set_build(gates.version.release)
    stages = known_gates(gates.version)
    metrics.process.set_features(
        {name: (stages[name].stage, on) for name, on in gates.effective.items()}
    )
    return metrics


def _tracing(
    settings: KubeletSettings, host_name: str, stack: AsyncExitStack
) -> tuple[Tracer, tuple[Notice, ...]]:
    if not settings.tracing.sampling_rate_per_million:
        return NO_TRACER, ()

    return start_tracing(settings.tracing, host_name, stack)


def _connect(
    settings: KubeletSettings, metrics: Metrics, root: Path, stack: AsyncExitStack, tracer: Tracer
) -> RemoteRuntime:
    try:
        runtime = RemoteRuntime(
            settings.container_runtime_endpoint,
            image_endpoint=settings.image_endpoint,
            request_timeout=settings.runtime_request_timeout,
            metrics=metrics.runtime,
            pod_selectors=partial(launch_runtime.pod_selectors, root, settings.pod_logs_dir),
            tracer=tracer,
        )
    except EndpointError as error:
        raise LaunchError(str(error)) from error
    stack.push_async_callback(runtime.close)
    return runtime


def bind_ports(settings: KubeletSettings, flags: NodeFlags, stack: AsyncExitStack) -> Ports | None:
    try:
        if not settings.enable_server:
            return None
        ports = Ports(ServerSettings.from_settings(settings, flags))
    except ServerError as error:
        raise LaunchError(str(error)) from error
    stack.callback(ports.close)
    return ports


def make_root(root: Path) -> None:
    try:
        for directory in (root, root / "pods"):
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(
            f"--root-dir {root} can't be made: {error}; run as root, or where you may write"
        ) from error


def clear_unfinished(flags: NodeFlags) -> None:
    """Files whose writer was killed, once the ports prove that no other agent is at work here."""
    for directory in (flags.root_dir, flags.cert_dir, flags.device_plugins_dir):
        try:
            remove_unfinished(Path(directory))
        except OSError as error:
            extra = {"directory": directory, "why": str(error)}
            log.warning("unfinished files can't be removed", extra=extra)


def _share_root(root: Path) -> None:
    """Only for an agent that can run: one that gives up leaves no mount behind."""
    try:
        share(str(root))
    except OSError as error:
        log.warning(
            "mounts below the root directory reach neither the node nor other pods: "
            "mountPropagation of hostPath volumes has no effect",
            extra={"directory": str(root), "why": str(error)},
        )


# The service manager: READY=1 when the agent runs, WATCHDOG=1 while it is healthy.
# Source: sd_notify(3), sd_watchdog_enabled(3); the kubelet notifies a watchdog every half period,
# and only while its health checks pass.

LEAST_S = 1.0
"""A watchdog's period must be longer, as the kubelet requires."""


class ServiceManager(Component):
    """The manager that started this process, if it requests notifications."""

    # Its variables for service managers are removed: they are not for programs that we start.
    # LaunchError is raised if the watchdog's period is not a number, or too short.
    environment: MutableMapping[str, str]

    def __post_init__(self) -> None:
        self._path = self.environment.pop("NOTIFY_SOCKET", "")
        self.watchdog_s = _watchdog(self.environment)

    def notify(self, state: str) -> None:
        """Send a state such as ``READY=1``; never blocks, and a failure is logged."""
        if not self._path:
            return
        address = f"\0{self._path[1:]}" if self._path.startswith("@") else self._path
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.setblocking(False)
                sock.connect(address)
                sock.send(state.encode())
        except OSError as error:
            log.warning(
                "the service manager could not be notified",
                extra={"state": state, "socket": self._path, "why": str(error)},
            )

    async def keep_alive(self, checks: Mapping[str, Callable[[], str]]) -> None:
        """Notify the watchdog while everything is healthy, until cancelled.

        ``checks`` return what is wrong, or an empty string.
        """
        while True:
            failed = {name: why for name, check in checks.items() if (why := check())}
            if failed:
                log.error("not healthy: the watchdog is not notified", extra={"why": str(failed)})
            else:
                self.notify("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / 2)


def _watchdog(environment: MutableMapping[str, str]) -> float:
    """The watchdog's period in seconds; 0 when there is none, or it is another process's."""
    text, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
    if not text or (pid and pid != str(os.getpid())):
        return 0.0
    if not text.isdecimal() or int(text) <= LEAST_S * 1_000_000:
        raise LaunchError(
            f"WATCHDOG_USEC {text}: the watchdog's period (WatchdogSec) must be more than "
            f"{LEAST_S:g} s"
        )
    return int(text) / 1_000_000


# Tracing: the tracer, or why no spans are sent.


def start_tracing(
    settings: Tracing, host_name: str, stack: AsyncExitStack
) -> tuple[Tracer, tuple[Notice, ...]]:
    """The tracer for a sampling rate above 0, closed by the stack; and what can't be honoured."""
    rate = settings.sampling_rate_per_million or 0
    try:
        from kubeletpy.metrics.trace.otlp import OtlpTracer
    except ImportError as error:
        text = f"no spans are sent: install kubeletpy[tracing] ({error})"
        log.warning("tracing.samplingRatePerMillion: %s", text)
        return NO_TRACER, (Notice("tracing.samplingRatePerMillion", str(rate), text),)
    endpoint = settings.endpoint
    if endpoint is not None and endpoint.startswith("dns://"):
        # the exporter takes a name server in front of the name for the collector
        endpoint = f"dns:///{endpoint.removeprefix('dns://').partition('/')[2]}"
    tracer = OtlpTracer(endpoint, rate, host_name)
    stack.push_async_callback(tracer.close)
    return tracer, ()


# --lock-file: one agent at a time holds it, and may exit as soon as another one requests it.
#
# Source: docs/reference/flags.csv: lock-file, exit-on-lock-contention. It is a kernel lock
# (flock): it ends with the process, whatever happens to the file.

RETRY_S = 1.0


async def run_locked(flags: NodeFlags, running: Coroutine[Any, Any, None]) -> None:
    """Run while holding the lock; wait for it first.

    With --exit-on-lock-contention it ends, as if cancelled, when another process opens the file.
    Raises LaunchError if the file can't be created or watched.
    """
    path = Path(flags.lock_file)
    with ExitStack() as stack:
        try:
            await _lock_file(path, stack)
            desired = _watch(path, stack) if flags.exit_on_lock_contention else asyncio.Event()
        except BaseException:
            running.close()
            raise
        async with background(running) as agent, background(desired.wait()) as contention:
            await until_one_ends(agent, contention)
            if contention.done():
                extra = {"path": str(path)}
                log.info("another process requests the lock file: exiting", extra=extra)
        if not agent.cancelled():
            agent.result()


async def _lock_file(path: Path, stack: ExitStack) -> None:
    try:
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LaunchError(f"--lock-file {path}: {error}") from error
    stack.callback(os.close, fd)
    stated = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not stated:
                log.warning(
                    "waiting for the lock file: another process holds it", extra={"path": str(path)}
                )
            stated = True
            await asyncio.sleep(RETRY_S)
        except OSError as error:
            raise LaunchError(f"--lock-file {path}: {error}") from error
        else:
            return


def _watch(path: Path, stack: ExitStack) -> asyncio.Event:
    desired = asyncio.Event()
    watch = DirectoryWatch(path, desired.set, opened=True)
    if not watch.start():
        raise LaunchError(f"--lock-file {path} can't be watched (inotify)")
    stack.callback(watch.close)
    return desired
