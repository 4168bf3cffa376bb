"""Records and intents in memory; pods can cause any number of intents by their image names."""

from __future__ import annotations

from kubeletpy.images.records.model import (
    Intent,
    Intents,
    PulledRecord,
    RecordIndex,
    file_name,
    ids_by_name,
)
from kubeletpy.remote.generated import api_pb2 as cri


def record(name: str, at: float = 0.0) -> PulledRecord:
    return PulledRecord(name, at)


def test_the_least_recently_used_are_dropped() -> None:
    index = RecordIndex(2)
    assert not index.complete
    index.fill([record("a"), record("b")], ())
    assert (len(index), index.complete) == (2, True)
    assert index.get("a") == record("a")
    index.put(record("c"))
    assert list(index) == [record("a"), record("c")]
    assert (index.get("b"), index.complete) == (None, False)
    index.put(record("a", 1.0))
    index.put(record("d"))
    assert list(index) == [record("a", 1.0), record("d")]
    index.remove("a")
    index.remove("gone")
    assert list(index) == [record("d")]
    index.fill([], ())
    assert (list(index), index.complete) == ([], True)


def test_an_unreadable_record_is_remembered_until_replaced() -> None:
    index = RecordIndex(2)
    assert not index.unreadable
    index.fill([], [file_name("a"), file_name("b")])
    index.put(record("a"))
    assert index.unreadable == {file_name("b")}


def test_an_intent_ends_when_its_pulls_have_a_known_outcome() -> None:
    assert Intent().over
    assert not Intent(pulls=1).over
    assert not Intent(uncertain=True).over


def test_only_a_pull_that_ended_leaves_doubt() -> None:
    intents = Intents()
    intents.get_or_create("over")
    intents.get_or_create("pulled now").pulls = 1
    doubt = intents.get_or_create("doubt")
    doubt.uncertain = True
    again = intents.get_or_create("doubt, and pulled again")
    again.uncertain, again.pulls = True, 1
    assert list(intents.uncertain()) == [("doubt", doubt)]


def test_an_intent_is_not_dropped_for_an_older_one() -> None:
    intents = Intents()
    old = intents.get_or_create("a")
    assert intents.get_or_create("a") is old
    old.names |= {"x", "y"}
    assert ("a" in intents, "b" in intents, len(intents)) == (True, False, 2)
    intents.drop("a", old)
    new = intents.get_or_create("a")
    intents.drop("a", old)
    assert intents.get_or_create("a") is new
    assert new is not old


def test_ids_of_all_names_on_the_node() -> None:
    digest = "sha256:" + "0" * 64
    images = [
        cri.Image(id="1", repo_tags=["busybox"], repo_digests=[f"busybox@{digest}"]),
        cri.Image(repo_tags=["alpine:3"]),
    ]
    repository = "docker.io/library/busybox"
    assert ids_by_name(images) == {f"{repository}:latest": "1", f"{repository}@{digest}": "1"}
