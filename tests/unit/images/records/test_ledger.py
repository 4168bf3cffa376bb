"""Pull records over their life: pulls, restarts, kills, full disks, garbage collection."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kubeletpy.images.credentials import Credential, SecretSource
from kubeletpy.images.records.ledger import IntentNotRecorded, PullRecords
from kubeletpy.images.records.model import PulledRecord, Verification, VerificationPolicy, file_name
from kubeletpy.images.records.store import RecordFiles, RecordStore
from kubeletpy.images.uses import PullRateExceeded
from kubeletpy.metrics.resources import PullRecordMetrics
from kubeletpy.remote.errors import CRIError, NotFound, Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.virtual_time import LoopClock, on_virtual_time

pytestmark = pytest.mark.virtual_time

IMAGE, REF = "reg.io/a:1", "sha256:a"
SOURCE = SecretSource("uid-1", "ns", "one")
LOGIN = Credential("me", "hunter2", source=SOURCE)


@dataclass
class Counts(PullRecordMetrics):
    """Records calls of the metrics."""

    results: list[str] = field(default_factory=list)
    disk: tuple[int, int] = (0, 0)
    memory: tuple[int, int] = (0, 0)

    def access_checked(self, result: str) -> None:
        self.results.append(result)

    def records_on_disk(self, intents: int, records: int) -> None:
        self.disk = intents, records

    def records_in_memory(self, intents: int, records: int) -> None:
        self.memory = intents, records


@dataclass
class Node:
    """A node's directories, its images, and successive agents."""

    root: Path
    images: list[cri.Image] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    policy: str = "NeverVerifyPreloadedImages"
    requested: int = 0
    max_records: int = 100
    max_intents: int = 100
    list_error: CRIError | None = None

    def agent(self) -> PullRecords:
        store = RecordStore(
            RecordFiles(self.root),
            LoopClock(),
            self.counts,
            max_intents=self.max_intents,
            max_records=self.max_records,
        )
        verification = Verification(VerificationPolicy(self.policy))
        return PullRecords(store, verification, self.list_images, self.counts)

    async def list_images(self) -> Sequence[cri.Image]:
        if self.list_error is not None:
            raise self.list_error
        return self.images

    async def may_use(
        self, agent: PullRecords, *credentials: Credential, image: str = IMAGE
    ) -> bool:
        async def find_credentials() -> Sequence[Credential]:
            self.requested += 1
            return credentials

        return await agent.may_use(image, REF, find_credentials)

    def files(self, folder: str) -> list[str]:
        return sorted(path.name for path in (self.root / "image_manager" / folder).iterdir())

    def document(self, ref: str = REF) -> dict[str, object]:
        path = self.root / "image_manager" / "pulled" / file_name(ref)
        document: dict[str, object] = json.loads(path.read_text())
        return document


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def pull(
    agent: PullRecords, credential: Credential | None = LOGIN, image: str = IMAGE
) -> None:
    async with agent.pulling(image) as progress:
        await progress.succeeded(REF, credential)


async def test_preloaded_images_are_everybodys(node: Node) -> None:
    assert await node.may_use(node.agent())
    assert node.counts.results == ["credentialPolicyAllowed"]
    assert node.requested == 0
    node.policy = "AlwaysVerify"
    assert not await node.may_use(node.agent(), LOGIN)
    assert node.counts.results[-1] == "mustAuthenticate"


async def test_pulled_images_belong_to_the_secret_that_pulled_them(node: Node) -> None:
    agent = node.agent()
    await pull(agent)
    for each in (agent, node.agent()):
        assert not await node.may_use(each)
        assert await node.may_use(each, LOGIN)
        assert not await node.may_use(each, Credential("me", "other"))
        assert not await node.may_use(each, LOGIN, image="other.io/a:1"), "another name"
    assert node.counts.results[:2] == ["mustAuthenticate", "credentialRecordFound"]
    assert node.files("pulling") == []
    assert node.files("pulled") == [file_name(REF)]
    assert "hunter2" not in json.dumps(node.document())
    paths = [*node.root.rglob("*")]
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_dir()} == {"0o700"}
    assert {oct(path.stat().st_mode & 0o777) for path in paths if path.is_file()} == {"0o600"}
    assert node.counts.disk == (0, 1)


