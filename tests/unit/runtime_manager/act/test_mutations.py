"""Changes of the runtime: finished, awaited, and forgotten with their results."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from kubeletpy.runtime_manager.act.mutations import Mutations
from tests.garbage import no_collections
from tests.virtual_time import on_virtual_time


class Refused(Exception):
    """The runtime refused the change."""


@on_virtual_time
async def test_a_change_continues_without_its_caller() -> None:
    mutations, made = Mutations(lambda: 7), asyncio.Event()

    async def change() -> None:
        await asyncio.sleep(5)
        made.set()

    caller = asyncio.create_task(mutations.finish("u", change()))
    await asyncio.sleep(1)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not made.is_set()
    await mutations.settled("u")
    assert made.is_set()
    assert (mutations.outdated("u", 6), mutations.outdated("u", 7)) == (True, False)


@on_virtual_time
async def test_a_failure_is_freed_with_its_last_reference() -> None:
    """Otherwise each failed start would keep its pod in memory until a full garbage collection."""

    async def change() -> None:
        raise Refused

    with no_collections():
        mutations = Mutations(lambda: 0)
        try:
            await mutations.finish("u", change())
        except Refused as error:
            left = weakref.ref(error)
        await mutations.settled("u")
        await asyncio.sleep(0)
        assert left() is None
