"""Reads objects by name, a few at a time. Must never log what an object holds."""

from __future__ import annotations

import asyncio

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.kubeapi.tracked_object import ObjectKey, is_that_object, shown

READS_AT_ONCE = 4
"""Others use the API too: each of their requests waits for at most a few of these."""
FORBIDDEN_WAITS = (0.03, 0.1, 0.3)
"""Seconds before each retry of what was refused. A node may read what a pod of its own refers to,
but its authorizer permits that only a moment after the pod was bound."""


class ObjectReader:
    """Reads, of which no more than READS_AT_ONCE are under way."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def read_object(
        self, key: ObjectKey, *, first: bool, resource_version: str = ""
    ) -> JSON | None:
        """An object as it is now; None: it does not exist.

        Args:
            first: it was never read: a refusal may not last.
            resource_version: as of that one or a later one, which a server may have at hand; empty:
                the newest.

        Raises:
            ApiError: it can't be read.
        """
        async with self._reads:
            for wait in FORBIDDEN_WAITS if first else ():
                try:
                    return await self._once(key, resource_version)
                except Forbidden:
                    await asyncio.sleep(wait)
            return await self._once(key, resource_version)

    async def _once(self, key: ObjectKey, version: str) -> JSON | None:
        given = {"resource_version": version} if version else {}
        try:
            found = await self._api.get(key.resource, key.name, key.namespace or None, **given)
        except NotFound:
            return None
        if not is_that_object(key, found):
            raise ApiError(f"the API server answered with another object than {shown(key)}")
        return found
