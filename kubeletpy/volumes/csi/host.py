"""Shared by all operations on CSI volumes: drivers, their objects, credentials and paths."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.structs import Struct, field
from kubeletpy.base.tasks import run_all
from kubeletpy.volumes.claims.on_disk import FailureOutcome
from kubeletpy.volumes.claims.operation import OperationFailed, PodUse
from kubeletpy.volumes.csi import files
from kubeletpy.volumes.csi.credentials import Credentials
from kubeletpy.volumes.csi.driver_object import DriverObject
from kubeletpy.volumes.csi.driver_objects import DriverObjects
from kubeletpy.volumes.csi.drivers import CsiDrivers
from kubeletpy.volumes.csi.names import CsiPaths
from kubeletpy.volumes.files.paths import UnsafePath

if TYPE_CHECKING:
    from kubeletpy.volumes.csi.client import NodeClient

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
    """The kubelet's wording."""
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
