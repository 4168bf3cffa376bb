"""Broken records of user namespaces are repaired from the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.remote.errors import NotFound, Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.act.user_namespaces import (
    UserNamespaceError,
    UserNamespaceRanges,
    settle_unknown_ranges,
)
from kubeletpy.runtime_manager.config.settings import (
    UserNamespaceRange,
    id_mappings,
    namespace_options,
)
from kubeletpy.runtime_manager.names import POD_UID
from tests.kit.cgroups import pod

SIZE = 65536


def sandbox(
    name: str, first: int | None, *, at: int = 1, ready: bool = True
) -> cri.PodSandboxStatus:
    status = cri.PodSandboxStatus(
        id=name, created_at=at, state=cri.SANDBOX_READY if ready else cri.SANDBOX_NOTREADY
    )
    if first is not None:
        options = namespace_options(pod(), UserNamespaceRange(first, SIZE))
        status.linux.namespaces.options.CopyFrom(options)
    return status


class Runtime:
    """Has the sandboxes of one pod, "a"."""

    def __init__(self, *sandboxes: cri.PodSandboxStatus, fails: bool = False) -> None:
        self.by_id = {each.id: each for each in sandboxes}
        self.fails = fails
        self.removed: set[str] = set()

    async def list_pod_sandbox(self, chosen: cri.PodSandboxFilter) -> Sequence[cri.PodSandbox]:
        if self.fails:
            raise Unavailable("ListPodSandbox", "gone")
        assert chosen.label_selector == {POD_UID: "a"}
        return [cri.PodSandbox(id=name) for name in self.by_id]

    async def pod_sandbox_status(self, name: str) -> cri.PodSandboxStatusResponse:
        if name in self.removed:
            raise NotFound("PodSandboxStatus", "not found", target=name)
        return cri.PodSandboxStatusResponse(status=self.by_id[name])


@pytest.fixture
def spaces(tmp_path: Path) -> UserNamespaceRanges:
    for uid in "ab":
        (tmp_path / uid).mkdir()
    (tmp_path / "a" / "userns").write_text("{")
    return UserNamespaceRanges(tmp_path, supporting=lambda: {""}, max_pods=3)


def first_of(spaces: UserNamespaceRanges, uid: str) -> int:
    found = spaces.pod_range(pod(uid=uid, hostUsers=False))
    assert found is not None
    return found.first_host_id


async def test_the_range_comes_from_the_running_sandbox(spaces: UserNamespaceRanges) -> None:
    runtime: Any = Runtime(
        sandbox("dead", 3 * SIZE, at=9, ready=False), sandbox("s", SIZE), sandbox("gone", 9)
    )
    runtime.removed.add("gone")
    await settle_unknown_ranges(spaces, runtime)
    assert (first_of(spaces, "b"), first_of(spaces, "a")) == (2 * SIZE, SIZE)


async def test_a_pod_without_sandbox_has_no_range(spaces: UserNamespaceRanges) -> None:
    runtime: Any = Runtime()
    await settle_unknown_ranges(spaces, runtime)
    assert (first_of(spaces, "b"), first_of(spaces, "a")) == (SIZE, 2 * SIZE)


DIFFERENT = sandbox("s", SIZE)
DIFFERENT.linux.namespaces.options.userns_options.gids[0].host_id = 2 * SIZE
TWO = sandbox("s", SIZE)
for ids in ("uids", "gids"):
    getattr(TWO.linux.namespaces.options.userns_options, ids).extend(
        id_mappings(UserNamespaceRange(2 * SIZE))
    )
NOT_FROM_ROOT = sandbox("s", SIZE)
for ids in ("uids", "gids"):
    getattr(NOT_FROM_ROOT.linux.namespaces.options.userns_options, ids)[0].container_id = 1


@pytest.mark.parametrize(
    "runtime",
    [
        Runtime(sandbox("s", None)),
        Runtime(sandbox("s", 0)),
        Runtime(DIFFERENT),
        Runtime(TWO),
        Runtime(NOT_FROM_ROOT),
        Runtime(fails=True),
    ],
    ids=["silent", "the node's", "different", "two", "not from root", "unreachable"],
)
async def test_without_an_answer_of_the_runtime_a_range_stays_unknown(
    spaces: UserNamespaceRanges, runtime: Any
) -> None:
    await settle_unknown_ranges(spaces, runtime)
    assert spaces.unknown == {"a"}
    with pytest.raises(UserNamespaceError):
        first_of(spaces, "b")
