"""Simulated DRA drivers: what they have prepared outlives them and the agents.

A driver does one call after the other, as the helper of drivers does. A call that was begun runs
to its end, even if the caller has given up waiting. A call that a driver must never receive, and a
container without its devices, are violations, recorded when they happen.
"""

from __future__ import annotations

import asyncio
import os
import random
import stat
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message

from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import dra_v1_pb2 as pb
from kubeletpy.remote.plugin_calls import PluginCallFailed, PluginCalls
from kubeletpy.resources.plugins.model import DRA
from tests.sim.client import Step
from tests.sim.csi_drivers import Refused
from tests.sim.history import History
from tests.sim.loop import spawn
from tests.sim.records import Container, Sandbox
from tests.sim.runtime import SimRuntime

Answer = TypeVar("Answer", bound=Message)


class ClaimDriver:
    """One driver on the node."""

    kind = DRA
    versions = ("v1.DRAPlugin",)

    def __init__(
        self,
        name: str,
        root: Path,
        rng: random.Random,
        history: History,
        *,
        runtime: SimRuntime,
        desired: dict[str, set[str]],
    ) -> None:
        """``desired``: uid of a pod -> the drivers whose devices its containers must have."""
        self.name = name
        self.prepared: dict[str, str] = {}
        """Uid of a claim -> the name of its CDI device."""
        self.faults = self.slow = self.lies = 0.0
        """Shares of calls that fail, that take long, and of answers that are not true."""
        self.up = False
        self._healthy = asyncio.Event()
        self._healthy.set()
        self._one = asyncio.Lock()
        self._root, self._rng, self._history = root, rng, history
        self._runtime, self._desired = runtime, desired
        runtime.observers.append(self._runtime_changed)

    @property
    def socket(self) -> Path:
        """Path of the registration socket."""
        return self._root / "kubelet" / "plugins_registry" / f"{self.name}.sock"

    # -- its life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start or restart the driver."""
        if self.up:
            return
        self._history.note("driver", f"{self.name} starts")
        self.up = True
        self.socket.parent.mkdir(0o750, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        os.mknod(self.socket, 0o600 | stat.S_IFSOCK)

    def die(self, *, clean: bool) -> None:
        """Stop the driver's process. ``clean``: its registration socket is removed too."""
        if self.up:
            self._history.note("driver", f"{self.name} dies")
            self.up = False
            if clean:
                self.socket.unlink(missing_ok=True)

    def hang(self) -> None:
        """Answer no call from now on, until ``heal``."""
        self._history.note("driver", f"{self.name} hangs")
        self._healthy.clear()

    def wake(self) -> None:
        """Answer the calls that hung, late."""
        self._healthy.set()

    def heal(self) -> None:
        """End all faults and start the driver if it is down."""
        self.faults = self.slow = self.lies = 0.0
        self._healthy.set()
        self.start()

    # -- calls ----------------------------------------------------------------------------------

    async def answer_call(self, method: str, request: Any) -> Message:
        """Answer a call. Raises Refused."""
        if not self.up:
            await asyncio.sleep(0.001)
            raise Refused(Code.UNAVAILABLE, "connection refused")
        work = spawn(self._work(method, request))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())
        answer: Message = await asyncio.shield(work)
        return answer

    async def _work(self, method: str, request: Any) -> Message:
        async with self._one:
            return await self._do(method, request)

    async def _do(self, method: str, request: Any) -> Message:
        failing = self._rng.random() < self.faults
        after = failing and self._rng.random() < 0.5
        lying = self._rng.random() < self.lies
        await asyncio.sleep(self._rng.choice((0.001, 0.01, 0.1)))
        if self._rng.random() < self.slow:
            await asyncio.sleep(self._rng.choice((3.0, 30.0, 60.0)))
        await self._healthy.wait()
        if failing and not after:
            raise Refused(Code.INTERNAL, f"injected: {method} failed")
        self._history.note("driver", f"{self.name} {method} {[c.name for c in request.claims]}")
        work = self._prepare if method == "NodePrepareResources" else self._unprepare
        answer: Message = work(request)
        if after:
            raise Refused(Code.UNAVAILABLE, f"injected: {method} done, answer lost")
        if lying:
            self._lie(answer)
        return answer

    def _prepare(self, request: Any) -> Any:
        answer = pb.NodePrepareResourcesResponse()
        for claim in request.claims:
            name = f"{self.name}/claim={claim.uid}"
            self.prepared[claim.uid] = name
            answer.claims[claim.uid].devices.add(
                pool_name="pool", device_name="d0", cdi_device_ids=[name]
            )
        return answer

    def _unprepare(self, request: Any) -> Any:
        answer = pb.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            name = self.prepared.pop(claim.uid, None)
            for each in self._runtime.containers.values():
                if each.running and name in _devices(each):
                    self._broken(f"{claim.name} is taken from {each}, which runs")
            answer.claims[claim.uid].SetInParent()
        return answer

    def _lie(self, answer: Any) -> None:
        uid = self._rng.choice(sorted(answer.claims))
        how = self._rng.randrange(3)
        if how == 0:
            del answer.claims[uid]
        elif how == 1:
            answer.claims[uid].error = "injected: no"
        else:
            for device in getattr(answer.claims[uid], "devices", ()):
                device.cdi_device_ids[:] = ["not a name"]

    # -- judging --------------------------------------------------------------------------------

    def _runtime_changed(self, what: str, whom: Container | Sandbox) -> None:
        if what != "start" or not isinstance(whom, Container):
            return
        mine = {each for each in _devices(whom) if each.startswith(f"{self.name}/")}
        if missing := mine - set(self.prepared.values()):
            self._broken(f"{whom} started with {missing}, which is not prepared")
        uid = whom.config.labels["io.kubernetes.pod.uid"]
        if self.name in self._desired.get(uid, ()) and not mine:
            self._broken(f"{whom} started without its device")

    def _broken(self, what: str) -> None:
        self._history.violated(f"{self.name}: {what}")

    def left(self) -> list[str]:
        """The claims that are still prepared."""
        return [f"{self.name}: {name} is prepared" for name in self.prepared.values()]


