"""The container runtime as the node depends on it: its health, identity, pod range and classes.

The last answer about its health is kept for everything that depends on it. Must never decide what
follows from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import wait_within
from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.protocol import RUNTIMECLASSES, KubeApi
from kubeletpy.node.build import RUNTIME_DOWN_AFTER_S, RuntimeInfo, network_not_ready
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import RuntimeClassError, RuntimeHealth
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService

log = logging.getLogger(__name__)

PERIOD_S = 5.0
FIRST_WAIT_S = 0.25
"""Until the next check while something is wrong, doubled up to the period: a runtime that has just
been started accepts connections some time before it can work."""
ANSWER_WITHIN_S = 10.0
"""A hanging status call is abandoned after this long and repeated: the runtime may have recovered
long before the call's own deadline (runtimeRequestTimeout, 2 min)."""
DOWN = "container runtime is down"


class RuntimeMonitor(Component):
    """Checks the runtime every few seconds, and whenever its connection is lost or returns."""

    read_health: Callable[[], Awaitable[RuntimeHealth]]
    on_change: Callable[[], None]
    """Called when runtime or network readiness changes."""

    def __post_init__(self) -> None:
        self._health: RuntimeHealth | None = None
        self.good_at: float | None = None
        """Event-loop seconds at which it was last known to be well; None: never."""
        self._check_due = asyncio.Event()
        self._lost = ""

    async def run(self) -> None:
        """Poll the runtime until cancelled."""
        wait = FIRST_WAIT_S
        while True:
            self._check_due.clear()
            if not await self.check():
                continue
            if not (self.runtime_error() or self.network_error()):
                wait = PERIOD_S
            if await wait_within(self._check_due, wait):
                wait = FIRST_WAIT_S
            else:
                wait = min(2 * wait, PERIOD_S)

    async def check(self) -> bool:
        """Query once; returns whether there was an answer. Never raises for runtime failures.

        A missing answer alone changes nothing: the last one is valid for RUNTIME_DOWN_AFTER_S.
        """
        before = (self.runtime_error(), self.network_error())
        health = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN_S):
                health = await self.read_health()
        if health is not None:
            self._health = health
            if health.runtime_ready:
                self.good_at = asyncio.get_running_loop().time()
                self._lost = ""
        after = (self.runtime_error(), self.network_error())
        if after != before:
            self._log_readiness(after)
            self.on_change()
        return health is not None

    def connection_changed(self, connected: bool) -> None:
        """The connection to the runtime was lost or is back."""
        before = self.runtime_error()
        self._lost = "" if connected else "its endpoint is not connected"
        self._check_due.set()
        if self.runtime_error() != before:
            self.on_change()

    def runtime_error(self) -> str:
        """Why the runtime can't be used; empty when it can."""
        if self._lost:
            return f"{DOWN}: {self._lost}"
        if self._health is None:
            return "container runtime status check may not have completed yet"
        if not self._health.runtime_ready:
            return f"{DOWN}: {self._health.message}"
        now = asyncio.get_running_loop().time()
        if self.good_at is None or now - self.good_at > RUNTIME_DOWN_AFTER_S:
            return f"{DOWN}: it has not answered for {RUNTIME_DOWN_AFTER_S:.0f} s"
        return ""

    @property
    def unanswered(self) -> bool:
        """Whether the error is only that the runtime has not answered since the agent's start."""
        return self._health is None and not self._lost

    def network_error(self) -> str:
        """Why pods can't have a network; empty when they can."""
        if self._health is None or self._health.network_ready:
            return ""
        return network_not_ready(self._health.network_message)

    def _log_readiness(self, errors: tuple[str, str]) -> None:
        problems = [error for error in errors if error]
        if problems:
            log.warning("runtime not ready", extra={"why": "; ".join(problems)})
        else:
            log.info("runtime ready")


RETRY_S = 10.0


class RuntimeUpkeep(Component):
    """Keeps the runtime and the Node object in sync: the pod CIDR, and the runtime's identity.

    The node's range (spec.podCIDRs; without an API, podCIDR from the configuration) is passed to
    the runtime, again after a lost connection. After that, another version may run behind the
    socket. Source: docs/reference/behaviour.md, o1; docs/reference/config.csv: podCIDR.
    """

    runtime: RuntimeService
    known: RuntimeInfo
    """The last answer of the runtime."""
    read: Callable[[], Awaitable[RuntimeInfo]] | None = None
    """Reads it again, may raise CRIError; None: it never changes."""
    changed: Callable[[], None] = lambda: None
    """Called when the runtime info has changed."""
    pod_cidr: str = ""
    """From the configuration, for a node without an API."""

    def __post_init__(self) -> None:
        self._desired = self.pod_cidr
        self._passed = ""
        self._returned = False
        self._due = asyncio.Event()
        if self.pod_cidr:
            self._due.set()

    def info(self) -> RuntimeInfo:
        """The current runtime info."""
        return self.known

    def node_reported(self, node: api.Node) -> None:
        """The API has shown the node."""
        spec = node.get("spec") or {}
        single = spec.get("podCIDR")
        desired = ",".join(spec.get("podCIDRs") or ([single] if single else []))
        if desired and desired != self._desired:
            self._desired = desired
            self._due.set()

    def connection_changed(self, connected: bool) -> None:
        """The connection to the runtime was lost or is back."""
        if connected:
            self._returned, self._passed = True, ""
            self._due.set()

    async def run(self) -> None:
        """Do what is due until cancelled; failures are retried."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._refresh()
            except CRIError as error:
                log.warning(
                    "could not update or query the runtime; retrying",
                    extra={"podCIDR": self._desired, "why": str(error)},
                )
                await asyncio.sleep(RETRY_S)
                self._due.set()

    async def _refresh(self) -> None:
        if self._returned and self.read is not None:
            found = await self.read()
            self._returned = False
            if found != self.known:
                log.info(
                    "the runtime is another one",
                    extra={"runtime": found.name, "version": found.version},
                )
                self.known = found
                self.changed()
        desired = self._desired
        if desired and desired != self._passed:
            network = cri.NetworkConfig(pod_cidr=desired)
            await self.runtime.update_runtime_config(cri.RuntimeConfig(network_config=network))
            self._passed = desired
            log.info("the runtime has received the range of pods", extra={"podCIDR": desired})


class RuntimeClassHandlers(Component):
    """Resolves RuntimeClasses to runtime handlers, with an API request for each new sandbox."""

    kube_api: KubeApi | None

    async def handler(self, pod: Pod) -> str:
        """The CRI runtime handler for a pod's sandbox; "" is the runtime's default.

        Raises:
            RuntimeClassError: the class does not exist, or could not be read.
        """
        name = pod.spec.get("runtimeClassName")
        if not name:
            return ""
        if self.kube_api is None:
            raise RuntimeClassError(f'RuntimeClass "{name}" cannot be read without an API')
        try:
            found = await self.kube_api.get(RUNTIMECLASSES, name)
        except NotFound as error:
            raise RuntimeClassError(f'RuntimeClass "{name}" not found') from error
        except ApiError as error:
            raise RuntimeClassError(f'RuntimeClass "{name}" could not be read: {error}') from error
        return str(found.get("handler") or "")
