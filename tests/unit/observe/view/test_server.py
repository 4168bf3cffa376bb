"""Access to the page: its token, host names, number of viewers and security headers."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from kubeletpy.observe.view.drawing import LEGEND, source_hash
from kubeletpy.observe.view.server import (
    HEADERS,
    MAX_STREAMS,
    ViewServer,
    Watcher,
    is_this_machine,
    page,
    policy,
)
from tests.kit.view import Agent, used
from tests.kit.virtual_time import eventually


@pytest.fixture
async def agent() -> Agent:
    return Agent()


@pytest.fixture
async def server(agent: Agent) -> AsyncIterator[ViewServer]:
    made = ViewServer(agent, every=0.01)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield session


async def messages(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Messages of a stream."""
    while line := await answer.content.readline():
        if line.strip():
            yield json.loads(line.decode().removeprefix("data: "))


@asynccontextmanager
async def streaming(
    client: aiohttp.ClientSession, url: str
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    async with client.get(url) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        yield messages(answer)


def origin(server: ViewServer) -> str:
    return server.url.rpartition("/")[0].rpartition("/")[0]


async def test_the_page_may_run_its_own_script_and_nothing_else(
    server: ViewServer, client: aiohttp.ClientSession
) -> None:
    async with client.get(server.url) as answer:
        text = await answer.text()
    assert (answer.status, answer.content_type, text) == (200, "text/html", page())
    allowed = dict(
        each.split(" ", 1) for each in answer.headers["Content-Security-Policy"].split("; ")
    )
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert allowed == {
        "default-src": "'none'",
        "script-src": f"'{source_hash(script)}'",
        "style-src": f"'{source_hash(style)}'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    for name, value in {**HEADERS, "X-Content-Type-Options": "nosniff"}.items():
        assert answer.headers[name] == value
    assert "Server" not in answer.headers
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_the_page_is_small_fetches_nothing_and_parses_no_markup() -> None:
    text = page()
    assert len(text.encode()) < 64 * 1024
    assert re.findall(r"https?://[^\"']+", text) == ["http://www.w3.org/2000/svg"]
    for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "srcdoc",
                 "DOMParser", "onclick=", "fetch(", "XMLHttp", "import("):  # fmt: skip
        assert word not in text
    with pytest.raises(ValueError, match="not enough values"):
        policy("<p>a page without script</p>")


def test_the_page_has_the_legend_of_the_reports() -> None:
    for kind, (_, meaning) in LEGEND.items():
        assert f'{kind}: "{meaning}"' in page()


@pytest.mark.parametrize("path", ["/", "/TOKEN", "/TOKENx/", "/x/", "//", "/x/stream", "/%00/"])
async def test_nobody_looks_without_the_token(
    server: ViewServer, client: aiohttp.ClientSession, agent: Agent, path: str
) -> None:
    token = server.url.split("/")[3]
    assert len(token) == 32
    async with client.get(origin(server) + path.replace("TOKEN", token)) as answer:
        text = await answer.text()
    assert answer.status == 404
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert token not in text
    assert agent.requested == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
async def test_only_get(server: ViewServer, client: aiohttp.ClientSession, method: str) -> None:
    for path in ("", "stream"):
        async with client.request(method, server.url + path) as answer:
            assert answer.status == 405


@pytest.mark.parametrize(
    ("hosts", "allowed"),
    [
        (["127.0.0.1:8000"], True),
        (["127.0.0.1"], True),
        (["localhost:9"], True),
        (["LOCALHOST:9"], True),
        (["[::1]:8000"], True),
        (["evil.example:8000"], False),
        (["127.0.0.1.evil.example"], False),
        (["localhost.evil.example"], False),
        (["evil.example@127.0.0.1"], False),
        (["127.0.0.1/evil.example"], False),
        (["127.0.0.1#evil"], False),
        (["127.0.0.1?evil"], False),
        (["[::1"], False),
        (["10.0.0.1:8000"], False),
        ([""], False),
        ([], False),
        (["127.0.0.1", "evil.example"], False),
    ],
)
def test_names_of_this_machine(hosts: list[str], allowed: bool) -> None:
    assert is_this_machine(hosts) is allowed


async def test_a_name_that_was_rebound_gets_nothing(
    server: ViewServer, client: aiohttp.ClientSession, agent: Agent
) -> None:
    """Nothing is sent even with the token: the browser would treat it as part of that site."""
    for path in ("", "stream"):
        async with client.get(server.url + path, headers={"Host": "evil.example"}) as answer:
            assert answer.status == 421
            assert "pods" not in await answer.text()
    assert agent.requested == []


async def test_a_stream_sends_everything_once_and_then_what_changes(
    server: ViewServer, client: aiohttp.ClientSession, agent: Agent
) -> None:
    async with streaming(client, server.url + "stream") as stream:
        first = await anext(stream)
        assert first.keys() == {"at", "node", "pods", "usage"}
        second = await anext(stream)
        assert second.keys() == {"at"}
        agent.silent = "nobody answers"
        async for message in stream:
            if message.keys() != {"at"}:
                break
        assert message["node"]["troubles"] == ["nobody answers"]
        assert message.keys() == {"at", "node"}
    async with streaming(client, f"{server.url}stream?pod=default%2Fweb") as stream:
        agent.silent = ""
        async for message in stream:
            if "pod" in message:
                break
        assert message["pod"]["path"] == "default/web"


async def test_nothing_is_requested_without_viewers(
    server: ViewServer, client: aiohttp.ClientSession, agent: Agent
) -> None:
    async with streaming(client, server.url + "stream") as stream:
        await anext(stream)
    await eventually(lambda: not server.streams, 10)
    before = len(agent.requested)
    await asyncio.sleep(1.2)  # longer than an answer is shared
    assert len(agent.requested) == before


@pytest.mark.parametrize("name", ["..%2Fnode", "default", "default%2F%3Cb%3E", "a%2Fb%2Fc", ""])
async def test_only_names_of_pods_are_asked_for(
    server: ViewServer, client: aiohttp.ClientSession, agent: Agent, name: str
) -> None:
    async with client.get(f"{server.url}stream?pod={name}") as answer:
        assert answer.status == 400
    assert agent.requested == []


async def test_how_many_look_is_bounded(server: ViewServer, client: aiohttp.ClientSession) -> None:
    looking = [await client.get(server.url + "stream") for _ in range(MAX_STREAMS)]
    try:
        async with client.get(server.url + "stream") as answer:
            assert answer.status == 503
        async with client.get(server.url) as answer:
            assert answer.status == 200
        looking.pop().close()
        await eventually(lambda: server.streams < MAX_STREAMS, 10)
        async with client.get(server.url + "stream") as answer:
            assert answer.status == 200
    finally:
        for each in looking:
            each.close()


async def test_connections_of_strangers_keep_nobody_out(
    server: ViewServer, client: aiohttp.ClientSession
) -> None:
    """Another user of this machine may connect, but has no token."""
    port = urlsplit(server.url).port
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
    try:
        async with client.get(server.url) as answer:
            assert answer.status == 200
    finally:
        for _, writer in silent:
            writer.close()


async def test_each_server_has_a_token_of_its_own(server: ViewServer, agent: Agent) -> None:
    assert ViewServer(agent).url.split("/")[3] != server.url.split("/")[3]
    assert urlsplit(server.url).hostname == "127.0.0.1"


# How often the agent is polled, and what is shown while it does not answer.


async def test_all_who_look_within_a_second_ask_once() -> None:
    agent = Agent()
    watcher = Watcher(agent)
    assert agent.requested == [], "no viewer yet"
    reported = await asyncio.gather(*(watcher.page(None) for _ in range(5)))
    assert sorted(agent.requested) == ["node", "pods", "usage"]
    assert {name: len(str(part)) > 0 for name, part in reported[0].items()}.keys() == {
        *("node", "pods", "pod", "usage")
    }
    assert reported[0]["node"] == {"name": "node-1", "troubles": []}
    assert reported[0]["usage"] == {"pods": {"uid-web": [None, 1024]}, "containers": []}


async def test_an_open_pod_has_its_containers() -> None:
    agent = Agent()
    reported = await Watcher(agent).page("default/web")
    assert {"pods/default/web", "pods/default/web/timeline", "pods/default/web/events"} <= set(
        agent.requested
    )
    assert reported["pod"]["verdict"].startswith("running and ready")
    assert reported["pod"]["logs"] == [{"name": "main", "lines": ["listening on :80"]}]
    assert [each["name"] for each in reported["usage"]["containers"]] == ["main"]
    with pytest.raises(ValueError, match="no pod"):
        await Watcher(agent).page("../node")


async def test_a_silent_agent_is_reported_under_its_last_name() -> None:
    agent = Agent()
    watcher = Watcher(agent)
    agent.silent = "nobody answers"
    silent = {"name": "", "troubles": ["nobody answers"], "silent": True}
    assert await watcher.page(None) == {"node": silent}
    agent.silent = ""
    await watcher.page(None)
    agent.silent = "nobody answers any more"
    found = await watcher.page("default/web")  # one pod is requested at once
    assert found == {
        "node": {"name": "node-1", "troubles": ["nobody answers any more"], "silent": True}
    }


async def test_slow_usage_does_not_delay_the_page() -> None:
    agent = Agent()
    agent.slow = threading.Event()
    watcher = Watcher(agent)
    try:
        reported = await watcher.page(None)
        assert (reported["usage"], len(reported["pods"])) == ({"pods": {}, "containers": []}, 1)
    finally:
        agent.slow.set()
    agent.usage = used(2.0, 1.0)
    assert (await watcher.page(None))["usage"]["pods"] == {"uid-web": [None, 1024]}
