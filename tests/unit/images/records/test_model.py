"""Records in the kubelet's format, and how grants are added."""

from __future__ import annotations

import json

import pytest

from kubeletpy.images.credentials import AccountSource, Credential, SecretSource
from kubeletpy.images.records.model import (
    EVERYBODY,
    NOBODY,
    Grants,
    Intent,
    Intents,
    MalformedRecord,
    PulledRecord,
    RecordIndex,
    file_name,
    full_name,
    grants_of,
    ids_by_name,
    merged,
    read_intent,
    read_record,
    with_grants,
    write_intent,
    write_record,
)
from kubeletpy.remote.generated import api_pb2 as cri

ONE = SecretSource("uid-1", "ns", "one")
TWO = SecretSource("uid-2", "ns", "two")
ROBOT = AccountSource("uid-r", "ns", "robot")


def test_documents() -> None:
    record = PulledRecord(
        "sha256:abc",
        1_700_000_000.5,
        {
            "reg.io/b": Grants(secrets={TWO: "h2", ONE: "h1"}, accounts=frozenset({ROBOT})),
            "reg.io/a": EVERYBODY,
        },
    )
    assert json.loads(write_record(record)) == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "ImagePulledRecord",
        "lastUpdatedTime": "2023-11-14T22:13:20Z",
        "imageRef": "sha256:abc",
        "credentialMapping": {
            "reg.io/a": {"nodePodsAccessible": True},
            "reg.io/b": {
                "kubernetesSecrets": [
                    {"uid": "uid-1", "namespace": "ns", "name": "one", "credentialHash": "h1"},
                    {"uid": "uid-2", "namespace": "ns", "name": "two", "credentialHash": "h2"},
                ],
                "kubernetesServiceAccounts": [{"uid": "uid-r", "namespace": "ns", "name": "robot"}],
            },
        },
    }
    assert read_record(write_record(record)).grants == record.grants
    assert json.loads(write_intent("busybox:1")) == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "ImagePullIntent",
        "image": "busybox:1",
    }
    assert read_intent(write_intent("busybox:1")) == "busybox:1"
    older = write_record(record).replace(b"v1beta1", b"v1alpha1")
    assert read_record(older).image_ref == "sha256:abc"


@pytest.mark.parametrize(
    ("grants", "written"),
    [
        (
            Grants(secrets={ONE: "h1"}),
            {
                "kubernetesSecrets": [
                    {"uid": "uid-1", "namespace": "ns", "name": "one", "credentialHash": "h1"}
                ]
            },
        ),
        (
            Grants(accounts=frozenset({ROBOT})),
            {"kubernetesServiceAccounts": [{"uid": "uid-r", "namespace": "ns", "name": "robot"}]},
        ),
        (NOBODY, {}),
    ],
)
def test_empty_fields_are_not_written(grants: Grants, written: dict[str, object]) -> None:
    empty = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "ImagePulledRecord",
        "lastUpdatedTime": "1970-01-01T00:00:00Z",
        "imageRef": "sha256:a",
    }
    assert json.loads(write_record(PulledRecord("sha256:a", 0))) == empty
    record = PulledRecord("sha256:a", 0, {"reg.io/a": grants})
    assert json.loads(write_record(record)) == {**empty, "credentialMapping": {"reg.io/a": written}}


def test_file_names() -> None:
    assert file_name("") == (
        "sha256-e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Pod"},
        {"apiVersion": "v1"},
        {"imageRef": 5},
        {"imageRef": ""},
        {"lastUpdatedTime": "yesterday"},
        {"credentialMapping": [5]},
        {"credentialMapping": {"a": 5}},
        {"credentialMapping": {"a": {"kubernetesSecrets": {"a": 5}}}},
        {"credentialMapping": {"a": {"kubernetesSecrets": 5}}},
        {"credentialMapping": {"a": {"kubernetesSecrets": [5]}}},
        {"credentialMapping": {"a": {"kubernetesSecrets": [{"namespace": "n", "name": "n"}]}}},
        {"credentialMapping": {"a": {"kubernetesSecrets": [{"uid": "u", "name": "n"}]}}},
        {"credentialMapping": {"a": {"kubernetesSecrets": [{"uid": "u", "namespace": "n"}]}}},
        {"credentialMapping": {"a": {"kubernetesServiceAccounts": [{"uid": 5}]}}},
    ],
)
def test_malformed_records(change: dict[str, object]) -> None:
    document = json.loads(write_record(PulledRecord("sha256:a", 0)))
    with pytest.raises(MalformedRecord):
        read_record(json.dumps({**document, **change}).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000, b"{}"])
def test_malformed_documents(data: bytes) -> None:
    for read in (read_record, read_intent):
        with pytest.raises(MalformedRecord):
            read(data)


def test_grants_of_a_pull() -> None:
    own = Credential("u", "p", source=ONE)
    assert grants_of(None) == grants_of(Credential("u", "p")) == EVERYBODY
    assert grants_of(own) == Grants(secrets={ONE: own.fingerprint})
    assert grants_of(Credential("u", "p", source=ROBOT)) == Grants(accounts=frozenset({ROBOT}))


def test_growth() -> None:
    one, two = Grants(secrets={ONE: "h1"}), Grants(secrets={TWO: "h2"})
    assert merged(one, NOBODY) is one
    assert merged(one, two) == Grants(secrets={ONE: "h1", TWO: "h2"})
    assert merged(one, Grants(secrets={ONE: "new"})) == Grants(secrets={ONE: "new"})
    assert merged(one, EVERYBODY) == EVERYBODY
    assert merged(EVERYBODY, one) is EVERYBODY, "what everybody may use stays so"
    record = with_grants(None, "sha256:a", "reg.io/a", one, 10)
    assert record == PulledRecord("sha256:a", 10, {"reg.io/a": one})
    assert with_grants(record, "sha256:a", "reg.io/a", one, 20) is record
    assert with_grants(record, "sha256:a", "", NOBODY, 20) is record
    other = with_grants(record, "sha256:a", "reg.io/b", EVERYBODY, 20)
    assert other == PulledRecord("sha256:a", 20, {"reg.io/a": one, "reg.io/b": EVERYBODY})
    assert with_grants(None, "sha256:a", "", NOBODY, 10).grants == {}


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("docker.io/library/busybox:latest", "docker.io/library/busybox:latest"),
        ("reg.io/a:1", "reg.io/a:1"),
        ("reg.io/a:1@sha256:" + "a" * 64, "reg.io/a@sha256:" + "a" * 64),
        ("Not:An:Image", "Not:An:Image"),
    ],
)
def test_full_names_of_aliases(image: str, name: str) -> None:
    assert full_name(image) == name


# Records and intents in memory; pods can cause any number of intents by their image names.


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


# Intents whose pulls have ended without an image.


@pytest.mark.parametrize(
    ("limit", "arrived", "excess"),
    [
        (0, "", "abd"),
        (1, "", "ab"),
        (3, "", ""),
        (4, "", ""),
        (1, "a", "b"),
        (0, "abd", ""),
        (1, "d", "a"),
        (2, "c", "a"),
    ],
)
def test_the_oldest_beyond_a_limit(limit: int, arrived: str, excess: str) -> None:
    intents = Intents()
    for name in "abcd":
        intents.get_or_create(name).uncertain = True
    intents.get_or_create("c").pulls = 1
    assert "".join(name for name, _ in intents.excess(limit, arrived)) == excess
