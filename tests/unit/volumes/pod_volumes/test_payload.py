"""The files of volumes: keys, items, modes, optional objects, merges and refusals."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.files.atomic import write_payload
from kubeletpy.volumes.files.paths import (
    CertificateInput,
    FileContent,
    PayloadError,
    TokenInput,
    TrustInput,
    UnsafePath,
    payload_path,
    safe_name,
    sub_path_parts,
)
from kubeletpy.volumes.pod_volumes.payload import (
    DownwardInput,
    FileOwner,
    build_payload,
    payload_size,
)
from kubeletpy.volumes.pod_volumes.planned import PlannedVolume

CFG = {"metadata": {"name": "c"}, "data": {"a": "one", "b": "two"}}
ABOUT = {"name": "p", "namespace": "ns", "uid": "u", "annotations": {"a": "\n" * 200_000}}
POD = Pod({"metadata": ABOUT, "spec": {"containers": [{"name": "c"}]}})  # type: ignore[typeddict-item]
LABELLED = Pod(
    {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "labels": {"app": "shop"},
            "annotations": {"note": "x"},
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Ki"}}}]
        },
    }
)
RAW = base64.b64encode(b"\x00\xff").decode()


def field(name: str) -> dict[str, Any]:
    return {"path": name, "fieldRef": {"fieldPath": f"metadata.{name}"}}


def resource(name: str) -> dict[str, Any]:
    return {"path": name, "resourceFieldRef": {"resource": name, "containerName": "c"}}


def build(kind: str, source: dict[str, Any], *inputs: Any, **owner: Any) -> dict[str, Any]:
    volume = PlannedVolume("v", kind, source)
    return build_payload(volume, inputs, "ns", FileOwner(**owner))


def text(payload: dict[str, FileContent]) -> dict[str, tuple[bytes, int]]:
    return {path: (content.data, content.mode) for path, content in payload.items()}


CASES: list[tuple[str, str, dict[str, Any], Any, dict[str, tuple[bytes, int]]]] = [
    ("all keys", "configMap", {"name": "c"}, CFG, {"a": (b"one", 0o644), "b": (b"two", 0o644)}),
    (
        "mode",
        "configMap",
        {"defaultMode": 0o400},
        CFG,
        {"a": (b"one", 0o400), "b": (b"two", 0o400)},
    ),
    ("binary", "configMap", {}, {"binaryData": {"r": RAW}}, {"r": (b"\x00\xff", 0o644)}),
    (
        "items",
        "configMap",
        {"items": [{"key": "a", "path": "x/y", "mode": 0o440}], "defaultMode": 0o600},
        CFG,
        {"x/y": (b"one", 0o440)},
    ),
    (
        "optional key",
        "configMap",
        {"items": [{"key": "z", "path": "z"}], "optional": True},
        CFG,
        {},
    ),
    ("optional config map", "configMap", {"name": "c", "optional": True}, None, {}),
    ("other values", "configMap", {}, {"data": {"a": 5, "b": "two"}}, {"b": (b"two", 0o644)}),
    (
        "fields of tomorrow",
        "projected",
        {"sources": [{"tomorrow": True, "configMap": {"name": "c"}}]},
        CFG,
        {"a": (b"one", 0o644), "b": (b"two", 0o644)},
    ),
    (
        "key without its chain",
        "projected",
        {"sources": [{"podCertificate": {"keyPath": "key"}}]},
        CertificateInput(b"key", b"chain"),
        {"key": (b"key", 0o644)},
    ),
    ("optional object", "secret", {"secretName": "s", "optional": True}, None, {}),
    ("secret", "secret", {"secretName": "s"}, {"data": {"r": RAW}}, {"r": (b"\x00\xff", 0o644)}),
    ("empty object", "secret", {"secretName": "s"}, {}, {}),
    (
        "downward",
        "downwardAPI",
        {"items": [{"path": "d/x", "mode": 0o400, "fieldRef": {"fieldPath": "metadata.name"}}]},
        DownwardInput(POD, {}, {}, {}, None),
        {"d/x": (b"p", 0o400)},
    ),
    (
        "labels and annotations",
        "downwardAPI",
        {"items": [field("labels"), field("annotations"), field("name")]},
        DownwardInput(LABELLED, {}, {}, {}, None),
        {
            "labels": (b'app="shop"', 0o644),
            "annotations": (b'note="x"', 0o644),
            "name": (b"p", 0o644),
        },
    ),
    (
        "resources",
        "downwardAPI",
        {"items": [resource("limits.cpu"), resource("limits.memory")]},
        DownwardInput(LABELLED, {}, {}, {}, None),
        {"limits.cpu": (b"2", 0o644), "limits.memory": (b"1024", 0o644)},
    ),
]


@pytest.mark.parametrize(("kind", "source", "found", "files"), [c[1:] for c in CASES])
def test_files(kind: str, source: dict[str, Any], found: Any, files: Any) -> None:
    assert text(build(kind, source, found)) == files


ERRORS: list[tuple[str, str, dict[str, Any], Any, str]] = [
    ("no config map", "configMap", {"name": "c"}, None, 'configmap "c" not found'),
    ("no secret", "secret", {"secretName": "s"}, None, 'secret "s" not found'),
    (
        "no key",
        "configMap",
        {"name": "c", "items": [{"key": "z", "path": "z"}]},
        CFG,
        "configmap ns/c references non-existent config key: z",
    ),
    (
        "no secret key",
        "secret",
        {"secretName": "s", "items": [{"key": "z", "path": "z"}]},
        {},
        "secret ns/s references non-existent secret key: z",
    ),
    (
        "no base64",
        "secret",
        {"secretName": "s"},
        {"data": {"k": "hush!"}},
        "secret ns/s: the value of key k is not base64",
    ),
    ("no fields", "downwardAPI", {}, Unavailable("no answer"), "no answer"),
    (
        "no token",
        "projected",
        {"sources": [{"serviceAccountToken": {"path": "t"}}]},
        Unavailable("no answer"),
        "no answer",
    ),
    (
        "nothing",
        "projected",
        {"sources": [{}]},
        None,
        "a projected volume's empty source is not supported by this version of kubeletpy",
    ),
    ("unreadable", "configMap", {"name": "c"}, Unavailable("no answer"), "no answer"),
    (
        "no container",
        "downwardAPI",
        {"items": [{"path": "x", "resourceFieldRef": {"resource": "limits.cpu"}}]},
        DownwardInput(LABELLED, {}, {}, {}, None),
        "resourceFieldRef of a volume: containerName is missing",
    ),
    (
        "no reference",
        "downwardAPI",
        {"items": [{"path": "x"}]},
        DownwardInput(LABELLED, {}, {}, {}, None),
        "downwardAPI item 'x' has neither field nor resource",
    ),
    (
        "climbs",
        "configMap",
        {"name": "c", "items": [{"key": "a", "path": "../x"}]},
        CFG,
        "must not contain '..'",
    ),
]


@pytest.mark.parametrize(("kind", "source", "found", "message"), [c[1:] for c in ERRORS])
def test_errors_name_object_and_key_only(
    kind: str, source: dict[str, Any], found: Any, message: str
) -> None:
    with pytest.raises(PayloadError) as caught:
        build(kind, source, found)
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


def test_the_files_of_a_volume_have_a_size() -> None:
    whole = {"fieldRef": {"fieldPath": "metadata.annotations"}}
    items = [{"path": str(number), **whole} for number in range(600)]
    found = DownwardInput(POD, {}, {}, {}, None)
    assert len(build("downwardAPI", {"items": items[:100]}, found)) == 100
    large = {"metadata": {"name": "c"}, "data": {"a": "x" * 1_000_000}}
    keys = [{"key": "a", "path": str(number)} for number in range(70)]
    sources = [{"configMap": {"name": "c"}}] * 70
    for kind, source, inputs in (
        ("downwardAPI", {"items": items}, [found]),
        ("configMap", {"items": keys}, [large]),
        ("projected", {"sources": sources}, [large] * 70),
    ):
        with pytest.raises(PayloadError, match=f"may have {64 << 20} bytes together"):
            build(kind, source, *inputs)


@pytest.mark.parametrize(
    ("left", "message"), [(1, "neither field nor resource"), (0, "its files have over 0 bytes")]
)
def test_rendering_ends_where_the_files_are_too_large(left: int, message: str) -> None:
    volume = PlannedVolume("v", "downwardAPI", {"items": [field("name"), {"path": "x"}]})
    found = DownwardInput(LABELLED, {}, {}, {}, None)
    with pytest.raises(PayloadError, match=message):
        build_payload(volume, [found], "ns", FileOwner(), left)


def test_each_source_has_its_state() -> None:
    with pytest.raises(ValueError, match="zip"):
        build("configMap", {"name": "c"})


def test_a_projected_volume_merges_in_order() -> None:
    sources = [
        {"configMap": {"name": "c"}},
        {"secret": {"name": "s", "items": [{"key": "k", "path": "a"}]}},
        {"serviceAccountToken": {"path": "token"}},
    ]
    secret = {"data": {"k": base64.b64encode(b"hush").decode()}}
    built = build("projected", {"sources": sources}, CFG, secret, TokenInput("t"))
    assert text(built) == {"a": (b"hush", 0o644), "b": (b"two", 0o644), "token": (b"t", 0o644)}
    assert "hush" not in repr(built)


def test_errors_of_all_sources_are_reported() -> None:
    sources = [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}, {"other": {}}]
    with pytest.raises(PayloadError) as caught:
        build("projected", {"sources": sources}, None, None, None)
    assert str(caught.value) == (
        '[configmap "c" not found, secret "s" not found, '
        "other is not supported by this version of kubeletpy]"
    )


@pytest.mark.parametrize(
    ("owner", "mode", "uid"),
    [({}, 0o644, None), ({"user": 7}, 0o600, 7), ({"group": 9}, 0o600, None)],
)
def test_the_mode_of_a_token(owner: dict[str, int], mode: int, uid: int | None) -> None:
    source = {"sources": [{"serviceAccountToken": {"path": "t"}}]}
    (content,) = build("projected", source, TokenInput("t"), **owner).values()
    assert (content.mode, content.owner) == (mode, uid)


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("a", "a"),
        ("a/b.c", "a/b.c"),
        ("a//./b", "a/b"),
        ("a..b", "a..b"),
        ("x/..data", "x/..data"),
        *[
            (bad, None)
            for bad in ("", "/a", "..", "a/../b", "..data", "..x/y", "n" * 256, "a\0b", "./.")
        ],
        ("/".join(["d"] * 2100), None),
    ],
)
def test_paths_of_files(path: str, good: str | None) -> None:
    if good is None:
        with pytest.raises(UnsafePath):
            payload_path(path)
    else:
        assert payload_path(path) == good


@pytest.mark.parametrize(
    ("path", "parts"), [("", []), (".", []), ("a/./b/", ["a", "b"]), ("/a", None), ("a/..", None)]
)
def test_sub_paths(path: str, parts: list[str] | None) -> None:
    if parts is None:
        with pytest.raises(UnsafePath):
            sub_path_parts(path)
    else:
        assert sub_path_parts(path) == parts


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0", "n" * 256])
def test_names_that_lead_elsewhere(name: str) -> None:
    with pytest.raises(UnsafePath):
        safe_name(name)


# Owners of files in volumes: named for the file or the volume, or the user of the pod.

OWNED_POD_FIELDS: Any = {"name": "p", "namespace": "ns", "uid": "u"}
OWNED_POD = Pod({"metadata": OWNED_POD_FIELDS, "spec": {"containers": [{"name": "c"}]}})
FIELDS = DownwardInput(OWNED_POD, OWNED_POD.spec, {}, {}, None)
OWNED = {"metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}
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


@pytest.mark.parametrize(("kind", "found"), [("configMap", OWNED), ("secret", SECRET)])
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
    found = owners("projected", whole, OWNED, SECRET, FIELDS)
    assert found == {"a": 7, "b": 7, "s": 5, "d": 7}


@pytest.mark.parametrize("user", [-1, 2**31, 2**63 - 1, 10**30])
def test_a_number_that_no_user_has_is_refused(user: int) -> None:
    for source in ({"defaultUser": user}, {"items": [{**A, "user": user}]}):
        with pytest.raises(PayloadError, match=f"user {user} is not between 0 and 2147483647"):
            owners("configMap", source, OWNED)
    assert owners("configMap", {"defaultUser": user}, OWNED, chosen=False) == {"a": None, "b": None}


def test_files_get_their_owners_and_new_ones_with_a_change(tmp_path: Path) -> None:
    source = {"defaultUser": 7, "items": [{**A, "user": 5, "mode": 0o400}, B]}
    write_payload(str(tmp_path), built("configMap", source, OWNED), 0.0)
    reported = {name: os.stat(tmp_path / name) for name in "ab"}  # noqa: PTH116
    assert {name: (s.st_uid, s.st_mode & 0o777) for name, s in reported.items()} == {
        "a": (5, 0o400),
        "b": (7, 0o644),
    }
    again = built("configMap", {"defaultUser": 8}, OWNED)
    assert not write_payload(str(tmp_path), again, 1.0), "nothing in them has changed"
    assert (tmp_path / "b").stat().st_uid == 7
    write_payload(str(tmp_path), built("configMap", {"defaultUser": 8}, {"data": {"b": "3"}}), 2.0)
    assert (tmp_path / "b").stat().st_uid == 8


# Limits on the size of a volume's files, to the byte, and their modes.

NAMED_POD = Pod(
    {
        "metadata": {"name": "four", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "c"}]},
    }
)
POD_NAME = {"fieldRef": {"fieldPath": "metadata.name"}}
FILES = {"metadata": {"name": "c"}, "data": {"a": "1234", "b": "5678"}}
DOWNWARD = DownwardInput(NAMED_POD, {}, {}, {}, None)
# each has 8 bytes: kind, source, its inputs
VOLUMES: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("configMap", {"name": "c"}, [FILES]),
    ("downwardAPI", {"items": [{"path": "x", **POD_NAME}, {"path": "y", **POD_NAME}]}, [DOWNWARD]),
    (
        "projected",
        {
            "sources": [
                {"configMap": {"name": "c", "items": [{"key": "a", "path": "a"}]}},
                {"downwardAPI": {"items": [{"path": "x", **POD_NAME}]}},
            ]
        },
        [FILES, DOWNWARD],
    ),
    # overwritten content counts, too
    ("projected", {"sources": [{"downwardAPI": {"items": [{"path": "x", **POD_NAME}]}}] * 2},
     [DOWNWARD] * 2),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "source", "inputs"), VOLUMES)
def test_files_up_to_the_last_byte(kind: str, source: dict[str, Any], inputs: list[Any]) -> None:
    volume = PlannedVolume("v", kind, source)
    for left in (8, 9):
        assert payload_size(build_payload(volume, inputs, "ns", FileOwner(), left)) in (4, 8)
    for left in (7, 4, 0):
        with pytest.raises(PayloadError, match=f"over {left} bytes"):
            build_payload(volume, inputs, "ns", FileOwner(), left)


@pytest.mark.parametrize(
    ("default", "own", "mode"),
    [
        (None, None, 0o644),
        (0o400, None, 0o400),
        (0, None, 0),
        (0o400, 0o600, 0o600),
        (0o400, 0, 0),
        (None, 0o7777, 0o777),
        ("x", "y", 0o644),
    ],
)
def test_modes(default: Any, own: Any, mode: int) -> None:
    for kind, item, found in (
        ("configMap", {"key": "a", "path": "a"}, FILES),
        ("downwardAPI", {"path": "a", **POD_NAME}, DOWNWARD),
    ):
        volume = PlannedVolume(
            "v", kind, {"defaultMode": default, "items": [{**item, "mode": own}]}
        )
        (content,) = build_payload(volume, [found], "ns", FileOwner()).values()
        assert content.mode == mode


def test_one_problem_stands_alone() -> None:
    volume = PlannedVolume("v", "configMap", {"name": "c"})
    with pytest.raises(PayloadError) as caught:
        build_payload(volume, [None], "ns", FileOwner())
    assert str(caught.value) == 'configmap "c" not found'
