"""Stops that the next agent resumes, and the bounds of their records."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import Pod
from kubeletpy.runtime_manager.act.container_files import (
    MAX_RECORD_BYTES,
    StopRecords,
    record_from_json,
)
from kubeletpy.runtime_manager.plan.grace import HookState, StopRecord
from tests.kit.records import container, make_pod
from tests.kit.runtime import FakeNode, FakeRuntime
from tests.kit.virtual_time import on_virtual_time, step_wall_clock

DELETED = {"deletionTimestamp": "2023-11-14T22:13:20Z", "deletionGracePeriodSeconds": 30}


class Hooks:
    """Hooks that take ten seconds, and are counted."""

    def __init__(self) -> None:
        self.ran: list[Any] = []

    async def post_start(self, *_: Any) -> None:
        raise AssertionError

    async def pre_stop(self, pod: Any, name: str, container_id: str, handler: Any) -> None:
        self.ran.append(handler)
        await asyncio.sleep(handler.get("sleep", {}).get("seconds", 10))


class Deaf(FakeRuntime):
    """Containers that end only by SIGKILL; a canceled stop ends without it."""

    async def stop_container(self, container_id: str, timeout: int) -> None:
        self.calls.append(f"stop_container {container_id} {timeout}")
        await asyncio.sleep(timeout)
        self.end(container_id, 137)


async def killed_after(
    tmp_path: Path, seconds: float, hook: Any = None, away: float = 0.0, step: float = 0.0
) -> tuple[FakeNode, Hooks, Pod, float]:
    """Stop a pod, kill the agent, stop the pod with the next one; the last item: seconds in all."""
    hooks = Hooks()
    node = FakeNode(tmp_path, runtime=Deaf(), options={"hooks": hooks})
    lifecycle = {"lifecycle": {"preStop": hook}} if hook else {}
    spec: Any = container("a", **lifecycle)
    await node.sync(make_pod(spec))
    pod = make_pod(spec, metadata=DELETED)
    began = asyncio.get_running_loop().time()
    stop = asyncio.ensure_future(node.kill(pod))
    await asyncio.wait({stop}, timeout=seconds)
    stop.cancel()
    await asyncio.wait({stop})
    await asyncio.sleep(away)
    step_wall_clock(step)
    node.restart_agent()
    await node.refresh(pod)
    await node.kill(pod)
    return node, hooks, pod, asyncio.get_running_loop().time() - began


@on_virtual_time
@pytest.mark.parametrize("step", [0.0, 3600.0, -3600.0])
async def test_the_rest_of_the_grace_period_is_left(tmp_path: Path, step: float) -> None:
    """The same holds when the wall clock was set meanwhile."""
    node, _, _, took = await killed_after(tmp_path, 18, step=step)
    assert took == pytest.approx(30, abs=1.1)
    assert node.runtime.running() == []


@on_virtual_time
async def test_a_grace_period_that_is_over_leaves_the_least(tmp_path: Path) -> None:
    node, _, _, took = await killed_after(tmp_path, 18, away=100)
    assert took == pytest.approx(120, abs=1.1)
    assert node.runtime.calls.count("stop_container container-a-0 2") == 1


@on_virtual_time
@pytest.mark.parametrize("seconds", [4, 14], ids=["during the hook", "after it"])
async def test_a_hook_runs_once(tmp_path: Path, seconds: float) -> None:
    _, hooks, _, took = await killed_after(tmp_path, seconds, {"exec": {"command": ["x"]}})
    assert len(hooks.ran) == 1
    assert took == pytest.approx(30, abs=1.1)


@on_virtual_time
async def test_a_sleep_hook_resumes_after_a_restart(tmp_path: Path) -> None:
    _, hooks, _, took = await killed_after(tmp_path, 4, {"sleep": {"seconds": 20}})
    assert hooks.ran == [{"sleep": {"seconds": 20}}, {"sleep": {"seconds": 16}}]
    assert took == pytest.approx(30, abs=1.1)


@on_virtual_time
async def test_another_container_of_that_name_has_all_its_time(tmp_path: Path) -> None:
    records = StopRecords(str(tmp_path))
    await records.write("u", "a", records.new("c1", deleting=True))
    later = StopRecords(str(tmp_path))
    assert await later.earlier("u", "a", "c2") is None
    assert await later.earlier("u", "b", "c1") is None
    assert await records.earlier("u", "a", "c1") is None, "its own"
    found = await later.earlier("u", "a", "c1")
    assert found is not None
    assert found.deleting
    await later.write("u", "a", replace(found, hook=HookState.ENDED))
    again = await StopRecords(str(tmp_path)).earlier("u", "a", "c1")
    assert again == replace(found, hook=HookState.ENDED)


async def test_a_write_that_was_canceled_never_replaces_a_newer_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread continues: the next write and the next read of that container wait for it."""
    records, earlier = StopRecords(str(tmp_path)), StopRecords(str(tmp_path))
    before = earlier.new("c1", deleting=True)
    begun, go_on = threading.Event(), threading.Event()
    write = records._write

    def slow(uid: str, name: str, record: StopRecord) -> None:
        if record.hook is HookState.BEGUN:
            begun.set()
            go_on.wait(10)
        write(uid, name, record)

    monkeypatch.setattr(records, "_write", slow)
    old = asyncio.create_task(records.write("u", "a", replace(before, hook=HookState.BEGUN)))
    await asyncio.to_thread(begun.wait, 10)
    old.cancel()
    await asyncio.wait([old])
    assert old.cancelled()
    found = asyncio.create_task(records.earlier("u", "a", "c1"))
    newer = asyncio.create_task(records.write("u", "a", replace(before, hook=HookState.ENDED)))
    await records.write("u", "b", records.new("c2", deleting=True))
    await asyncio.wait([found, newer], timeout=0.05)
    assert not found.done()
    assert not newer.done()
    newer.cancel()
    go_on.set()
    await records.close()
    assert await found == replace(before, hook=HookState.BEGUN)
    assert await records.earlier("u", "a", "c1") == replace(before, hook=HookState.ENDED)


