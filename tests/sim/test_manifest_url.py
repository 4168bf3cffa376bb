"""Static pods from a URL: its content counts, and a failure to get it changes nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from tests.sim.api import NODE
from tests.sim.manifest_server import Answer, ManifestServer
from tests.sim.test_scenarios import both, manifest, play, until
from tests.sim.test_static_pods import mirror_ready, running
from tests.sim.user import container, pod
from tests.sim.world import World

URL = "http://manifests.test/pods"
CHECK_S = 20.0


def pod_list(*names: str, what: str = "run") -> bytes:
    items = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container("c", what)]},
        }
        for name in names
    ]
    return json.dumps({"apiVersion": "v1", "kind": "PodList", "items": items}).encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ManifestServer:
    server = ManifestServer()
    monkeypatch.setattr(aiohttp.client, "ClientSession", server.session)
    return server


def names(world: World) -> set[str]:
    return {name.removesuffix(f"-{NODE}") for name in running(world)}


@both
def test_pods_come_change_and_go(tmp_path: Path, events: bool, server: ManifestServer) -> None:
    async def scenario(world: World) -> None:
        server.answer = Answer(manifest("web").encode())
        await until(world, lambda: mirror_ready(world, "web"), 60)
        first = running(world)
        server.answer = Answer(pod_list("web", "other"), content_type="application/json")
        await until(world, lambda: names(world) == {"web", "other"}, 60)
        assert running(world).items() > first.items(), "the same pod, written in another way"
        server.answer = Answer(pod_list("web", "other", what="run143"))
        await until(world, lambda: not running(world).items() & first.items(), 60)
        await until(world, lambda: names(world) == {"web", "other"}, 60)
        second = running(world)
        await asyncio.sleep(10 * CHECK_S)
        assert running(world) == second
        server.answer = Answer(pod_list("other", what="run143"))
        await until(world, lambda: names(world) == {"other"}, 60)
        assert running(world)[f"other-{NODE}"] == second[f"other-{NODE}"]
        server.answer = Answer(b"")
        await until(world, lambda: not running(world), 60)
        await until(world, lambda: world.user.get(f"other-{NODE}") is None, 60)

    play(scenario, tmp_path, events=events, manifest_url=URL)


FAILURES = {
    "nobody there": None,
    "500": Answer(b"oops", status=500),
    "404 with a pod": Answer(manifest("evil").encode(), status=404),
    "a page": Answer(b"<html><body>Log in</body></html>", content_type="text/html"),
    "white space": Answer(b" \n"),
    "half a list": Answer(pod_list("web", "other")[:-20]),
    "cut": Answer(pod_list("web"), cut=True),
    "another kind": Answer(b"apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"),
    "one bad pod": Answer(pod_list("web", "No Name")),
    "twice": Answer(manifest("web").encode() + b"---\n" + manifest("other").encode()),
    "too much": Answer(b"#" * (10 * 1024 * 1024 + 1)),
}


@pytest.mark.parametrize("failure", list(FAILURES))
def test_a_failed_download_changes_nothing(
    tmp_path: Path, server: ManifestServer, failure: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        server.answer = Answer(pod_list("web"))
        await until(world, lambda: mirror_ready(world, "web"), 60)
        before = running(world)
        server.answer = FAILURES[failure]
        await asyncio.sleep(10 * CHECK_S)
        assert running(world) == before
        notified = [r for r in caplog.records if "static pods from URL not read" in r.message]
        assert len(notified) == 1, "logged once, not each time"
        await world.kill()
        world.start()
        world.user.create(pod("of-api", [container("c", "run")]))
        await until(world, lambda: len(running(world)) == 2, 60)
        await asyncio.sleep(10 * CHECK_S)
        assert running(world).items() > before.items(), "also of an agent that never had a list"
        server.answer = Answer(pod_list("web"))
        await asyncio.sleep(2 * CHECK_S)
        assert running(world).items() > before.items()
        server.answer = Answer(b"")
        await until(world, lambda: not names(world) - {"of-api"}, 60)

    play(scenario, tmp_path, manifest_url=URL)


def test_a_request_that_hangs_times_out_and_is_retried(
    tmp_path: Path, server: ManifestServer
) -> None:
    async def scenario(world: World) -> None:
        server.answer = Answer(pod_list("web"))
        await until(world, lambda: mirror_ready(world, "web"), 60)
        server.hangs = True
        requested = server.requested
        await asyncio.sleep(300)
        assert 8 <= server.requested - requested <= 12
        server.hangs = False
        server.answer = Answer(pod_list("web", "other"))
        await until(world, lambda: names(world) == {"web", "other"}, 60)
        server.answer = Answer(b"")
        await until(world, lambda: not running(world), 60)

    play(scenario, tmp_path, manifest_url=URL)
