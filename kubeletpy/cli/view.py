"""``kubeletpy view``: the node's pods in a browser, live; a page on loopback."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kubeletpy.base.structs import Component
from kubeletpy.cli import agent_socket
from kubeletpy.cli.endings import run_until_signalled
from kubeletpy.cli.own_api import OwnApi, OwnApiUnavailable
from kubeletpy.cli.ports import port

if TYPE_CHECKING:
    from kubeletpy.observe.view.server import ViewServer


def main(arguments: Sequence[str]) -> int:
    """Run a command line until it is interrupted; the exit code: 1 when there is no agent."""
    parsed = parser().parse_args(arguments)
    try:
        path = agent_socket.find(parsed.socket)
        agent_socket.get_json(path, "node")
    except (agent_socket.NoAgent, agent_socket.NoSuchPod) as error:
        print(f"kubeletpy view: {error}", file=sys.stderr)
        return 1
    try:
        return run_until_signalled(serve(path, parsed.port))
    except KeyboardInterrupt:
        return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
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
    from kubeletpy.observe.view.server import Silent, ViewServer

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


# Sources of a page: the agent's answers, with data that only the API of `up` has. It adds pods that
# no node has, and the events of schedulers and controllers.

_Read = TypeVar("_Read")
PATIENCE_S = 1.0
"""How long a page waits for one answer of that API; then it is shown without."""


class Sources(Component):
    """Answers requests like the agent's socket. Blocks: call it in a thread, not in the loop."""

    # requests the agent.
    ask: Callable[..., Any]
    api: OwnApi | None
    # the one in which ``api`` was made.
    loop: asyncio.AbstractEventLoop

    def __post_init__(self) -> None:
        self._unread = ""

    def __call__(self, *parts: str) -> Any:
        """GET of the path that ``parts`` make up."""
        found, api = self.ask(*parts), self.api
        if api is None:
            return found
        match parts:
            case ("node",) if self._unread:
                return {**found, "troubles": [*(found.get("troubles") or ()), self._unread]}
            case ("pods",):
                return [*found, *(self._read(api.unplaced) or ())]
            case ("pods", namespace, name) if "error" in found and found.get("last") is None:
                return self._read(lambda: api.unplaced_pod(namespace, name)) or found
            case ("pods", namespace, name, "events"):
                return self._with_others(found, namespace, name, api)
        return found

    def _with_others(self, own: Any, namespace: str, name: str, api: OwnApi) -> Any:
        others = self._read(lambda: api.events(namespace, name)) or ()
        together = [*(own if isinstance(own, list) else ()), *others]
        return sorted(together, key=lambda each: float(each["at"]))

    def _read(self, read: Callable[[], Awaitable[_Read]]) -> _Read | None:
        async def reading() -> _Read:
            async with asyncio.timeout(PATIENCE_S):
                return await read()

        try:
            found = asyncio.run_coroutine_threadsafe(reading(), self.loop).result()
        except (OwnApiUnavailable, TimeoutError) as error:
            why = str(error) or f"its API did not answer within {PATIENCE_S:g} s"
            self._unread = f"pods without a node and events of the scheduler are missing: {why}"
            return None
        self._unread = ""
        return found
