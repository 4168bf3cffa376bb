"""Threads of one's own, as the event loop and virtual time see them."""

from __future__ import annotations

import asyncio
import time

from kubeletpy.host.patient_threads import PatientThreads
from tests.virtual_time import on_virtual_time


async def _slow_look(threads: PatientThreads) -> float:
    loop = asyncio.get_running_loop()
    asked = asyncio.create_task(threads.run(time.sleep, 0.2))
    await asyncio.wait([asked], timeout=60.0)
    return loop.time()


def test_virtual_time_stands_still_for_a_call() -> None:
    @on_virtual_time
    async def run() -> None:
        begun = asyncio.get_running_loop().time()
        assert await _slow_look(PatientThreads()) - begun < 60.0

    run()
