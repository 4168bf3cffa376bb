"""Recorded allocations survive a crash at any instant; the agent starts with a corrupt file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kubeletpy.base.wire.api_table import pod_list
from kubeletpy.resources.allocation import checkpoint_file
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.resources.allocation.checkpoint_file import checksum, replay, snapshot
from kubeletpy.resources.allocation.resources import PodResources
from kubeletpy.resources.placement.state import StateError
from tests.kit.allocation import needs

pytestmark = pytest.mark.virtual_time

read_snapshot = partial(checkpoint_file.read_snapshot, pod_list=pod_list)
KUBELETS = (
    '{"data":"{\\"entries\\":{\\"pod1\\":{\\"ContainerResources\\":{\\"container1\\":{'
    '\\"requests\\":{\\"cpu\\":\\"1Ki\\",\\"memory\\":\\"1Ki\\"}}}}}}","checksum":1178570812}'
)
"""A state file as kubelets since 1.33 write them."""


def test_a_kubelets_file_is_read() -> None:
    found = read_snapshot(KUBELETS)
    assert found == {"pod1": PodResources({"container1": needs("cpu=1Ki memory=1Ki")})}


@pytest.mark.parametrize(
    ("more", "written"),
    [
        pytest.param("", 1885207817, id="1.35, 1.36"),
        pytest.param(',"EmptyDirVolumeLimits":{"v":"1Gi"}', 3767901942, id="1.37"),
    ],
)
def test_files_of_each_version_are_read(more: str, written: int) -> None:
    """The checksums are those of kubelets; docs/reference/state-files.csv."""
    data = (
        '{"entries":{"uid-a":{"ContainerResources":{"c":{"limits":{"memory":"64Mi"},'
        f'"requests":{{"cpu":"100m","memory":"64Mi"}}}}}},"PodLevelResources":null{more}}}}}}}'
    )
    text = json.dumps({"data": data, "checksum": written, "newer": 1})
    resources = {"limits": {"memory": "64Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}}
    found = read_snapshot(text)
    assert (list(found), found["uid-a"].pod) == (["uid-a"], None)
    assert found["uid-a"].containers == {"c": resources}
    assert found["uid-a"].volumes == ({"v": "1Gi"} if more else {})
    assert json.loads(snapshot(found))["checksum"] == written, "what is written is the same text"
    with pytest.raises(StateError, match="checksum"):
        read_snapshot(json.dumps({"data": data, "checksum": written + 1}))


POD_LIST = (
    "CgYKABIAGgAS4gEKFwoBYRIAGgFuIgAqBXVpZC1hMgA4AEIAErEBChYKAXYSERIPCgZNZW1vcnkSBQoDMUdpChAKAXcSCxIJ"
    "CgASBQoDMUdpEk0KAWMSAXgqAEIzChAKBm1lbW9yeRIGCgQ2NE1pEg0KA2NwdRIGCgQxMDBtEhAKBm1lbW9yeRIGCgQ2NE1p"
    "agByAIABAIgBAJABAKIBABoAMgBCAEoAUgBYAGAAaACCAQCKAQCaAQCiARkKAWkSACoAQgBqAHIAgAEAiAEAkAEAogEAwgEA"
    "GhMKABoAIgAqADIASgBaAHIAiAEAElkKFQoAEgAaACIAKgV1aWQtYjIAOABCABIrGgAyAEIASgBSAFgAYABoAIIBAIoBAJoB"
    "AMIBAMICDBIKCgNjcHUSAwoBMhoTCgAaACIAKgAyAEoAWgByAIgBAA=="
)
"""The podList of a version v2, encoded by k8s.io/api: pods uid-a and uid-b (pod level alone)."""


def test_a_file_with_a_list_of_pods_is_read() -> None:
    data = f'{{"podList":"{POD_LIST}"}}'
    found = read_snapshot(json.dumps({"version": "v2", "data": data, "checksum": 3780240915}))
    resources = needs("cpu=100m memory=64Mi", "memory=64Mi")
    assert found == {
        "uid-a": PodResources({"i": {}, "c": resources}, None, {"v": "1Gi"}),
        "uid-b": PodResources({}, needs("cpu=2")),
    }
    earlier = json.loads(snapshot(found))
    assert "version" not in earlier, "what is written all kubelets up to 1.38 read"
    assert read_snapshot(json.dumps(earlier)) == found


def test_the_file_has_the_kubelets_format() -> None:
    pods = {
        "u1": PodResources({"a": needs("cpu=1")}, needs("cpu=2")),
        "u0": PodResources({"b": {}}),
    }
    written = json.loads(snapshot(pods))
    assert written["checksum"] == checksum(written["data"])
    assert json.loads(written["data"]) == {
        "entries": {
            "u0": {"ContainerResources": {"b": {}}, "PodLevelResources": None},
            "u1": {
                "ContainerResources": {"a": needs("cpu=1")},
                "PodLevelResources": needs("cpu=2"),
            },
        }
    }
    assert read_snapshot(snapshot(pods)) == pods
    assert read_snapshot(snapshot({})) == {}
    assert json.loads(snapshot({}))["data"] == "{}"


def signed(data: str) -> str:
    return json.dumps({"data": data, "checksum": checksum(data)})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        "x" * 100,
        KUBELETS.replace("1178570812", "1178570813"),
        KUBELETS[:-10],
        '{"data": 5, "checksum": 1}',
        signed("[]"),
        signed('{"entries": [5]}'),
        signed('{"entries": {"u": 5}}'),
        signed('{"entries": {"u": {"ContainerResources": {"a": {"requests": {"cpu": 5}}}}}}'),
        signed('{"entries": {"u": {"ContainerResources": ["a"]}}}'),
        "[" * 100_000,
        signed("{}").replace("{", '{"version": "v3", ', 1),
        *(
            signed(json.dumps({"podList": each})).replace("{", '{"version": "v2", ', 1)
            for each in (5, "x", "AAAA", POD_LIST[:200])
        ),
    ],
)
def test_a_corrupt_file_is_reported(text: str) -> None:
    with pytest.raises(StateError):
        read_snapshot(text)


def test_a_journal_line_that_cannot_be_read_costs_only_its_own_change() -> None:
    good = (
        b'["u1",{"ContainerResources":{"a":{"requests":{"cpu":"1"}}},"PodLevelResources":null}]\n'
    )
    pods = {"u2": PodResources({"b": {}})}
    assert replay(pods, [b"{", good, b'["u2"]', b'["u2",null]\n']) == 2
    assert pods == {"u1": PodResources({"a": needs("cpu=1")})}


def files(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


async def test_records_survive_an_immediate_crash(tmp_path: Path) -> None:
    path = tmp_path / "allocated_pods_state"
    state = ResourceState(path)
    assert not state.complete
    state.set("u1", "a", needs("cpu=1"))
    state.set("u1", "b", needs("cpu=2"))
    state.set_pod_level("u1", needs("cpu=3"))
    state.set("u2", "c", needs("memory=1Gi"))
    state.set("u3", "d", {})
    state.remove("u3")
    again = ResourceState(path)
    assert again.complete
    assert again.pod("u1") == {"a": needs("cpu=1"), "b": needs("cpu=2")}
    assert again.get("u1", "a") == needs("cpu=1")
    assert again.get_pod_level("u1") == needs("cpu=3")
    assert again.pod("u2") == {"c": needs("memory=1Gi")}
    assert sorted(again.uids()) == ["u1", "u2"]
    assert again.get("u3", "d") is None
    assert again.get("u1", "z") is None
    assert files(path) == ["allocated_pods_state.journal"]
    await state.close()


async def test_a_snapshot_is_soon_written_and_the_journal_emptied(tmp_path: Path) -> None:
    path = tmp_path / "state"
    state = ResourceState(path)
    state.set("u1", "a", needs("cpu=1"))
    await asyncio.sleep(2)
    assert read_snapshot(path.read_text()) == {"u1": PodResources({"a": needs("cpu=1")})}
    assert path.with_name("state.journal").read_bytes() == b""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    state.set("u1", "a", needs("cpu=2"))
    assert ResourceState(path).get("u1", "a") == needs("cpu=2")
    await state.close()
    assert read_snapshot(path.read_text())["u1"].containers == {"a": needs("cpu=2")}
    assert ResourceState(path).get("u1", "a") == needs("cpu=2")


async def test_records_made_during_a_snapshot_stay_in_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    state = ResourceState(path)
    state.set("u1", "a", needs("cpu=1"))
    real = asyncio.to_thread

    async def slowly(work: Callable[[], object]) -> object:
        result = await real(work)
        state.set("u2", "b", needs("cpu=2"))
        state.remove("u1")
        monkeypatch.setattr(asyncio, "to_thread", real)
        return result

    monkeypatch.setattr(asyncio, "to_thread", slowly)
    await asyncio.sleep(1.5)
    assert list(read_snapshot(path.read_text())) == ["u1"]
    assert ResourceState(path).uids() == ["u2"]
    state.set("u3", "c", needs("cpu=3"))
    assert sorted(ResourceState(path).uids()) == ["u2", "u3"]
    await asyncio.sleep(2)
    assert sorted(read_snapshot(path.read_text())) == ["u2", "u3"]
    assert files(path) == ["state", "state.journal"]
    await state.close()


async def test_unchanged_records_are_not_written(tmp_path: Path) -> None:
    state = ResourceState(tmp_path / "state")
    state.set("u1", "a", needs("cpu=1"))
    await asyncio.sleep(2)
    before = (tmp_path / "state").stat().st_mtime_ns
    state.set("u1", "a", needs("cpu=1"))
    state.remove("other")
    state.forget_others(["u1"])
    await asyncio.sleep(5)
    assert (tmp_path / "state").stat().st_mtime_ns == before
    assert (tmp_path / "state.journal").read_bytes() == b""
    await state.close()


async def test_a_torn_last_line_never_took_effect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state"
    state = ResourceState(path)
    state.set("u1", "a", needs("cpu=1"))
    state.set("u2", "b", needs("cpu=2"))
    journal = path.with_name("state.journal")
    journal.write_bytes(journal.read_bytes()[:-7])
    again = ResourceState(path)
    assert again.complete
    assert again.uids() == ["u1"]
    again.set("u3", "c", needs("cpu=3"))
    assert sorted(ResourceState(path).uids()) == ["u1", "u3"]
    assert not caplog.records
    await state.close()
    await again.close()


@pytest.mark.parametrize("broken", ["snapshot", "journal", "directory"])
async def test_a_corrupt_file_is_reported_once_and_fixed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    path = tmp_path / "state"
    match broken:
        case "snapshot":
            path.write_text("{")
        case "journal":
            path.with_name("state.journal").write_bytes(b"\x00\x01\n")
        case _:
            path.mkdir()
    with caplog.at_level(logging.WARNING):
        state = ResourceState(path)
    assert not state.complete
    assert caplog.records
    state.set("u1", "a", needs("cpu=1"))
    assert state.get("u1", "a") == needs("cpu=1")
    await asyncio.sleep(2)
    if broken != "directory":
        assert ResourceState(path).complete
        assert ResourceState(path).uids() == ["u1"]
    await state.close()


async def test_a_failing_disk_does_not_stop_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = tmp_path / "gone"
    path = where / "state"
    state = ResourceState(path)
    with caplog.at_level(logging.WARNING):
        for number in range(20):
            state.set("u1", "a", needs(f"cpu={number + 1}"))
        await asyncio.sleep(100)
    assert len(caplog.records) == 1
    assert len(state._lines) <= 5
    where.mkdir()
    await asyncio.sleep(31)
    assert ResourceState(path).get("u1", "a") == needs("cpu=20")
    await state.close()


async def test_a_half_written_line_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    state = ResourceState(path)
    real, calls = os.write, []

    def half(descriptor: int, data: bytes) -> int:
        calls.append(data)
        return real(descriptor, data[:5] if len(calls) == 1 else data)

    monkeypatch.setattr(os, "write", half)
    state.set("u1", "a", needs("cpu=1"))
    state.set("u2", "b", needs("cpu=2"))
    monkeypatch.undo()
    assert ResourceState(path).uids() == ["u2"]
    await state.close()


async def test_without_a_path_records_stay_in_memory(tmp_path: Path) -> None:
    state = ResourceState()
    state.set("u1", "a", needs("cpu=1"))
    assert state.pod("u1") == {"a": needs("cpu=1")}
    await state.close()
    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_sizes_of_volumes_are_kept_beside_the_resources(tmp_path: Path) -> None:
    path = tmp_path / "state"
    state = ResourceState(path)
    state.set_volume("u1", "data", "1Gi")
    state.set("u1", "a", needs("cpu=1"))
    state.set_pod_level("u1", needs("cpu=2"))
    state.set_volume("u1", "more", "2Gi")
    await state.close()
    desired = PodResources({"a": needs("cpu=1")}, needs("cpu=2"), {"data": "1Gi", "more": "2Gi"})
    assert ResourceState(path).find("u1") == desired
    assert ResourceState(path).volumes("u1") == {"data": "1Gi", "more": "2Gi"}
    assert ResourceState(path).volumes("u2") == {}
    gate_off = ResourceState(path, memory_volumes=False)
    assert gate_off.find("u1") == PodResources({"a": needs("cpu=1")}, needs("cpu=2"))
