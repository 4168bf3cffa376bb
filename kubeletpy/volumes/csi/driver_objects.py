"""The CSIDriver objects of the cluster, followed by one watch.

The object is optional, so nothing is known of any driver before the first list. Source:
docs/reference/behaviour-storage.md, sl, st.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.protocol import CSIDRIVERS, KubeApi, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.volumes.csi.driver_object import ABSENT, DriverObject, read


class DriverObjects:
    """CSIDriver objects by name. Listeners get a changed object's name; "": any may have."""

    def __init__(self, kube_api: KubeApi | None, *, rng: random.Random | None = None) -> None:
        """``kube_api`` None: standalone, there are no objects."""
        self._objects: dict[str, DriverObject] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._reflector: Reflector | None = None
        if kube_api is not None:
            self._reflector = Reflector(
                kube_api, CSIDRIVERS, on_replace=self._replaced, on_event=self._changed, rng=rng
            )

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have ``listener(driver)`` called when its object changed; "": any may have."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Follow until cancelled."""
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
