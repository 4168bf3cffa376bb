"""A headless Chromium, driven over its own protocol (CDP) by a WebSocket."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = "chromium-headless-shell"
STARTS_IN_S = 30.0
ANSWERS_IN_S = 20.0
NETWORK_CHANGED = "net::ERR_NETWORK_CHANGED"
"""A connection was being made when an interface of the machine came or went, which containers of
other tests do at any time. The browser gives it up; an event stream then connects again."""
KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "ArrowDown": (40, ""),
    "ArrowUp": (38, ""),
    "End": (35, ""),
    "Home": (36, ""),
    "Tab": (9, ""),
    "/": (191, "/"),
}


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []
        """Events of the tab: requests, log entries, exceptions."""

    async def call(self, method: str, **params: Any) -> Any:
        """Call a method of the protocol; its result."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(ANSWERS_IN_S):
            while True:
                message = await self._socket.receive_json()
                if message.get("id") != number:
                    self.events.append(message)
                elif "error" in message:
                    raise AssertionError(f"{method}: {message['error']}")
                else:
                    return message["result"]

    async def go(self, url: str) -> None:
        """Load an address; again after a change of the network, as a browser with a window does."""
        while (await self.call("Page.navigate", url=url)).get("errorText") == NETWORK_CHANGED:
            pass

    async def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = await self.call(
            "Runtime.evaluate",
            expression=script,
            returnByValue=True,
            awaitPromise=True,
            allowUnsafeEvalBlockedByCSP=False,
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is true; its value. AssertionError: what is shown instead."""
        try:
            return await self.run(
                "new Promise((done) => { const check = () => { let found = null;"
                f" try {{ found = {script} }} catch {{ }}"
                " if (found) done(found); else setTimeout(check, 20) }; check() })"
            )
        except TimeoutError as error:
            reported = await self.run("document.body.innerText")
            raise AssertionError(f"never so: {script}; the page shows:\n{reported}") from error

    async def press(self, key: str) -> None:
        """Press and release a key."""
        code, text = KEYS[key] if key in KEYS else (ord(key.upper()), key)
        about = {"key": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    async def click(self, element: str) -> None:
        """Click with the mouse on the middle of an element, which is an expression."""
        box = await self.run(f"{element}.getBoundingClientRect().toJSON()")
        about = {
            "x": box["x"] + box["width"] / 2,
            "y": box["y"] + box["height"] / 2,
            "button": "left",
            "clickCount": 1,
        }
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, **about)

    async def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """Resize the window; ``phone``: as a phone shows it."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )

    async def dark(self, on: bool) -> None:
        """Set whether the user prefers a dark color scheme."""
        value = "dark" if on else "light"
        features = [{"name": "prefers-color-scheme", "value": value}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    def requested(self) -> list[str]:
        """The addresses that the page has requested."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Complaints of the browser: errors, refusals by policy, exceptions."""
        kinds = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        found = [str(event["params"]) for event in self.events if event.get("method") in kinds]
        return [each for each in found if NETWORK_CHANGED not in each]


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """A tab of a browser of its own."""
    home = Path(tempfile.mkdtemp(prefix="kpb-", dir="/tmp"))
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *("--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={home}"),
        *("--no-first-run", "--disable-background-networking", "about:blank"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(STARTS_IN_S):
            port = await _port(process)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                tabs = await answer.json()
            (tab,) = [each for each in tabs if each["type"] == "page"]
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                for domain in ("Page", "Runtime", "Network", "Log"):
                    await page.call(f"{domain}.enable")
                yield page
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        shutil.rmtree(home, ignore_errors=True)


async def _port(process: asyncio.subprocess.Process) -> int:
    """Port of the browser, from the line that it prints when it listens."""
    assert process.stderr is not None
    while line := (await process.stderr.readline()).decode(errors="replace"):
        if found := re.search(r"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line):
            return int(found[1])
    raise AssertionError(f"{PROGRAM} ended before it listened")