async def test_a_pull_without_pod_credentials_grants_everyone_permanently(node: Node) -> None:
    agent = node.agent()
    await pull(agent, None)
    assert await node.may_use(agent)
    await pull(agent, LOGIN)
    assert await node.may_use(agent)
    assert node.requested == 0, "no credentials are looked up for that"


async def test_learned_credentials_are_kept(node: Node) -> None:
    agent = node.agent()
    await pull(agent)
    other = Credential("me", "hunter2", source=SecretSource("uid-2", "other", "copy"))
    rotated = Credential("me", "newer", source=other.source)
    assert await node.may_use(agent, other)
    assert await node.may_use(node.agent(), rotated), "known by its coordinates now"
    assert "uid-2" in json.dumps(node.document())


@pytest.mark.parametrize("arrived", [True, False])
@pytest.mark.parametrize("name", ["busybox", "busybox:latest", "docker.io/library/busybox:latest"])
async def test_killed_between_pull_and_record(node: Node, arrived: bool, name: str) -> None:
    agent = node.agent()
    killed = agent.pulling(name)
    await killed.__aenter__()  # and never exits
    assert node.files("pulling") == [file_name(name)]
    if arrived:
        node.images = [cri.Image(id=REF, repo_tags=["docker.io/library/busybox:latest"])]
    again = node.agent()
    assert not await node.may_use(again, LOGIN, image="busybox")
    assert node.files("pulling") == ([] if arrived else [file_name(name)])
    assert node.files("pulled") == ([file_name(REF)] if arrived else [])
    await pull(again, LOGIN, "busybox")
    assert await node.may_use(again, LOGIN, image="busybox")
    assert node.files("pulling") == []