def _devices(container: Container) -> set[str]:
    return {each.name for each in container.config.CDI_devices}


class ClaimDriverCalls(PluginCalls):
    """One life's connection to a driver."""

    def __init__(self, driver: ClaimDriver, step: Step) -> None:
        self._driver = driver
        self._step = step
        self._over = asyncio.Event()

    async def call(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        within: float,
        *,
        secrets: Iterable[str] = (),
    ) -> Answer:
        """Call the driver."""
        call = f"{method} of DRA driver {self._driver.name}"
        if self._over.is_set():
            raise PluginCallFailed(Code.CANCELLED, call, "closed", answered=False)
        self._step("call", call)
        try:
            async with asyncio.timeout(within):
                found = await self._driver.answer_call(method, request)
        except TimeoutError:
            text = "no answer"
            raise PluginCallFailed(Code.DEADLINE_EXCEEDED, call, text, answered=False) from None
        except Refused as refused:
            self._step("answer", call)
            raise PluginCallFailed(refused.code, call, str(refused)) from None
        self._step("answer", call)
        return answer.FromString(found.SerializeToString())

    async def follow(self, changed: Callable[[bool], None]) -> None:
        """Report whether the driver is connected, polled every second."""
        connected: bool | None = None
        while not self._over.is_set():
            if self._driver.up is not connected:
                connected = self._driver.up
                changed(connected)
            await asyncio.sleep(1)

    async def stream(
        self, method: str, request: Message, answer: type[Answer]
    ) -> AsyncIterator[Answer]:
        """The driver has no health service."""
        raise PluginCallFailed(Code.UNIMPLEMENTED, method, "unknown service")
        yield answer()

    async def close(self) -> None:
        """Close the connection."""
        self._over.set()
