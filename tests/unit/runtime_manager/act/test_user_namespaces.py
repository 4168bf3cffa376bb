"""Id ranges of pods with hostUsers false: never the node's, never another pod's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.runtime_status import ContainerConfigError, SandboxConfigError
from kubeletpy.runtime_manager.act.user_namespaces import (
    SubordinateIds,
    UnusableIds,
    UserNamespaceError,
    UserNamespaceRanges,
    subordinate_ids,
)
from kubeletpy.runtime_manager.config.settings import UserNamespaceRange
from tests.kit.cgroups import pod

SIZE = 65536


def alone(root: Path, uid: str) -> Any:
    (root / uid).mkdir(exist_ok=True)
    return pod(uid=uid, hostUsers=False)


def make(
    root: Path, *, supporting: tuple[str, ...] = ("", "runc"), **how: Any
) -> UserNamespaceRanges:
    how.setdefault("max_pods", 3)
    return UserNamespaceRanges(root, supporting=lambda: supporting, **how)


def test_each_pod_has_a_range_of_its_own_for_good(tmp_path: Path) -> None:
    spaces = make(tmp_path)
    pods = [alone(tmp_path, uid) for uid in "abc"]
    firsts = [spaces.pod_range(each).first_host_id for each in pods]  # type: ignore[union-attr]
    assert firsts == [SIZE, 2 * SIZE, 3 * SIZE]
    assert spaces.pod_range(pods[1]).first_host_id == 2 * SIZE  # type: ignore[union-attr]
    mapping = [{"hostId": SIZE, "containerId": 0, "length": SIZE}]
    kept = json.loads((tmp_path / "a" / "userns").read_text())
    assert kept == {"uidMappings": mapping, "gidMappings": mapping}
    with pytest.raises(UserNamespaceError, match="empty slot"):
        spaces.pod_range(alone(tmp_path, "d"))
    again = make(tmp_path)
    assert again.pod_range(pods[2]).first_host_id == 3 * SIZE  # type: ignore[union-attr]
    again.release_others({"a", "c"})
    assert not (tmp_path / "b" / "userns").exists()
    assert again.pod_range(alone(tmp_path, "d")).first_host_id == 2 * SIZE  # type: ignore[union-attr]


@pytest.mark.parametrize("host_users", [None, True])
def test_pods_with_the_nodes_users(tmp_path: Path, host_users: bool | None) -> None:
    assert make(tmp_path, supporting=()).pod_range(pod(hostUsers=host_users)) is None


def test_a_runtime_may_have_learned_them_meanwhile(tmp_path: Path) -> None:
    supporting: list[str] = []
    made = UserNamespaceRanges(tmp_path, supporting=lambda: supporting, max_pods=3)
    with pytest.raises(UserNamespaceError):
        made.pod_range(alone(tmp_path, "a"))
    supporting.append("")
    assert made.pod_range(alone(tmp_path, "a")) is not None


async def test_a_runtime_without_user_namespaces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserNamespaceError, match="runtime does not support user namespaces"):
        make(tmp_path, supporting=()).pod_range(alone(tmp_path, "a"))
    assert issubclass(UserNamespaceError, SandboxConfigError)
    assert issubclass(UserNamespaceError, ContainerConfigError)

    async def handler(of: Any) -> str:
        return "kata"

    lookup = make(tmp_path).checked(handler)
    assert await lookup(pod()) == "kata"
    with pytest.raises(UserNamespaceError, match='RuntimeClass handler "kata" does not'):
        await lookup(alone(tmp_path, "a"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"uidMappings": [], "gidMappings": []}',
        '{"uidMappings": [{"hostId": 0, "containerId": 0, "length": 65536}],'
        ' "gidMappings": [{"hostId": 0, "containerId": 0, "length": 65536}]}',
        '{"uidMappings": [{"hostId": 65536, "containerId": 0, "length": 9}],'
        ' "gidMappings": [{"hostId": 65536, "containerId": 0, "length": 9}]}',
        '{"uidMappings": [{"hostId": 65536, "containerId": 0, "length": 65536}],'
        ' "gidMappings": [{"hostId": 131072, "containerId": 0, "length": 65536}]}',
        '{"uidMappings": [{"hostId": 65537, "containerId": 0, "length": 65536}],'
        ' "gidMappings": [{"hostId": 65537, "containerId": 0, "length": 65536}]}',
        '{"uidMappings": [{"hostId": 65536.0, "containerId": 0, "length": 65536}],'
        ' "gidMappings": [{"hostId": 65536.0, "containerId": 0, "length": 65536}]}',
    ],
)
def test_while_a_record_is_broken_nobody_gets_what_may_be_that_pods(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = alone(tmp_path, "a"), alone(tmp_path, "b")
    (tmp_path / "a" / "userns").write_text(text)
    spaces = make(tmp_path)
    assert "user namespace of a pod is not known" in caplog.text
    assert spaces.unknown == {"a"}
    with pytest.raises(UserNamespaceError, match="record of the pod's user namespace is broken"):
        spaces.pod_range(broken)
    with pytest.raises(UserNamespaceError, match="no user namespace is given out"):
        spaces.pod_range(other)
    spaces.release_others({"b"})
    assert spaces.pod_range(other).first_host_id == SIZE  # type: ignore[union-attr]


def test_a_range_from_the_runtime_repairs_a_record(tmp_path: Path) -> None:
    broken, other = alone(tmp_path, "a"), alone(tmp_path, "b")
    (tmp_path / "a" / "userns").write_text("{")
    spaces = make(tmp_path)
    spaces.settle("a", UserNamespaceRange(0, SIZE))
    assert spaces.unknown == {"a"}, "the node's own ids are nobody's"
    spaces.settle("a", UserNamespaceRange(SIZE, SIZE))
    for known in (spaces, make(tmp_path)):
        assert known.pod_range(broken) == UserNamespaceRange(SIZE, SIZE)
    assert spaces.pod_range(other) == UserNamespaceRange(2 * SIZE, SIZE)
    (tmp_path / "a" / "userns").write_text("{")
    spaces = make(tmp_path)
    spaces.settle("a", None)
    assert not (tmp_path / "a" / "userns").exists()
    assert spaces.pod_range(broken) == UserNamespaceRange(SIZE, SIZE)


def test_two_records_of_one_range_are_both_doubted(tmp_path: Path) -> None:
    first, second = alone(tmp_path, "a"), alone(tmp_path, "b")
    make(tmp_path).pod_range(first)
    (tmp_path / "b" / "userns").write_text((tmp_path / "a" / "userns").read_text())
    spaces = make(tmp_path)
    assert spaces.unknown == {"a", "b"}
    spaces.settle("a", UserNamespaceRange(SIZE, SIZE))
    spaces.settle("b", None)
    assert spaces.pod_range(second) == UserNamespaceRange(2 * SIZE, SIZE)


def test_a_range_of_other_settings_stays_its_pods(tmp_path: Path) -> None:
    old, new = alone(tmp_path, "a"), alone(tmp_path, "b")
    make(tmp_path, ids_per_pod=2 * SIZE).pod_range(old)
    spaces = make(tmp_path, max_pods=9)
    assert spaces.pod_range(old) == UserNamespaceRange(2 * SIZE, 2 * SIZE)
    assert spaces.pod_range(new) == UserNamespaceRange(SIZE, SIZE)
    assert spaces.pod_range(alone(tmp_path, "c")) == UserNamespaceRange(4 * SIZE, SIZE)


def test_ranges_stay_allocated_on_a_read_only_disk(tmp_path: Path) -> None:
    spaces = make(tmp_path, max_pods=1)
    spaces.pod_range(alone(tmp_path, "a"))
    (tmp_path / "a" / "userns").unlink()
    (tmp_path / "a" / "userns").mkdir()
    spaces.release_others(())  # it runs in the loop of the agent, and must not raise an error
    with pytest.raises(UserNamespaceError, match="empty slot"):
        spaces.pod_range(alone(tmp_path, "b"))
    (tmp_path / "a" / "userns").rmdir()
    spaces.release_others(())
    assert spaces.pod_range(alone(tmp_path, "b")) is not None


def test_ids_set_aside_for_pods(tmp_path: Path) -> None:
    files = tmp_path / "subuid", tmp_path / "subgid"
    assert subordinate_ids(files) is None
    for file in files:
        file.write_text("me:1:2\nkubelet:131072:65536\n")
    owned = subordinate_ids(files)
    assert owned == SubordinateIds(131072, 65536, str(files[0]))
    spaces = make(tmp_path, owned=owned)
    assert spaces.pod_range(alone(tmp_path, "a")).first_host_id == 131072  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("uids", "gids", "why"),
    [
        ("kubelet:131072:65536", "", "must have the same ids of the user kubelet"),
        ("kubelet:131072:65536", "kubelet:1:2", "must have the same ids of the user kubelet"),
        (
            "kubelet:131072:65536\nkubelet:262144:65536",
            "",
            "must have one line of the user kubelet",
        ),
        (
            "kubelet:a:65536",
            "kubelet:a:65536",
            "must be kubelet:FIRST:COUNT, not 'kubelet:a:65536'",
        ),
        ("kubelet:-1:65536", "kubelet:-1:65536", "must be kubelet:FIRST:COUNT"),
        ("kubelet:131072", "kubelet:131072", "must be kubelet:FIRST:COUNT"),
        ("kubelet:131072:65536:1", "kubelet:131072:65536:1", "must be kubelet:FIRST:COUNT"),
    ],
)
def test_subordinate_ids_that_nobody_understands_are_refused(
    tmp_path: Path, uids: str, gids: str, why: str
) -> None:
    files = tmp_path / "subuid", tmp_path / "subgid"
    for file, text in zip(files, (uids, gids), strict=True):
        file.write_text(f"{text}\n")
    with pytest.raises(UnusableIds, match=why) as caught:
        subordinate_ids(files)
    assert str(files[0]) in caught.value.source


def test_subordinate_ids_that_cannot_be_read_are_not_those_of_nobody(tmp_path: Path) -> None:
    (tmp_path / "subuid").mkdir()
    with pytest.raises(UnusableIds, match="can't be read: Is a directory"):
        subordinate_ids((tmp_path / "subuid", tmp_path / "subgid"))


@pytest.mark.parametrize(
    ("first", "count", "ids", "why"),
    [
        (2**32 - 2 * SIZE, SIZE, SIZE, ""),
        (2**32 - SIZE, SIZE, SIZE, "the last id that a kernel maps is 4294967294"),
        (SIZE, 2**32 - SIZE, SIZE, "the last id that a kernel maps is 4294967294"),
        (2**32, SIZE, SIZE, "the last id that a kernel maps is 4294967294"),
        (0, SIZE, SIZE, "the first id must be a multiple of 65536 and at least 65536"),
        (SIZE, 2 * SIZE, 2 * SIZE, "the first id must be a multiple of 65536 and at least 131072"),
        (100_000, SIZE, SIZE, "the first id must be a multiple of 65536 and at least 65536"),
        (SIZE, 0, SIZE, "the number of ids must be a multiple of 65536, what each pod gets"),
        (SIZE, SIZE - 1, SIZE, "the number of ids must be a multiple of 65536"),
        (SIZE, SIZE + 1, SIZE, "the number of ids must be a multiple of 65536"),
        (SIZE, SIZE, 65_537, "a pod can't have 65537 ids, only multiples of 65536"),
        (SIZE, SIZE, 0, "a pod can't have 0 ids"),
    ],
)
def test_ids_that_no_kernel_maps_are_refused_by_name(
    tmp_path: Path, first: int, count: int, ids: int, why: str
) -> None:
    owned = SubordinateIds(first, count, "/etc/subuid")
    if not why:
        range_ = make(tmp_path, owned=owned).pod_range(alone(tmp_path, "a"))
        assert range_ == UserNamespaceRange(first, count)
        return
    with pytest.raises(UnusableIds, match=why) as caught:
        make(tmp_path, owned=owned, ids_per_pod=ids)
    assert caught.value.source == "/etc/subuid"


@pytest.mark.parametrize(("max_pods", "ids"), [(65_535, SIZE), (1, 2**31), (110, 2**26)])
def test_more_pods_than_the_kernel_has_ids_for_are_refused(
    tmp_path: Path, max_pods: int, ids: int
) -> None:
    with pytest.raises(UnusableIds) as caught:
        make(tmp_path, max_pods=max_pods, ids_per_pod=ids)
    assert caught.value.source == f"userNamespaces.idsPerPod {ids} with maxPods {max_pods}"
    make(tmp_path, max_pods=65_534)


@pytest.mark.parametrize("by_runtime", [False, True])
def test_a_record_that_no_kernel_maps_is_replaced(tmp_path: Path, by_runtime: bool) -> None:
    first = 2**32 - SIZE
    mapping = [{"hostId": first, "containerId": 0, "length": SIZE}]
    old, new = alone(tmp_path, "a"), alone(tmp_path, "b")
    record = tmp_path / "a" / "userns"
    record.write_text(json.dumps({"uidMappings": mapping, "gidMappings": mapping}))
    spaces = make(tmp_path)
    assert spaces.unknown == {"a"}
    spaces.settle("a", UserNamespaceRange(first, SIZE) if by_runtime else None)
    assert not record.exists()
    assert spaces.pod_range(new) == UserNamespaceRange(SIZE, SIZE)
    assert spaces.pod_range(old) == UserNamespaceRange(2 * SIZE, SIZE)
