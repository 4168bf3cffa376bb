"""How often the agent is polled, and what is shown while it does not answer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kubeletpy.observe.view.server import Watcher
from tests.unit.observe.view.answers import Agent, used


async def test_all_who_look_within_a_second_ask_once() -> None:
    agent = Agent()
    watcher = Watcher(agent)
    assert agent.requested == [], "no viewer yet"
    reported = await asyncio.gather(*(watcher.page(None) for _ in range(5)))
    assert sorted(agent.requested) == ["node", "pods", "usage"]
    assert {name: len(str(part)) > 0 for name, part in reported[0].items()}.keys() == {
        *("node", "pods", "pod", "usage"),
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
