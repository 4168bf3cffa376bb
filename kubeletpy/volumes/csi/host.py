"""The CSI environment of a node, shared by all operations: drivers, their objects, credentials.

gRPC is loaded with the first driver. Source: docs/reference/behaviour-storage.md, sk, sl, sm1, st.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.structs import Component, Struct, field
from kubeletpy.base.tasks import run_all, run_together
from kubeletpy.kubeapi.protocol import CSIDRIVERS, KubeApi, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.metrics.volumes import CsiMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.plugins.model import PluginInfo
from kubeletpy.volumes.claims.model import FailureOutcome, OperationFailed, PodUse
from kubeletpy.volumes.claims.plugin import read_secret
from kubeletpy.volumes.csi import files
from kubeletpy.volumes.csi.objects import (
    ABSENT,
    CsiPaths,
    DriverObject,
    TokenRequest,
    Version,
    read,
)
from kubeletpy.volumes.files.paths import UnsafePath
from kubeletpy.volumes.projected.token_claims import TokenKey
from kubeletpy.volumes.projected.tokens import PodTokens, TokenError

if TYPE_CHECKING:
    from kubeletpy.remote.plugin_calls import Calls
    from kubeletpy.volumes.csi.client import NodeClient


# Registered drivers, and the connection to each (table sm1).

Connect = Callable[[str, str], "NodeClient"]
"""Makes the client of a driver from its name and endpoint. Raises ValueError: invalid endpoint."""
OpenCalls = Callable[[str, str], "Calls"]
"""How drivers (name, endpoint) are called other than over their sockets."""


def connect_by(metrics: CsiMetrics, calls: OpenCalls | None = None) -> Connect:
    """Returns the client factory; ``calls`` None: clients use Unix sockets."""

    def connect(driver: str, endpoint: str) -> NodeClient:
        from kubeletpy.volumes.csi.client import NodeClient

        return NodeClient(driver, endpoint, metrics, calls(driver, endpoint) if calls else None)

    return connect


class RegisteredDriver(Struct, frozen=True):
    """A driver as it has registered, its version in use and its client."""

    info: PluginInfo
    version: Version
    client: NodeClient


class CsiDrivers(Component):
    """The registered drivers, by name. Listeners are notified when one comes or goes."""

    connect: Connect

    def __post_init__(self) -> None:
        self._drivers: dict[str, RegisteredDriver] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._closing: set[asyncio.Task[None]] = set()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have ``listener(name)`` called when a driver came or went."""
        self._listeners.append(listener)

    def get(self, name: str) -> RegisteredDriver | None:
        """A driver, if it is registered."""
        return self._drivers.get(name)

    @property
    def names(self) -> list[str]:
        """The names of all registered drivers, sorted."""
        return sorted(self._drivers)

    def add(self, info: PluginInfo, version: Version) -> RegisteredDriver:
        """Add a driver, replacing one of the same name. Raises ValueError: invalid endpoint."""
        made = RegisteredDriver(info, version, self.connect(info.name, info.endpoint))
        before = self._drivers.get(info.name)
        self._drivers[info.name] = made
        if before is not None:
            self._close_driver(before)
        return made

    def notify(self, name: str) -> None:
        """Notify the listeners: a driver is ready to use, or not any more."""
        for listener in self._listeners:
            listener(name)

    def remove(self, info: PluginInfo) -> bool:
        """Remove a driver; False when another has its name."""
        found = self._drivers.get(info.name)
        if found is None or found.info != info:
            return False
        del self._drivers[info.name]
        self._close_driver(found)
        self.notify(info.name)
        return True

    async def close(self) -> None:
        """Close the connections to all drivers, and wait for that."""
        for driver in self._drivers.values():
            self._close_driver(driver)
        self._drivers.clear()
        await run_together(*self._closing)

    def _close_driver(self, driver: RegisteredDriver) -> None:
        task = asyncio.create_task(driver.client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class DriverObjects(Component):
    """The cluster's CSIDriver objects by name, followed by one watch (tables sl, st).

    A driver need not have one, so nothing is known of any driver before the first list. Listeners
    get a changed object's name; "": any may have changed.
    """

    # ``kube_api`` None: standalone, there are no objects.
    kube_api: KubeApi | None
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._objects: dict[str, DriverObject] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._reflector: Reflector | None = None
        if self.kube_api is not None:
            self._reflector = Reflector(
                self.kube_api,
                CSIDRIVERS,
                on_replace=self._replaced,
                on_event=self._changed,
                rng=self.rng,
            )

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have ``listener(driver)`` called when its object changed; "": any may have."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Follow the CSIDriver objects until canceled; returns at once when standalone."""
        if self._reflector is not None:
            await self._reflector.run()

    def get(self, driver: str) -> DriverObject | None:
        """The CSIDriver object of a driver; None: the objects have not been listed yet."""
        if self._reflector is not None and not self._reflector.synced.is_set():
            return None
        return self._objects.get(driver, ABSENT)

    @property
    def problem(self) -> str:
        """Why nothing is known yet; empty: the objects are known."""
        if self._reflector is None or self._reflector.synced.is_set():
            return ""
        error = self._reflector.last_error
        return f"CSIDriver objects were not listed yet{f': {error.message}' if error else ''}"

    def _replaced(self, items: list[JSON]) -> None:
        self._objects = {item["metadata"]["name"]: read(item) for item in items}
        # the reflector is in sync only after this
        asyncio.get_running_loop().call_soon(self._notify_listeners, "")

    def _changed(self, event: WatchEvent) -> None:
        name = event.object["metadata"]["name"]
        before = self._objects.pop(name, ABSENT)
        if event.type != "DELETED":
            self._objects[name] = read(event.object)
        if self._objects.get(name, ABSENT) != before:
            self._notify_listeners(name)

    def _notify_listeners(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)


TOKENS_KEY = "csi.storage.k8s.io/serviceAccount.tokens"


class Credentials:
    """Secrets and tokens that calls to drivers carry, read at the moment of the call.

    Must never log one, or put one into an error. Source: docs/reference/behaviour-storage.md, sk.
    """

    def __init__(self, kube_api: KubeApi | None, tokens: PodTokens) -> None:
        self._api = kube_api
        self._tokens = tokens

    async def secret(self, reference: Any, namespace: str = "") -> dict[str, str]:
        """The values of the secret that a source names; empty when it names none.

        ``namespace``: the pod's, used where the reference has none of its own. Raises
        OperationFailed.
        """
        return await read_secret(self._api, reference, namespace)

    async def tokens(self, pod: Pod, desired: Sequence[TokenRequest]) -> dict[str, str]:
        """The pod's tokens in the form that drivers expect; empty when none is requested.

        Raises OperationFailed.
        """
        tokens = await run_together(*(self._token(pod, each) for each in desired))
        made = {each.audience: token for each, token in zip(desired, tokens, strict=True)}
        return {TOKENS_KEY: json.dumps(made, separators=(",", ":"))} if made else {}

    async def _token(self, pod: Pod, desired: TokenRequest) -> dict[str, str]:
        account = pod.spec.get("serviceAccountName") or "default"
        try:
            bound = await self._tokens.bound(
                pod, TokenKey(account, desired.audience, desired.seconds)
            )
        except TokenError as error:
            audience = desired.audience or "the API server"
            message = f"token for {audience}: {error}"
            raise OperationFailed(FailureOutcome.TRANSIENT, message) from None
        return {"token": bound.token, "expirationTimestamp": format_time(bound.expires_at)}


P = ParamSpec("P")
T = TypeVar("T")

POD_INFO = "csi.storage.k8s.io/"


class CsiHost(Struct):
    """The CSI environment of one node."""

    node_name: str
    paths: CsiPaths
    drivers: CsiDrivers
    objects: DriverObjects
    credentials: Credentials
    fresh: set[str] = field(default_factory=set)
    """Targets without a volume before this process: failures there are rolled back."""

    def client(self, driver: str) -> NodeClient:
        """A driver's client. Raises OperationFailed: it is not registered."""
        found = self.drivers.get(driver)
        if found is None:
            raise OperationFailed(FailureOutcome.TRANSIENT, not_registered(driver))
        return found.client

    def object(self, driver: str) -> DriverObject:
        """A driver's CSIDriver object. Raises OperationFailed: it is not known yet."""
        found = self.objects.get(driver)
        if found is None:
            raise OperationFailed(FailureOutcome.TRANSIENT, self.objects.problem)
        return found


def not_registered(driver: str) -> str:
    """The message about a driver that is not registered, as the kubelet words it."""
    return f"driver name {driver} not found in the list of registered CSI drivers"


def texts(found: Any) -> dict[str, str]:
    """A map of strings in an object."""
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}


