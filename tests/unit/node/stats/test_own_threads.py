"""Work that containers can prolong does not use the threads that start pods."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from kubeletpy.base.clock import SystemClock
from kubeletpy.node.stats.disks import DiskMeter
from kubeletpy.server.logs.rotate import LogRotator, RotationSettings


@asynccontextmanager
async def hanging() -> AsyncIterator[None]:
    """Block all threads of the event loop."""
    over = threading.Event()
    threads = ThreadPoolExecutor(1)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(threads)
    held = loop.run_in_executor(None, over.wait)
    try:
        async with asyncio.timeout(10):
            yield
    finally:
        over.set()
        await held
        threads.shutdown()


async def test_trees_are_measured(tmp_path: Path) -> None:
    meter = DiskMeter(SystemClock())
    async with hanging():
        assert str(tmp_path) in await meter.measure([str(tmp_path)])
    await meter.close()


async def test_logs_are_rotated(tmp_path: Path) -> None:
    cache = cast(Any, {})
    nobody = cast(Any, None)
    rotator = LogRotator(nobody, cache, str(tmp_path), RotationSettings(), SystemClock())
    async with hanging():
        await rotator.rotate_due()
