"""The tcpSocket handler: whether a connection can be made. Sends nothing."""

from __future__ import annotations

import asyncio

from kubeletpy.probes.handlers.network import Resolver, connected, in_words, raise_if_not_probed
from kubeletpy.probes.handlers.outcome import HandlerResult, Reply
from kubeletpy.probes.handlers.ports import host_port


async def connect(resolver: Resolver, host: str, port: int, timeout: float) -> Reply:
    """Success if a connection is established within ``timeout`` seconds, else Failure.

    Raises:
        HandlerError: the machine has run out of something, such as descriptors.
    """
    where = f"dial tcp {host_port(host, port)}"
    try:
        async with asyncio.timeout(timeout):
            address = await resolver.address(host)
            (await connected(address, port)).close()
    except TimeoutError:
        return Reply(HandlerResult.FAILURE, f"{where}: i/o timeout")
    except OSError as error:
        raise_if_not_probed(error)
        return Reply(HandlerResult.FAILURE, f"{where}: {in_words(error)}")
    return Reply(HandlerResult.SUCCESS)
