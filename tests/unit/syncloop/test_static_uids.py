"""Adoption of the uids of running static pods from the runtime, the API and their record."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.protocol import PODS, Call
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.remote import errors
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.syncloop.sources.file import FileSource
from kubeletpy.syncloop.sources.http import HttpSource
from kubeletpy.syncloop.sources.static_uids import StaticUids
from tests.kit.api import ScriptedApi
from tests.kit.runtime import FakeRuntime
from tests.unit.agent.takeover.preflight.test_node_pods import IMAGE, pod, run

pytestmark = pytest.mark.virtual_time

UID = "0123456789abcdef"
LATER = "2199-01-01T00:00:00Z"
EARLIER = "2001-01-01T00:00:00Z"


class Deliveries:
    """UIDs of each delivery."""

    def __init__(self) -> None:
        self.sets: list[list[str]] = []

    def deliver(self, source: str, objects: list[api.Pod]) -> None:
        self.sets.append([each["metadata"]["uid"] for each in objects])
        hashes = [each["metadata"]["annotations"]["kubernetes.io/config.hash"] for each in objects]
        assert hashes == self.sets[-1]

    def unreadable(self, source: str, uid: str, problem: str) -> None:
        raise AssertionError(problem)


class MirrorApi(ScriptedApi):
    """An API with one pod; with None it does not answer."""

    def __init__(self, reported: JSON | None) -> None:
        super().__init__()
        self.reported = reported

    async def answer(self, call: Call) -> JSON:
        assert (call.verb, call.resource, call.name) == ("get", PODS, "bare-n")
        if self.reported is None:
            await asyncio.Event().wait()
            raise AssertionError
        return self.reported


def mirror(**spec: Any) -> JSON:
    reported: JSON = json.loads(manifest(nodeName="n", **spec))
    reported["metadata"]["annotations"] = {"kubernetes.io/config.mirror": UID}
    return reported


def manifest(**spec: Any) -> str:
    made = pod("bare")
    del made["metadata"]["uid"], made["spec"]["nodeName"]
    made["spec"] |= spec
    return json.dumps(made)


class Node:
    """A directory of manifests and a runtime, read by one agent after the other."""

    def __init__(self, root: Path, kube_api: ScriptedApi | None = None) -> None:
        self.root, self.api, self.runtime = root, kube_api, FakeRuntime()
        self.file = root / "manifests" / "bare.json"
        self.file.parent.mkdir(parents=True)
        self.decisions: list[tuple[str, Decision]] = []

    def uids(self) -> StaticUids:
        return StaticUids(
            cast(RuntimeService, self.runtime),
            self.api,
            self.root / "static_pod_uids",
            lambda uid, found: self.decisions.extend((uid, each) for each in found),
        )

    async def agent(self, *manifests: str) -> list[list[str]]:
        """Deliveries of a new agent: at its start, and after each of these changes of the file."""
        deliveries = Deliveries()
        source = FileSource(
            self.file.parent, "n", deliveries.deliver, deliveries.unreadable, uids=self.uids()
        )
        task = asyncio.create_task(source.run())
        await asyncio.sleep(3)
        for each in manifests:
            self.file.write_text(each)
            await asyncio.sleep(30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return deliveries.sets

    def runs(self, seen: str = LATER) -> None:
        run(self.runtime, "bare-n", UID, source="file", hash=UID, seen=seen)


async def test_an_adopted_pod_keeps_its_uid_over_restarts_and_reboots(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.file.write_text(manifest())
    node.runs()
    assert await node.agent() == [[UID]]
    ((uid, decision),) = node.decisions
    assert (uid, decision.what) == (UID, "keep the static pod that runs")
    assert decision.why.startswith("the manifest file has not been changed since")
    # another agent, after the manifest was rewritten with the same content
    node.runtime.sandboxes.clear()
    node.runs(EARLIER)
    assert await node.agent() == [[UID]]
    # a reboot: nothing runs
    node.runtime.sandboxes.clear()
    assert await node.agent() == [[UID]]


async def test_a_change_while_the_agent_runs_is_a_new_pod(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.file.write_text(manifest())
    node.runs()
    first, changed, back = await node.agent(manifest(hostPID=True), manifest())
    assert first == back == [UID]
    assert changed != first
    assert len(node.decisions) == 1


async def test_a_manifest_that_comes_later_adopts_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.runs()
    first, later = await node.agent(manifest())
    assert first == []
    assert later != [UID]


async def test_a_changed_manifest_is_not_adopted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.file.write_text(manifest(containers=[{"name": "app", "image": f"{IMAGE}0"}]))
    node.runs()
    ((uid,),) = await node.agent()
    assert uid != UID
    ((about, decision),) = node.decisions
    assert (about, decision.what) == (uid, "replace the static pod that runs")
    assert not (tmp_path / "static_pod_uids").exists()


async def test_the_mirror_pod_shows_what_the_file_does_not(tmp_path: Path) -> None:
    reported = mirror(tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    node = Node(tmp_path / "one", MirrorApi(reported))
    node.file.write_text(manifest())
    node.runs(EARLIER)
    assert await node.agent() == [[UID]]
    unreachable = Node(tmp_path / "other", MirrorApi(None))
    unreachable.file.write_text(manifest())
    unreachable.runs(EARLIER)
    ((uid,),) = await unreachable.agent(manifest())
    assert uid != UID


async def test_pods_wait_for_a_runtime_that_does_not_answer(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.file.write_text(manifest())
    node.runs()
    node.runtime.errors["list_containers"] = errors.Unavailable("ListContainers", "gone")
    assert await node.agent() == []
    del node.runtime.errors["list_containers"]
    assert await node.agent() == [[UID]]


async def test_the_running_pods_of_a_url(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.api = MirrorApi(mirror())
    run(node.runtime, "bare-n", UID, source="http", hash=UID, seen=LATER)
    deliveries = Deliveries()
    source = HttpSource("http://x", "n", deliveries.deliver, uids=node.uids())
    await source.deliver(manifest().encode())
    assert deliveries.sets == [[UID]]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"uids": 3}', "[" * 100_000])
def test_a_damaged_record_counts_as_empty(tmp_path: Path, text: str) -> None:
    node = Node(tmp_path)
    (tmp_path / "static_pod_uids").write_text(text)
    node.uids()


async def test_a_pod_of_the_computed_uid_that_runs_wins_over_the_record(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.file.write_text(manifest())
    ((own,),) = await node.agent()
    (tmp_path / "static_pod_uids").write_text(json.dumps({"uids": {own: UID}}))
    run(node.runtime, "bare-n", own, source="file", hash=own, seen=LATER)
    assert await node.agent() == [[own]]
    node.runtime.sandboxes[f"s-{own}"].state = cri.SANDBOX_NOTREADY
    assert await node.agent() == [[own]], "the record was corrected"
