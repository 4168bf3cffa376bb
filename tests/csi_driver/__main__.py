"""Run the driver for tests alone, until it is ended.

Writes its sockets, its volumes and ``calls``, a line ``METHOD VOLUME`` for each call; faults are
read from ``faults.json`` in its directory:
``{"NodeStageVolume": {"code": "INTERNAL", "times": 2}}``.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from tests.csi_driver.faults import Faults
from tests.csi_driver.running import registered, running
from tests.csi_driver.services import Options


def options(given: list[str]) -> Options:
    """``name=value`` for each option that is not as it is made."""
    made = Options()
    for text in given:
        name, _, value = text.partition("=")
        before = getattr(made, name)
        read = value == "true" if isinstance(before, bool) else value
        setattr(made, name, int(value) if type(before) is int else read)
    return made


async def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "directory", type=Path, help="directory of its socket (csi.sock) and volumes"
    )
    parser.add_argument("--registry", type=Path, help="plugins_registry of the agent")
    parser.add_argument("--option", action="append", default=[], help="such as stage=false")
    given = parser.parse_args()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, ended.set)
    async with AsyncExitStack() as stack:
        faults = Faults(given.directory / "faults.json")
        driver = await stack.enter_async_context(
            running(given.directory, options(given.option), faults)
        )
        if given.registry is not None:
            await stack.enter_async_context(registered(driver, given.registry))
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
