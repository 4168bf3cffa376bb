"""The embedded API on a thread of the test process: a test can stop it and read its registry."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from kubeletpy.base.api.types import JSON
from kubeletpy_up.api import Endpoint, LocalApi
from kubeletpy_up.controllers.csr_controller import LIFETIME_S
from kubeletpy_up.errors import ApiError
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, DeleteOptions
from tools.env.ports import free_port

T = TypeVar("T")


class ApiServer:
    """A strict embedded API; its data and its port survive `stop` and `start`."""

    def __init__(self, directory: Path, node_name: str) -> None:
        self.port = free_port()
        self.certificate_lifetime = LIFETIME_S
        """Seconds, of what is signed for nodes after the next start."""
        self.feature_gates: Collection[str] = ()
        """Feature gates that are on from the next start."""
        self._directory = directory
        self._node_name = node_name
        self.endpoint: Endpoint
        self._local: LocalApi | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Serve."""
        self._local = self._make_here()
        self.endpoint = self._await(self._local.start())

    def stop(self) -> None:
        """Close every connection and stop listening."""
        if self._local is not None:
            self._await(self._local.stop())
            self._local = None

    @property
    def stopped(self) -> bool:
        """Whether nobody listens."""
        return self._local is None

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def call(self, question: Callable[[Registry], T]) -> T:
        """Call a function with the registry, on the registry's own thread."""
        local = self._local
        assert local is not None, "the API is stopped"

        async def run_there() -> T:
            return question(local.registry)

        return self._await(run_there())

    def find(self, resource: str, namespace: str, name: str) -> JSON | None:
        """An object as it is stored, or None."""
        return self.call(lambda registry: registry.find(resource, namespace, name))

    def create(self, resource: str, namespace: str, obj: JSON) -> JSON:
        """Create an object as the administrator, by all the API's rules."""
        return self.call(lambda registry: registry.create(ADMIN, resource, obj, namespace))

    def delete(self, resource: str, namespace: str, name: str, grace: int | None = None) -> None:
        """Delete an object as the administrator; fine when there is none."""
        options = DeleteOptions() if grace is None else DeleteOptions(grace_period_seconds=grace)
        try:
            self.call(lambda reg: reg.delete(ADMIN, resource, name, namespace, options))
        except ApiError as error:
            if error.code != 404:
                raise

    def all(self, resource: str, namespace: str = "") -> list[JSON]:
        """Every stored object of a resource, in one namespace or in all."""

        def collect(registry: Registry) -> list[JSON]:
            return [
                entry.object
                for (where, _), entry in registry.store.entries(resource)
                if namespace in ("", where)
            ]

        return self.call(collect)

    def _make_here(self) -> LocalApi:
        async def make() -> LocalApi:
            return LocalApi(
                self._directory,
                self._node_name,
                port=self.port,
                certificate_lifetime=self.certificate_lifetime,
                volumes_dir=self._directory / "volumes",
                feature_gates=self.feature_gates,
                compress_watches=True,  # as every cluster's API does from Kubernetes 1.37 on
            )

        return self._await(make())

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)
