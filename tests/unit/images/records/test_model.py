"""Records in the kubelet's format, and how grants are added."""

from __future__ import annotations

import json

import pytest

from kubeletpy.images.credentials import AccountSource, Credential, SecretSource
from kubeletpy.images.records.model import (
    EVERYBODY,
    NOBODY,
    Grants,
    MalformedRecord,
    PulledRecord,
    file_name,
    full_name,
    grants_of,
    merged,
    read_intent,
    read_record,
    with_grants,
    write_intent,
    write_record,
)

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
