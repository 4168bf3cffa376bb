"""``kubeletpy view``: the node's pods in a browser, live; a page on loopback."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeletpy.cli import agent_socket
from kubeletpy.cli.endings import run_until_signalled
from kubeletpy.cli.ports import port

if TYPE_CHECKING:
    from kubeletpy.observe.view.server import ViewServer


def main(arguments: Sequence[str]) -> int:
    """Run a command line until it is interrupted; the exit code: 1 when there is no agent."""
    given = parser().parse_args(arguments)
    try:
        path = agent_socket.find(given.socket)
        agent_socket.get_json(path, "node")
    except (agent_socket.NoAgent, agent_socket.NoSuchPod) as error:
        print(f"kubeletpy view: {error}", file=sys.stderr)
        return 1
    try:
        return run_until_signalled(serve(path, given.port))
    except KeyboardInterrupt:
        return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy view",
        description="Show the pods of this node in a browser, live. Serves a page on 127.0.0.1 "
        "until it is interrupted, to whoever has the address that it prints.",
    )
    made.add_argument("--port", type=port, default=0, help="of the page (a free one)")
    made.add_argument("--socket", help="the agent's socket (ROOT_DIR/explain.sock)")
    return made


async def serve(path: Path, port: int) -> int:
    """Serve the page until cancelled; returns the exit code if that fails."""
    from kubeletpy.cli import own_api
    from kubeletpy.cli.view_sources import Sources
    from kubeletpy.observe.view.server import ViewServer
    from kubeletpy.observe.view.watcher import Silent

    def get_json(*parts: str) -> Any:
        try:
            return agent_socket.get_json(path, *parts)
        except agent_socket.NoSuchPod as error:
            return {"error": str(error), "last": error.last}
        except agent_socket.NoAgent as error:
            raise Silent(str(error)) from error

    async with contextlib.AsyncExitStack() as stack:
        kubeconfig, api = own_api.kubeconfig(path), None
        try:
            if kubeconfig is not None:
                api = await stack.enter_async_context(own_api.connected(kubeconfig))
        except own_api.OwnApiUnavailable as error:
            print(f"kubeletpy view: pods that no node has are not shown: {error}", file=sys.stderr)
        loop = asyncio.get_running_loop()
        return await _serve(ViewServer(Sources(get_json, api, loop), port=port), port)


async def _serve(server: ViewServer, port: int) -> int:
    try:
        await server.start()
    except OSError as error:
        print(f"kubeletpy view: can't listen on port {port}: {error}", file=sys.stderr)
        return 1
    try:
        own = server.url.split("/")[2].rpartition(":")[2]
        print(f"{server.url}\n\nThe address is the key: whoever has it sees this node's pods.")
        print(f"From another machine, first: ssh -L {own}:127.0.0.1:{own} THIS_NODE", flush=True)
        await asyncio.Event().wait()
    finally:
        await server.close()
    return 0
