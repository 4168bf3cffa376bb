"""The page in a real browser: hostile texts, keys, a phone, its policy, an agent that is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from kubeletpy.observe.explain import unplaced
from kubeletpy.observe.view.drawing import html
from kubeletpy.observe.view.server import ViewServer
from tests.integration.view.browser import Page, browser
from tests.kit.view import Agent, used
from tests.unit.observe.explain.test_from_api import UNSCHEDULED, pod
from tests.unit.observe.explain.test_unplaced import event
from tests.unit.observe.explain.test_whole_timeline import whole
from tests.unit.observe.view.test_drawing import HOSTILE
from tests.unit.observe.view.test_feed import poisoned


@pytest.fixture
async def agent() -> Agent:
    return Agent()


@pytest.fixture
async def server(agent: Agent) -> AsyncIterator[ViewServer]:
    made = ViewServer(agent, every=0.05)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def page(server: ViewServer) -> AsyncIterator[Page]:
    """A window in which the page is open and has its rows."""
    async with browser() as made:
        await made.size(1280, 800)
        await made.go(server.url)
        await made.until("document.querySelectorAll('#list li').length")
        yield made
        assert made.complaints() == []
        assert all(url.startswith((server.url, "data:")) for url in made.requested())


def several(agent: Agent, *names: str) -> None:
    """Have pods of these names."""
    line = agent.pods[0]
    agent.pods = [{**line, "name": name, "uid": f"uid-{name}"} for name in names]


ROWS = "[...document.querySelectorAll('#list li')].filter((each) => !each.hidden)"
NAMES = f"{ROWS}.map((each) => each.children[1].textContent).join()"


async def test_every_hostile_text_is_shown_and_does_nothing(page: Page, agent: Agent) -> None:
    ours = frozenset({"title", "name", "namespace", "uid", "cause"})
    (line,) = agent.pods
    kept = agent.pod, agent.timeline, agent.events
    for text in HOSTILE:
        agent.node = {"name": text, "troubles": [text]}
        agent.pods = [
            {**line, "namespace": text, "name": text, "uid": "uid-evil", "verdict": text},
            {**line, "name": "opened"},
        ]
        spans = poisoned(kept[1], text, ours)
        agent.pod, agent.timeline, agent.events = (
            *(poisoned(kept[0], text, ours), spans),
            poisoned(kept[2], text, ours),
        )
        agent.logs = {"containers": {"main": [text, "end"]}}
        agent.usage = used(1.0, 1.0)
        reported = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:100]
        await page.run(f"location.hash = '#{quote('default/opened', safe='')}'")
        await page.until(
            f"document.querySelector('#head .verdict').textContent.includes({reported!r})"
            f" && document.querySelector('#list').textContent.includes({reported!r})"
            f" && document.querySelector('#falls').textContent.includes({reported!r})"
            f" && document.querySelector('#events').textContent.includes({reported!r})"
            f" && document.querySelector('.log').textContent.includes({reported!r})"
        )
        await page.press("Escape")
    tags = await page.run(
        "[...new Set([...document.body.querySelectorAll('*')].map(e => e.tagName))]"
    )
    assert not set(tags) & {"IMG", "IFRAME", "A", "OBJECT", "FORM", "LINK"}
    assert await page.run("document.querySelectorAll('script').length") == 1
    handlers = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert not [name for name in await page.run(handlers) if name.startswith("on")]


async def test_the_policy_holds_even_if_the_script_had_a_fault(server: ViewServer) -> None:
    """Markup is not parsed, no other script runs, nothing is sent elsewhere, nobody frames it."""
    async with browser() as page:
        await page.go(server.url)
        await page.until("document.querySelectorAll('#list li').length")
        for script in (
            "document.body.innerHTML = '<b>x</b>'",
            "eval('1')",
            "document.body.append(Object.assign(document.createElement('script'), {text: '1'}))",
        ):
            error = await page.run(
                f"(() => {{ try {{ {script}; return '' }} catch (e) {{ return e.name }} }})()"
            )
            assert error in ("TypeError", "EvalError"), script
        for script in ("fetch('http://127.0.0.1:1/')", "fetch('https://example.com/')"):
            assert await page.run(f"{script}.then(() => 'sent', () => 'refused')") == "refused"
        handler = "document.body.setAttribute('onclick', 'window.hit = 1')"
        await page.run(f"(() => {{ try {{ {handler}; document.body.click() }} catch {{ }} }})()")
        assert await page.run("window.hit === undefined")
        assert "Content Security Policy" in "".join(page.complaints())


async def test_with_keys_alone(page: Page, agent: Agent) -> None:
    several(agent, "a", "b", "c")
    await page.until(f"{NAMES} === 'default/a,default/b,default/c'")
    focused = "document.activeElement.dataset.path"
    await page.press("Tab")  # the filter
    assert await page.run("document.activeElement.id") == "filter"
    await page.press("Tab")  # the rows are one stop
    assert await page.run(focused) == "default/a"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert await page.run(outline) == "solid"
    for key, row in (("ArrowDown", "b"), ("ArrowDown", "c"), ("ArrowDown", "c"), ("ArrowUp", "b"),
                     ("Home", "a"), ("End", "c"), ("ArrowUp", "b")):  # fmt: skip
        await page.press(key)
        assert await page.run(focused) == f"default/{row}"
    await page.press("Enter")
    await page.until("document.querySelectorAll('#falls .step').length === 3")
    assert await page.run("document.activeElement.id") == "title"
    assert (
        await page.run("document.querySelector('[aria-selected=true]').dataset.path") == "default/b"
    )
    assert await page.run("document.querySelector('#title').textContent") == "default/b"
    await page.press("Escape")
    assert await page.run("document.querySelector('#pod').hidden")
    assert await page.run(focused) == "default/b"
    await page.press("/")
    await page.press("c")
    assert await page.run(NAMES) == "default/c"
    await page.press("Escape")
    assert await page.run(NAMES) == "default/a,default/b,default/c"
    await page.press("ArrowDown")
    assert await page.run(focused) == "default/a"
    several(agent, "0", "a")  # another comes before it, and others go
    await page.until(f"{NAMES} === 'default/0,default/a'")
    assert await page.run(focused) == "default/a", "the focus stays where it was"
    agent.pods[1].update(healthy=False, cause="crash")  # the row itself moves to the front
    await page.until(f"{NAMES} === 'default/a,default/0'")
    assert await page.run(focused) == "default/a", "also with its row"


OUTLINE = "getComputedStyle(document.activeElement).outlineStyle"
FOCUSED = "document.activeElement.dataset.path"


async def test_arrow_keys_need_no_tab(page: Page, agent: Agent) -> None:
    several(agent, "a", "b", "c")
    await page.until(f"{NAMES} === 'default/a,default/b,default/c'")
    for key, row in (("ArrowDown", "a"), ("ArrowDown", "b"), ("ArrowUp", "a"), ("End", "c")):
        await page.press(key)
        assert await page.run(FOCUSED) == f"default/{row}"
        assert await page.run(OUTLINE) == "solid"
    await page.run("document.activeElement.blur()")
    await page.press("Home")
    assert await page.run(FOCUSED) == "default/a"


async def test_a_click_leaves_no_frame(page: Page, agent: Agent) -> None:
    several(agent, "a", "b")
    await page.until(f"{NAMES} === 'default/a,default/b'")
    await page.run(f"{ROWS}[1].click()")  # as assistive programs do, before any key or button
    await page.until("document.activeElement.id === 'title'")
    assert await page.run(OUTLINE) == "none"
    await page.click("document.querySelector('#back')")
    await page.click(f"{ROWS}[1]")
    await page.until("document.activeElement.id === 'title'")
    assert await page.run(OUTLINE) == "none"
    await page.click("document.querySelector('#back')")
    assert await page.run(FOCUSED) == "default/b"
    assert await page.run(OUTLINE) == "none"
    await page.press("ArrowUp")
    assert (await page.run(FOCUSED), await page.run(OUTLINE)) == ("default/a", "solid")
    await page.press("Enter")
    await page.until("document.activeElement.id === 'title'")
    assert await page.run(OUTLINE) == "solid", "whoever uses keys sees where the focus is"


async def test_bars_have_a_legend(page: Page, agent: Agent) -> None:
    await page.press("ArrowDown")
    await page.press("Enter")
    await page.until("document.querySelectorAll('#falls .step').length === 3")
    entries = "[...document.querySelectorAll('.legend li')]"
    assert await page.run(f"{entries}.map((each) => each.textContent)") == [
        *("pod sandbox", "other step", "failed")
    ]
    colour = "getComputedStyle({}).backgroundColor"
    bars = f"[...document.querySelectorAll('.step .bar')].map((each) => {colour.format('each')})"
    reported = f"{entries}.map((each) => {colour.format('each.firstChild')})"
    assert await page.run(reported) == await page.run(bars)


async def test_a_pod_without_a_node_and_events_of_the_scheduler(page: Page, agent: Agent) -> None:
    made = pod({"conditions": [UNSCHEDULED]}, node="", uid="u")
    agent.pods += unplaced.lines([made], [])
    agent.pod = unplaced.explain_unscheduled(made, [])
    agent.timeline = {"error": "no timeline for pod ns/web on this node"}
    agent.events = unplaced.events_of_others([event(message="<b>0/1</b> nodes")])
    await page.until(f"{NAMES} === 'ns/web,default/web'")
    verdict = "node: none; not scheduled: Unschedulable: 0/1 nodes"
    assert await page.run(f"{ROWS}[0].querySelector('.says').textContent") == verdict
    await page.click(f"{ROWS}[0]")
    await page.until("document.querySelectorAll('#events tr').length === 1")
    assert await page.run("document.querySelector('#head .verdict').textContent") == verdict
    reported = await page.run("document.querySelector('#events tr').textContent")
    assert "FailedScheduling default-scheduler<b>0/1</b> nodes" in reported


async def test_the_page_follows_the_end_of_a_log(page: Page, agent: Agent) -> None:
    await page.press("End")
    await page.press("Enter")
    log = "document.querySelector('.log')"
    await page.until(f"{log}.textContent === 'listening on :80'")
    agent.logs = {"containers": {"main": [f"<i>{number}</i>" for number in range(10)]}}
    await page.until(f"{log}.textContent.startsWith('<i>0</i>\\n<i>1</i>\\n')")
    assert await page.run(f"{log}.children.length") == 0
    agent.logs = {"containers": {}}
    await page.until(f"{log}.hidden")


@pytest.mark.parametrize(("width", "reported"), [(390, 1), (320, 1), (1280, 0)])
async def test_a_report_fits_the_screen(tmp_path: Path, width: int, reported: int) -> None:
    """Each text of the one drawing that is shown lies within the screen."""
    file = tmp_path / "report.html"
    file.write_text(html(whole()))
    async with browser() as page:
        await page.size(width, 844, phone=width < 720)
        await page.go(file.as_uri())
        drawings = "[...document.querySelectorAll('svg')]"
        await page.until(f"{drawings}.length === 2")
        seen = f"{drawings}.map((each) => each.getBoundingClientRect().width > 0)"
        assert await page.run(seen) == [reported == 0, reported == 1]
        assert await page.run(f"document.documentElement.scrollWidth <= {width}")
        boxes = await page.run(
            f"[...{drawings}[{reported}].querySelectorAll('text, rect')]"
            ".map((each) => each.getBoundingClientRect().toJSON())"
        )
        assert len(boxes) > 40
        assert min(box["left"] for box in boxes) >= 0
        assert max(box["right"] for box in boxes) <= width
        assert page.complaints() == []


async def test_details_of_a_pod_are_shown(page: Page, agent: Agent) -> None:
    several(agent, "web")
    await page.press("Escape")
    await page.press("Enter")
    await page.until("document.querySelectorAll('#falls .step').length === 3")
    for second in range(2, 5):
        agent.usage = used(float(second), second * 0.25, second << 20, memory_limit=64 << 20)
        await page.until(
            f"document.querySelector('.memory p').textContent.includes('{second}.0 MiB of 64 MiB')"
        )
    assert await page.run("document.querySelector('.cpu p').textContent") == "CPU 250m CPU"
    assert await page.run("document.querySelectorAll('.plots polyline').length") == 2
    label = "document.querySelector('.memory svg').getAttribute('aria-label')"
    assert await page.run(label) == "Memory: 4.0 MiB of 64 MiB, at most 4.0 MiB in 2 minutes"
    beside = "getComputedStyle(document.querySelector('.beside')).display"
    assert await page.run(beside) == "none"
    await page.run("document.querySelector('#falls button').click()")
    assert await page.run(beside) == "block"
    assert await page.run("document.querySelector('.beside').textContent") == (
        "at the same time: pull image shop:1"
    )
    bar = await page.run("document.querySelectorAll('.bar')[1].getBoundingClientRect().toJSON()")
    track = await page.run("document.querySelector('.track').getBoundingClientRect().toJSON()")
    assert bar["left"] - track["left"] == pytest.approx(track["width"] / 4, abs=1)
    assert bar["width"] == pytest.approx(track["width"] / 2, abs=1)


async def test_on_a_phone_and_in_the_dark(page: Page, agent: Agent) -> None:
    """Nothing is wider than the screen; a pod takes the place of the list; targets are large."""
    several(agent, "a-name-as-long-as-they-get-" + "x" * 200, "web")
    agent.pod = {**agent.pod, "verdict": "y" * 1000}
    await page.size(390, 844, phone=True)
    fits = "document.documentElement.scrollWidth <= 390 && innerWidth === 390"
    await page.until(f"{ROWS}.length === 2")
    assert await page.run(fits)
    assert await page.run(f"{ROWS}.every((each) => each.getBoundingClientRect().height >= 44)")
    await page.run(f"{ROWS}[1].click()")
    await page.until("document.querySelectorAll('#falls .step').length === 3")
    assert await page.run("document.querySelector('#list').getBoundingClientRect().height === 0")
    assert await page.run(fits)
    await page.run("document.querySelector('#back').click()")
    assert await page.run("document.querySelector('#list').getBoundingClientRect().height > 0")
    background = "getComputedStyle(document.body).backgroundColor"
    light = await page.run(background)
    await page.dark(True)
    assert (light, await page.run(background)) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")


async def test_an_agent_that_is_away(page: Page, agent: Agent) -> None:
    agent.silent = "no agent runs here"
    await page.until("document.querySelector('#live').textContent === 'the agent does not answer'")
    assert await page.run("document.querySelector('#troubles').textContent") == "no agent runs here"
    assert await page.run(f"{ROWS}.length") == 1, "what was there last stays, and is shown as such"
    assert await page.run("document.body.classList.contains('stale')")
    agent.silent = ""
    await page.until("document.querySelector('#live').textContent === 'live'")
    assert await page.run("document.querySelector('#troubles').hidden")