def pod_info(use: PodUse, *, inline: bool) -> dict[str, str]:
    """The pod information for a driver (podInfoOnMount)."""
    return {
        f"{POD_INFO}pod.name": use.name,
        f"{POD_INFO}pod.namespace": use.namespace,
        f"{POD_INFO}pod.uid": use.uid,
        f"{POD_INFO}serviceAccount.name": use.service_account,
        f"{POD_INFO}ephemeral": json.dumps(inline),
    }


async def on_disk(what: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Work in a thread; ``what`` names it in errors. Raises OperationFailed."""

    def complete() -> T:
        with complete_errors(""):
            return work(*args, **kwargs)

    try:
        return await asyncio.to_thread(complete)
    except UnsafePath as error:
        raise OperationFailed(FailureOutcome.FINAL, f"{what}: {error}") from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        text = f"{what}: {error.strerror or error}{where}"
        raise OperationFailed(FailureOutcome.UNCERTAIN, text) from error


async def flushed_meanwhile(path: str, call: Awaitable[T], *, written: bool) -> T:
    """Call a driver; vol_data.json is flushed to disk by the time the call has ended.

    The file exists before the call, for the next agent; whether it is on disk matters only after a
    crash of the machine, which ends the mounts too. Raises OperationFailed.
    """
    if not written:
        return await call
    flush = on_disk("vol_data.json", files.flush, path)
    answer, _ = await run_all(call, flush)
    return cast("T", answer)
