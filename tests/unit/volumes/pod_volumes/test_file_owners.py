"""Owners of files in volumes: named for the file or the volume, or the user of the pod."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.files.atomic import write_payload
from kubeletpy.volumes.files.paths import (
    CertificateInput,
    FileContent,
    PayloadError,
    TokenInput,
    TrustInput,
)
from kubeletpy.volumes.pod_volumes.payload import DownwardInput, FileOwner, build_payload
from kubeletpy.volumes.pod_volumes.planned import PlannedVolume

ABOUT: Any = {"name": "p", "namespace": "ns", "uid": "u"}
POD = Pod({"metadata": ABOUT, "spec": {"containers": [{"name": "c"}]}})
FIELDS = DownwardInput(POD, POD.spec, {}, {}, None)
CFG = {"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}
SECRET = {"metadata": {"name": "s"}, "data": {"a": "MQ==", "b": "Mg=="}}
A, B = {"key": "a", "path": "a"}, {"key": "b", "path": "b"}
NAME: dict[str, Any] = {"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}
TOKEN, TRUST, CERTIFICATE = TokenInput("t"), TrustInput(b"x"), CertificateInput(b"k", b"c")


def owners(kind: str, source: dict[str, Any], *inputs: Any, **owner: Any) -> dict[str, int | None]:
    return {path: file.owner for path, file in built(kind, source, *inputs, **owner).items()}


def built(
    kind: str, source: dict[str, Any], *inputs: Any, chosen: bool = True, **owner: Any
) -> dict[str, FileContent]:
    return build_payload(
        PlannedVolume("v", kind, source), inputs, "ns", FileOwner(**owner, chosen=chosen)
    )


KEYS: list[tuple[dict[str, Any], dict[str, int | None]]] = [
    ({}, {"a": None, "b": None}),
    ({"defaultUser": 7}, {"a": 7, "b": 7}),
    ({"defaultUser": 0}, {"a": 0, "b": 0}),
    ({"items": [{**A, "user": 5}, B]}, {"a": 5, "b": None}),
    ({"items": [{**A, "user": 5}, B], "defaultUser": 7}, {"a": 5, "b": 7}),
    ({"items": [{**A, "user": 0}, B], "defaultUser": 7}, {"a": 0, "b": 7}),
    ({"items": [{**A, "user": 2**31 - 1}]}, {"a": 2**31 - 1}),
]


@pytest.mark.parametrize(("kind", "found"), [("configMap", CFG), ("secret", SECRET)])
@pytest.mark.parametrize(("source", "expected"), KEYS)
def test_owners_of_keys(
    kind: str, found: Any, source: dict[str, Any], expected: dict[str, int | None]
) -> None:
    assert owners(kind, source, found) == expected
    assert owners(kind, source, found, user=9) == expected, "the pod's user has none of them"
    off = owners(kind, source, found, chosen=False)
    assert set(off.values()) == {None}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"items": [NAME]}, None),
        ({"items": [NAME], "defaultUser": 7}, 7),
        ({"items": [{**NAME, "user": 0}], "defaultUser": 7}, 0),
    ],
)
def test_owners_of_downward_api_files(source: dict[str, Any], expected: int | None) -> None:
    assert owners("downwardAPI", source, FIELDS) == {"a": expected}


SINGLE: list[tuple[str, dict[str, Any], Any]] = [
    ("serviceAccountToken", {"path": "a"}, TOKEN),
    ("clusterTrustBundle", {"path": "a"}, TRUST),
    ("podCertificate", {"keyPath": "a"}, CERTIFICATE),
    ("podCertificate", {"credentialBundlePath": "a"}, CERTIFICATE),
    ("podCertificate", {"certificateChainPath": "a"}, CERTIFICATE),
]


@pytest.mark.parametrize(("kind", "source", "found"), SINGLE)
@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ((None, None, None, None), (None, 0o644)),
        ((None, None, 9, None), (9, 0o600)),
        ((7, None, 9, None), (7, 0o600)),
        ((7, 5, 9, None), (5, 0o600)),
        ((7, 0, 9, None), (0, 0o600)),
        ((0, None, None, None), (0, 0o600)),
        ((None, 5, None, None), (5, 0o600)),
        ((None, None, None, 42), (None, 0o600)),
    ],
)
def test_owners_of_tokens_bundles_and_certificates(
    kind: str,
    source: dict[str, Any],
    found: Any,
    named: tuple[int | None, ...],
    expected: tuple[int | None, int],
) -> None:
    of_volume, of_file, of_pod, group = named
    part = {**source, **({} if of_file is None else {"user": of_file})}
    whole = {"sources": [{kind: part}], **({} if of_volume is None else {"defaultUser": of_volume})}
    file = built("projected", whole, found, user=of_pod, group=group)["a"]
    assert (file.owner, file.mode) == expected
    off = built("projected", whole, found, user=of_pod, group=group, chosen=False)["a"]
    owned = of_pod is not None or group is not None
    assert (off.owner, off.mode) == (of_pod, 0o600 if owned else 0o644)


def test_the_parts_of_a_projected_volume_have_its_default() -> None:
    sources = [
        {"configMap": {"name": "c", "defaultUser": 1, "user": 2}},  # no such fields there
        {"secret": {"name": "s", "items": [{**A, "path": "s", "user": 5}]}},
        {"downwardAPI": {"items": [{**NAME, "path": "d"}]}},
    ]
    whole = {"sources": sources, "defaultUser": 7}
    found = owners("projected", whole, CFG, SECRET, FIELDS)
    assert found == {"a": 7, "b": 7, "s": 5, "d": 7}


@pytest.mark.parametrize("user", [-1, 2**31, 2**63 - 1, 10**30])
def test_a_number_that_no_user_has_is_refused(user: int) -> None:
    for source in ({"defaultUser": user}, {"items": [{**A, "user": user}]}):
        with pytest.raises(PayloadError, match=f"user {user} is not between 0 and 2147483647"):
            owners("configMap", source, CFG)
    assert owners("configMap", {"defaultUser": user}, CFG, chosen=False) == {"a": None, "b": None}


def test_files_get_their_owners_and_new_ones_with_a_change(tmp_path: Path) -> None:
    source = {"defaultUser": 7, "items": [{**A, "user": 5, "mode": 0o400}, B]}
    write_payload(str(tmp_path), built("configMap", source, CFG), 0.0)
    reported = {name: os.stat(tmp_path / name) for name in "ab"}  # noqa: PTH116
    assert {name: (s.st_uid, s.st_mode & 0o777) for name, s in reported.items()} == {
        "a": (5, 0o400),
        "b": (7, 0o644),
    }
    again = built("configMap", {"defaultUser": 8}, CFG)
    assert not write_payload(str(tmp_path), again, 1.0), "nothing in them has changed"
    assert (tmp_path / "b").stat().st_uid == 7
    write_payload(str(tmp_path), built("configMap", {"defaultUser": 8}, {"data": {"b": "3"}}), 2.0)
    assert (tmp_path / "b").stat().st_uid == 8