@on_virtual_time
async def test_a_directory_that_cannot_be_written_stops_no_stop(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    records = StopRecords(str(tmp_path / "file"))
    await records.write("u", "a", records.new("c1", deleting=False))
    await records.write("../u", "a", records.new("c1", deleting=False))
    assert await records.earlier("u", "a", "c1") is None
    assert await records.earlier("../u", "a", "c1") is None


@on_virtual_time
async def test_oversized_files_and_directories_are_not_read(tmp_path: Path) -> None:
    records = StopRecords(str(tmp_path))
    await records.write("u", "a", records.new("c1", deleting=False))
    file = tmp_path / "pods" / "u" / "containers" / "a" / "stop.json"
    later = StopRecords(str(tmp_path))
    file.write_text(file.read_text() + " " * MAX_RECORD_BYTES)
    assert await later.earlier("u", "a", "c1") is None
    file.unlink()
    file.mkdir()
    assert await later.earlier("u", "a", "c1") is None


@on_virtual_time
@pytest.mark.parametrize("part", ["pods/u/containers/a", "pods/u/containers", "pods/u"])
async def test_a_directory_replaced_with_a_symlink_is_not_followed(
    tmp_path: Path, part: str
) -> None:
    """A container that mounts the directory from the host can replace it."""
    target, root = tmp_path / "target", tmp_path / "root"
    inner = target / "pods/u/containers/a"
    inner.mkdir(parents=True)
    records = StopRecords(str(target))
    await records.write("u", "a", records.new("c1", deleting=True))
    (root / part).parent.mkdir(parents=True)
    (root / part).symlink_to(target / part)
    later = StopRecords(str(root))
    assert await later.earlier("u", "a", "c1") is None
    before = (inner / "stop.json").read_text()
    await later.write("u", "a", later.new("c2", deleting=True))
    assert (inner / "stop.json").read_text() == before


RECORD = {"containerID": "c", "life": "l", "began": 5, "deleting": True, "hook": "begun"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (json.dumps(RECORD), StopRecord("c", "l", 5, True, HookState.BEGUN)),
        (json.dumps({**RECORD, "hook": "other"}), None),
        (json.dumps({**RECORD, "began": "soon"}), None),
        (json.dumps({**RECORD, "began": None}), None),
        (json.dumps([RECORD]), None),
        ("{}", None),
        ("", None),
        ("[" * 4000, None),
        ("\xff", None),
        (json.dumps({**RECORD, "began": 10**400}), None),
        (json.dumps({**RECORD, "began": float("inf")}), None),
        (json.dumps({**RECORD, "began": float("nan")}), None),
    ],
)
def test_a_record_as_it_is_read(text: str, found: StopRecord | None) -> None:
    assert record_from_json(text.encode("latin-1")) == found
