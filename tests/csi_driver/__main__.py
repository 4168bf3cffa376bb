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


def options(supplied: list[str]) -> Options:
    """``name=value`` for each option that is not as it is made."""
    made = Options()
    for text in supplied:
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
    supplied = parser.parse_args()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, ended.set)
    async with AsyncExitStack() as stack:
        faults = Faults(supplied.directory / "faults.json")
        driver = await stack.enter_async_context(
            running(supplied.directory, options(supplied.option), faults)
        )
        if supplied.registry is not None:
            await stack.enter_async_context(registered(driver, supplied.registry))
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
