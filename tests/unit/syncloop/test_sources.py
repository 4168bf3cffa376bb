"""The manifest directory and URL as sources, on real files and in real time where needed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.sessions import USER_AGENT
from kubeletpy.syncloop.sources.file import FileSource, read_manifests
from kubeletpy.syncloop.sources.http import HttpSource
from kubeletpy.syncloop.sources.manifest import ManifestError
from tests.kit.virtual_time import on_virtual_time
from tests.unit.syncloop.test_manifest import WEB, manifest


class Deliveries:
    def __init__(self) -> None:
        self.sets: list[list[str]] = []
        self.arrived = asyncio.Event()
        self.notified: list[tuple[str, str]] = []

    def unreadable(self, source: str, uid: str, problem: str) -> None:
        self.notified.append((uid, problem))
        self.arrived.set()

    def deliver(self, source: str, objects: list[api.Pod]) -> None:
        self.sets.append([pod["metadata"]["name"] if pod else "?" for pod in objects])
        self.arrived.set()

    async def next(self) -> list[str]:
        await asyncio.wait_for(self.arrived.wait(), 5)
        self.arrived.clear()
        return self.sets[-1]


def test_reading_a_directory(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(WEB)
    (tmp_path / "a.json").write_bytes(manifest())
    (tmp_path / ".hidden").write_text(WEB)
    (tmp_path / "bad.yaml").write_text("kind: [")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.yaml").symlink_to(tmp_path / "b.yaml")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    read = read_manifests(tmp_path, "n")
    assert len(read.pods) == 3
    assert list(read.problems) == [str(tmp_path / "bad.yaml")]
    assert len(read_manifests(tmp_path / "b.yaml", "n").pods) == 1
    assert read_manifests(tmp_path / "nowhere", "n").pods == {}


def test_when_a_manifest_was_changed(tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(WEB)
    (tmp_path / "with-uid.yaml").write_text(WEB.replace("name: web", "name: web\n  uid: abc"))
    uid = read_manifests(old, "n").pods[str(old)][0]["metadata"]["uid"]
    (before,) = read_manifests(tmp_path, "n").changed.items()
    assert before == (uid, old.stat().st_ctime)
    os.utime(old, (1, 1))
    assert old.stat().st_mtime == 1
    (after,) = read_manifests(tmp_path, "n").changed.values()
    assert after is not None
    assert after >= before[1] > 1, "the file's own time can be set"
    new.symlink_to(old)
    changed = read_manifests(tmp_path, "n").changed.values()
    assert max(changed) == new.lstat().st_ctime  # type: ignore[type-var]


async def test_changes_are_seen_at_once(tmp_path: Path) -> None:
    deliveries = Deliveries()
    source = FileSource(
        tmp_path, "n", deliveries.deliver, deliveries.unreadable, check_frequency=1000
    )
    task = asyncio.create_task(source.run())
    assert await deliveries.next() == []
    (tmp_path / "web.yaml").write_text(WEB)
    assert await deliveries.next() == ["web-n"]
    (tmp_path / "web.yaml").unlink()
    assert await deliveries.next() == []
    task.cancel()


async def test_a_manifest_deleted_and_written_anew_is_a_new_order(tmp_path: Path) -> None:
    deliveries = Deliveries()
    file = tmp_path / "web.yaml"
    file.write_text(WEB)
    (tmp_path / "other.yaml").write_text(WEB.replace("name: web", "name: other"))
    task = asyncio.create_task(
        FileSource(
            tmp_path, "n", deliveries.deliver, deliveries.unreadable, check_frequency=1000
        ).run()
    )
    assert await deliveries.next() == ["other-n", "web-n"]
    file.unlink()
    file.write_text(WEB)
    assert await deliveries.next() == ["other-n", "web-n"]
    assert deliveries.sets == [["other-n", "web-n"], ["other-n"], ["other-n", "web-n"]]
    (tmp_path / ".new").write_text(WEB)
    (tmp_path / ".new").rename(file)
    file.touch()
    (tmp_path / "other.yaml").unlink()
    assert await deliveries.next() == ["web-n"]
    assert len(deliveries.sets) == 4, "a file that replaced one with the same content"
    task.cancel()


async def test_a_manifest_edited_into_nonsense_keeps_its_pod_until_it_is_removed(
    tmp_path: Path,
) -> None:
    deliveries = Deliveries()
    file = tmp_path / "web.yaml"
    file.write_text(WEB)
    task = asyncio.create_task(
        FileSource(
            tmp_path, "n", deliveries.deliver, deliveries.unreadable, check_frequency=1000
        ).run()
    )
    assert await deliveries.next() == ["web-n"]
    file.write_text("kind: [")
    await deliveries.next()
    ((_uid, problem),) = deliveries.notified
    assert problem.startswith(f"{file}: neither YAML nor JSON")
    assert problem.endswith("; the pod goes on as it was")
    assert deliveries.sets == [["web-n"]]
    (tmp_path / "other.yaml").write_text(WEB.replace("name: web", "name: other"))
    assert await deliveries.next() == ["other-n", "web-n"]
    file.unlink()
    assert await deliveries.next() == ["other-n"]
    task.cancel()


@on_virtual_time
async def test_a_directory_that_comes_later_and_a_bad_file_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deliveries, path = Deliveries(), tmp_path / "manifests"
    task = asyncio.create_task(
        FileSource(path, "n", deliveries.deliver, deliveries.unreadable, check_frequency=20).run()
    )
    await asyncio.sleep(1)
    assert deliveries.sets == [[]]
    path.mkdir()
    (path / "bad").write_text("{")
    (path / "web").write_text(WEB)
    with caplog.at_level(logging.ERROR):
        await asyncio.sleep(100)
        (path / "bad").touch()
        await asyncio.sleep(100)
    assert deliveries.sets == [[], ["web-n", "?"]], "one can't be read, and was not known before"
    assert len(caplog.records) == 1
    (path / "bad").unlink()
    await asyncio.sleep(30)
    assert deliveries.sets[2:] == [["web-n"]]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_url_bodies() -> None:
    deliveries = Deliveries()
    source = HttpSource("http://x", "n", deliveries.deliver)
    await source.deliver(manifest())
    await source.deliver(manifest())
    assert deliveries.sets == [["web-n"]]
    for nonsense in (b"<html>", b" \n", manifest()[:-9]):
        with pytest.raises(ManifestError):
            await source.deliver(nonsense)
    assert deliveries.sets == [["web-n"]]
    await source.deliver(b"")
    await source.deliver(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": []}).encode())
    assert deliveries.sets == [["web-n"], [], []]


async def test_the_url_is_requested_with_headers_and_failures_keep_the_last_set() -> None:
    from aiohttp import web

    answers = [(200, manifest()), (500, b""), (200, b"")]
    seen: list[list[str]] = []
    agents: set[str] = set()

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.headers.getall("X-Token", []))
        agents.update(request.headers.getall("User-Agent"))
        status, body = answers[min(len(seen), len(answers)) - 1]
        return web.Response(status=status, body=body)

    app = web.Application()
    app.router.add_get("/", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    deliveries = Deliveries()
    source = HttpSource(
        f"http://127.0.0.1:{port}/",
        "n",
        deliveries.deliver,
        headers={"X-Token": ["a", "b"]},
        check_frequency=0.02,
    )
    task = asyncio.create_task(source.run())
    assert await deliveries.next() == ["web-n"]
    assert await deliveries.next() == []
    assert len(deliveries.sets) == 2
    assert seen[0] == ["a", "b"]
    assert agents == {USER_AGENT}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await runner.cleanup()


async def test_manifests_that_cannot_be_used_are_reported(tmp_path: Path) -> None:
    deliveries = Deliveries()
    source = FileSource(
        tmp_path, "n", deliveries.deliver, deliveries.unreadable, check_frequency=1000
    )
    assert source.problem() == ""
    for number in range(12):
        (tmp_path / f"{number:02}.yaml").write_text("kind: [")
    task = asyncio.create_task(source.run())
    await deliveries.next()
    assert source.problem().startswith("static pod manifest ")
    assert source.problem().count("static pod manifest ") == 10
    assert source.problem().endswith("; and 2 more")
    task.cancel()
