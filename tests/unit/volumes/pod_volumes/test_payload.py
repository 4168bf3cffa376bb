"""The files of volumes: keys, items, modes, optional objects, merges and refusals."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.files.paths import (
    CertificateInput,
    FileContent,
    PayloadError,
    TokenInput,
    UnsafePath,
    payload_path,
    safe_name,
    sub_path_parts,
)
from kubeletpy.volumes.pod_volumes.payload import DownwardInput, FileOwner, build_payload
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
    assert text(built) == {
        "a": (b"hush", 0o644),
        "b": (b"two", 0o644),
        "token": (b"t", 0o644),
    }
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