async def test_a_full_disk_does_not_keep_the_agent_from_starting(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    await node.agent().pulling(IMAGE).__aenter__()  # killed
    node.images = [cri.Image(id=REF, repo_tags=[IMAGE])]
    with monkeypatch.context() as disk:
        disk.setattr(RecordFiles, "write_record", full)
        agent = node.agent()
        await agent.open()
        assert not await node.may_use(agent, LOGIN), "the puller is unknown"
    await agent.prune([REF], 0.0)
    assert (node.files("pulling"), node.files("pulled")) == ([], [file_name(REF)])


async def test_a_runtime_that_cannot_list_keeps_intents(node: Node) -> None:
    await node.agent().pulling(IMAGE).__aenter__()
    node.images = [cri.Image(id=REF, repo_tags=[IMAGE])]
    node.list_error = Unavailable("ListImages", "gone")
    again = node.agent()
    assert not await node.may_use(again)
    assert node.files("pulling") == [file_name(IMAGE)]
    node.list_error = None
    await again.prune({REF}, LoopClock().now())
    assert node.files("pulling") == []
    assert not await node.may_use(again)


@pytest.mark.parametrize(
    ("failure", "changed_nothing", "stays"),
    [
        (NotFound("PullImage", "no such image"), True, False),
        (NotFound("PullImage", "no such blob"), False, True),
        (CRIError("PullImage", "denied"), True, False),
        (CRIError("PullImage", "not written"), False, True),
        (PullRateExceeded("pull QPS exceeded"), False, False),
        (Unavailable("PullImage", "socket closed"), True, True),
        (asyncio.CancelledError(), False, True),
        (RuntimeError("a bug"), False, True),
    ],
)
async def test_intents_of_failed_pulls(
    node: Node, failure: BaseException, changed_nothing: bool, stays: bool
) -> None:
    """If the image may have arrived although the answer was lost, it counts as pulled."""
    agent = node.agent()
    with pytest.raises(type(failure)):
        async with agent.pulling(IMAGE) as progress:
            progress.changed_nothing = changed_nothing
            raise failure
    assert node.files("pulling") == ([file_name(IMAGE)] if stays else [])
    assert await node.may_use(agent, LOGIN) is not stays
    with pytest.raises(NotFound):
        async with agent.pulling(IMAGE) as progress:
            progress.changed_nothing = True
            raise NotFound("PullImage")
    assert await node.may_use(agent, LOGIN) is not stays, "another's failure proves nothing"
    await pull(agent)
    assert node.files("pulling") == []


async def test_simultaneous_pulls_of_one_image(node: Node) -> None:
    agent = node.agent()
    async with agent.pulling(IMAGE) as first:
        with pytest.raises(NotFound):
            async with agent.pulling(IMAGE):
                assert node.counts.disk == (1, 0)
                raise NotFound("PullImage")
        assert node.files("pulling") == [file_name(IMAGE)], "the other pull still goes on"
        assert not await node.may_use(agent)
        await first.succeeded(REF, LOGIN)
    assert node.files("pulling") == []


@pytest.mark.parametrize("steps", range(8))
async def test_a_pull_is_recorded_even_if_its_pod_is_removed(node: Node, steps: int) -> None:
    agent = node.agent()
    arrived = asyncio.Event()

    async def pulled() -> None:
        async with agent.pulling(IMAGE) as progress:
            arrived.set()
            await progress.succeeded(REF, LOGIN)

    task = asyncio.create_task(pulled())
    await arrived.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await agent.close()
    assert not await node.may_use(agent)
    assert await node.may_use(agent, LOGIN)
    assert node.files("pulling") == []


async def test_an_intent_that_a_canceled_pull_writes_late_ends_with_the_next_pull(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()
    removed = _after_each(monkeypatch, "remove_intent")
    write = RecordFiles.write_intent

    def late(files: RecordFiles, image: str) -> None:
        begun.set()
        removed.wait(LATE_S)
        write(files, image)
        ended.set()

    monkeypatch.setattr(RecordFiles, "write_intent", late)
    agent = node.agent()
    pulling = asyncio.create_task(pull(agent))
    await asyncio.to_thread(begun.wait)
    pulling.cancel()
    await pull(agent)
    await asyncio.wait([pulling])
    await asyncio.to_thread(ended.wait)
    await agent.close()
    assert node.files("pulling") == []


def test_a_record_read_late_does_not_replace_a_newer_one(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Credential("you", "swordfish")
    begun = threading.Event()
    read = RecordFiles.read_record

    def late(files: RecordFiles, image_ref: str) -> PulledRecord | None:
        found = read(files, image_ref)
        if not begun.is_set():
            begun.set()
            written.wait(LATE_S)
        return found

    @on_virtual_time
    async def scenario() -> None:
        node.max_records = 1
        agent = node.agent()
        await pull(agent)
        async with agent.pulling("reg.io/b:1") as progress:
            await progress.succeeded("sha256:b", None)
        monkeypatch.setattr(RecordFiles, "read_record", late)
        written.clear()
        reading = asyncio.create_task(node.may_use(agent, LOGIN))
        await asyncio.to_thread(begun.wait)
        await pull(agent, other)
        assert await reading
        monkeypatch.undo()
        assert await node.may_use(agent, other)

    written = _after_each(monkeypatch, "write_record")
    scenario()


LATE_S = 0.2
"""How long a thread waits at most for another change to overtake it."""


def _after_each(monkeypatch: pytest.MonkeyPatch, name: str) -> threading.Event:
    """An event that is set once a method of RecordFiles has returned."""
    method, done = getattr(RecordFiles, name), threading.Event()

    def noted(*arguments: object) -> None:
        method(*arguments)
        done.set()

    monkeypatch.setattr(RecordFiles, name, noted)
    return done


async def test_unreadable_records_mean_pull(node: Node) -> None:
    await pull(node.agent(), None)
    node.policy = "NeverVerify"
    path = node.root / "image_manager" / "pulled" / file_name(REF)
    path.write_text("{")
    agent = node.agent()
    assert not await node.may_use(agent)
    assert node.counts.results == ["error"]
    await pull(agent)
    assert await node.may_use(agent)
    assert node.document()["imageRef"] == REF
    path.write_text("{")
    agent = node.agent()
    await agent.prune(set(), LoopClock().now())
    assert node.files("pulled") == []


async def test_nothing_is_pulled_without_a_recorded_intent(node: Node) -> None:
    agent = node.agent()
    await agent.open()
    folder = node.root / "image_manager" / "pulling"
    folder.rmdir()
    with pytest.raises(IntentNotRecorded, match="failed to record image pull intent: "):
        await pull(agent)
    folder.mkdir()
    async with agent.pulling(IMAGE) as progress:
        (node.root / "image_manager" / "pulled").rmdir()
        await progress.succeeded(REF, None)
    assert node.files("pulling") == [file_name(IMAGE)], "it stays tracked without a record"
    assert not await node.may_use(agent)


async def test_directories_that_cannot_be_made(node: Node) -> None:
    (node.root / "image_manager").write_text("a file")
    agent = node.agent()
    assert not await node.may_use(agent)
    with pytest.raises(IntentNotRecorded):
        await pull(agent)
    await agent.prune(set(), 0)


async def test_records_are_removed_with_their_images(node: Node) -> None:
    agent = node.agent()
    await pull(agent)
    began = LoopClock().now() + 0.5
    await agent.prune(set(), began)
    assert node.files("pulled") == [file_name(REF)], "younger than the list of images"
    await asyncio.sleep(1)
    await agent.prune({REF}, LoopClock().now())
    assert node.files("pulled") == [file_name(REF)]
    await agent.prune({"sha256:other"}, LoopClock().now())
    assert node.files("pulled") == []
    assert node.counts.disk == (0, 0)
    assert await node.may_use(agent)


async def test_memory_is_bounded_and_the_disk_has_the_rest(node: Node) -> None:
    node.max_records = 2
    agent = node.agent()
    for number in range(5):
        async with agent.pulling(f"reg.io/{number}:1") as progress:
            await progress.succeeded(f"sha256:{number}", None)
    assert node.counts.disk == (0, 5)
    assert node.counts.memory == (0, 100)

    async def nobodys() -> Sequence[Credential]:
        return ()

    for each in (agent, node.agent()):
        for number in range(5):
            assert await each.may_use(f"reg.io/{number}:1", f"sha256:{number}", nobodys)
    assert node.counts.results == ["credentialRecordFound"] * 10
    await asyncio.sleep(1)
    await agent.prune({"sha256:3"}, LoopClock().now())
    await agent.prune({"sha256:3"}, LoopClock().now())
    assert file_name("sha256:3") in node.files("pulled")
    assert len(node.files("pulled")) <= 3


async def test_uncertain_pulls_are_bounded(node: Node) -> None:
    node.max_intents = 10
    agent = node.agent()
    for number in range(60):
        with pytest.raises(Unavailable):
            async with agent.pulling(f"reg.io/{number}:1"):
                raise Unavailable("PullImage")
    assert len(node.files("pulling")) <= 20
    assert file_name("reg.io/59:1") in node.files("pulling")


async def test_foreign_and_half_written_files_are_ignored(node: Node) -> None:
    await pull(node.agent())
    pulled = node.root / "image_manager" / "pulled"
    unfinished = {f"{file_name('x')}.tmp", f".{file_name('x')}.0a1b2c3d"}
    for name in unfinished:
        (pulled / name).write_text("half")
    (pulled / file_name("renamed")).write_bytes((pulled / file_name(REF)).read_bytes())
    (pulled / "README").write_text("not ours")
    (pulled / file_name("link")).symlink_to("/etc/passwd")
    agent = node.agent()
    assert await node.may_use(agent, LOGIN)
    assert not unfinished & set(node.files("pulled"))
    assert "README" in node.files("pulled")
