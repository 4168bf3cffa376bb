"""/checkpoint/: one file below one directory, whatever the names; errors contain the remedy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.remote.errors import CRIError, Internal, Unimplemented
from kubeletpy.server import checkpoint
from kubeletpy.server.checkpoint import Kept, exceeded_limit, file_name, kept_archives
from kubeletpy.server.settings import AccessSettings
from tests.kit.server import Pki, Running, make_view, serving

POD = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u"},
    "spec": {"containers": [{"name": "c"}, {"name": "down"}]},
}


class Runtime:
    """Records each requested checkpoint."""

    def __init__(self) -> None:
        self.requested: list[tuple[str, str, int]] = []
        self.error: CRIError | None = None
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def checkpoint_container(self, container: str, location: str, timeout: int = 0) -> None:
        self.requested.append((container, location, timeout))
        await asyncio.to_thread(Path(location).write_bytes, b"memory")
        await self.go_on.wait()
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def a_roomy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MAX_SHARE", 101)
    monkeypatch.setattr(checkpoint, "MIN_FREE", 0)


@asynccontextmanager
async def node(tmp_path: Path, pki: Pki) -> AsyncIterator[tuple[Running, Runtime]]:
    runtime = Runtime()
    view = make_view(tmp_path, POD, runtime=runtime)
    record = ContainerStatus("cid", "c", ContainerState.RUNNING)
    view.cache.set(PodRuntimeStatus("u", "p", "n", (), (record,), observed_at=1))
    async with serving(view, None, pki, AccessSettings(always_allow=True)) as server:
        yield server, runtime


def test_names() -> None:
    name = file_name("ns", "pod", "main", 0)
    assert name == "checkpoint-pod_ns-main-1970-01-01T00:00:00Z.tar"
    for bad in ("..", "../x", "a/b", "", "a\0b", ".", "a..b", "-a", "a\n", "x" * 300, "ä"):
        for names in ((bad, "p", "c"), ("n", bad, "c"), ("n", "p", bad)):
            with pytest.raises(ValueError, match="not a name"):
                file_name(*names, 0)


async def test_it_is_written_where_nobody_else_reads(pki: Pki, tmp_path: Path) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        path = "/checkpoint/n/p/c?timeout=7&timeout=9"
        status, text = await server.request("POST", path, client=pki.client)
        ((container, location, timeout),) = runtime.requested
    assert (status, json.loads(text)) == (200, {"items": [location]})
    assert (container, timeout) == ("cid", 9)
    directory = tmp_path / "checkpoints"
    assert Path(location).parent == directory
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("path", "status", "parts"),
    [
        ("/checkpoint/n/other/c", 404, "pod does not exist"),
        ("/checkpoint/other/p/c", 404, "pod does not exist"),
        ("/checkpoint/n/p/other", 404, "container other does not exist"),
        ("/checkpoint/n/p/c?timeout=x", 404, "cannot parse value of timeout"),
        ("/checkpoint/n/p/c?timeout=-1", 404, "cannot parse value of timeout"),
        ("/checkpoint/n/p/down", 500, "n/p/down failed"),
        ("/checkpoint/n/p/..%2fc", 404, "does not exist"),
        ("/checkpoint/..%2f..%2fn/p/c", 404, "does not exist"),
    ],
)
async def test_invalid_requests_are_refused(
    pki: Pki, tmp_path: Path, path: str, status: int, parts: str
) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        found, text = await server.request("POST", path, client=pki.client)
        assert (found, parts in text) == (status, True), text
        assert runtime.requested == []


async def test_errors_of_the_runtime_are_returned(pki: Pki, tmp_path: Path) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        runtime.error = Unimplemented("CheckpointContainer", "no")
        status, text = await server.request("POST", "/checkpoint/n/p/c", client=pki.client)
        assert (status, "runtime can't make checkpoints" in text) == (500, True)
        runtime.error = Internal("CheckpointContainer", "criu is missing")
        status, text = await server.request("POST", "/checkpoint/n/p/c", client=pki.client)
        assert (status, "criu is missing" in text) == (500, True)
    assert list((tmp_path / "checkpoints").iterdir()) == [], "what is torn is removed"


@pytest.mark.parametrize(
    ("kept", "parts"),
    [
        (Kept(99, 99 << 20, 1000 << 20, 150 << 20), None),
        (Kept(100, 0, 1000 << 20, 1000 << 20), "there are 100 checkpoints, of 100"),
        (Kept(1, 100 << 20, 1000 << 20, 900 << 20), "take 100 MiB, and may take 10 percent"),
        (Kept(0, 0, 1000 << 20, 149 << 20), "149 MiB of 1000 MiB are free, and 15 percent"),
    ],
)
def test_the_limits_on_kept_checkpoints(
    monkeypatch: pytest.MonkeyPatch, kept: Kept, parts: str | None
) -> None:
    monkeypatch.undo()
    found = exceeded_limit(kept)
    assert (found is None) if parts is None else (parts in (found or ""))


async def test_the_disk_is_not_filled(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "MAX_KEPT", 2)
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    for number in range(2):
        (directory / f"old-{number}").write_bytes(b"x" * 5000)
    async with node(tmp_path, pki) as (server, runtime):
        status, text = await server.request("POST", "/checkpoint/n/p/c", client=pki.client)
        assert status == 507
        assert f"of 2 that may be kept: remove old ones from {directory} on the node" in text
        assert runtime.requested == []
        (directory / "old-0").unlink()
        assert (await server.request("POST", "/checkpoint/n/p/c", client=pki.client))[0] == 200
    kept = kept_archives(directory)
    assert (kept.archives, kept.used >= 5000 < kept.capacity) == (2, True)


async def test_two_containers_with_one_file_name(
    pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "file_name", lambda *_: "checkpoint-p_a-b-c-now.tar")
    async with node(tmp_path, pki) as (server, runtime):
        assert (await server.request("POST", "/checkpoint/n/p/c", client=pki.client))[0] == 200
        down = ContainerStatus("other", "down", ContainerState.RUNNING)
        record = ContainerStatus("cid", "c", ContainerState.RUNNING)
        status = PodRuntimeStatus("u", "p", "n", (), (record, down), observed_at=1)
        server.view.cache.set(status)
        code, text = await server.request("POST", "/checkpoint/n/p/down", client=pki.client)
        assert (code, len(runtime.requested)) == (500, 1)
        assert "exists; try again in a second" in text
        assert (await server.request("POST", "/checkpoint/n/p/c", client=pki.client))[0] == 200


async def test_one_at_a_time_for_a_container(pki: Pki, tmp_path: Path) -> None:
    async with node(tmp_path, pki) as (server, runtime):
        runtime.go_on.clear()
        first = asyncio.create_task(server.request("POST", "/checkpoint/n/p/c", client=pki.client))
        async with asyncio.timeout(5):
            while not runtime.requested:  # noqa: ASYNC110 - the fake has no event
                await asyncio.sleep(0.01)
        assert (await server.request("POST", "/checkpoint/n/p/c", client=pki.client))[0] == 429
        runtime.go_on.set()
        assert (await first)[0] == 200
        assert (await server.request("POST", "/checkpoint/n/p/c", client=pki.client))[0] == 200
