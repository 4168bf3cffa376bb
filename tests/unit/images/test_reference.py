"""Image names: valid and invalid ones, the default tag and policy."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kubeletpy.base.text import reported_image
from kubeletpy.images.reference import (
    InvalidReference,
    Reference,
    RegistryPattern,
    Repository,
    default_pull_policy,
    parse_reference,
    with_default_tag,
)

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("busybox", Reference("docker.io", "library/busybox")),
        ("busybox:1.36", Reference("docker.io", "library/busybox", "1.36")),
        ("user/app", Reference("docker.io", "user/app")),
        ("docker.io/busybox", Reference("docker.io", "library/busybox")),
        ("index.docker.io/a/b", Reference("docker.io", "a/b")),
        ("localhost/x", Reference("localhost", "x")),
        ("localhost:5000/x:y", Reference("localhost:5000", "x", "y")),
        ("Host/x", Reference("Host", "x")),
        ("x/a__b-c.d---e", Reference("docker.io", "x/a__b-c.d---e")),
        ("[::1]:5000/x", Reference("[::1]:5000", "x")),
        ("registry.k8s.io/pause:3.10", Reference("registry.k8s.io", "pause", "3.10")),
        (f"a.b/c/d@{DIGEST}", Reference("a.b", "c/d", "", DIGEST)),
        (f"a.b/c:t@{DIGEST}", Reference("a.b", "c", "t", DIGEST)),
    ],
)
def test_parse(image: str, expected: Reference) -> None:
    assert parse_reference(image) == expected


@pytest.mark.parametrize(
    "image",
    [
        "",
        "UPPER",
        "a b",
        ":tag",
        "a:",
        "a//b",
        "/a",
        "a/",
        "a:b:c/d",
        "-a",
        "a@sha256:12",
        "a@md5:" + "0" * 32,
        "a@" + DIGEST.upper(),
        "a" * 64 + "\n",
        "0" * 64,
        "x/" + "a" * 256,
        "a:" + "t" * 129,
        "a:tag\x00",
        "é",
        "a" * 5000,
        "a__b.c/d",
        None,
        [],
    ],
)
def test_no_image_name(image: Any) -> None:
    with pytest.raises(InvalidReference):
        parse_reference(image)


LOWER = "repository name ({}) must be lowercase"


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("", ""),
        ("a b", ""),
        ("a:", ""),
        ("a:" + "t" * 129, ""),
        ("h.x/A b", ""),
        ("h.x/Ab", f": {LOWER.format('Ab')}"),
        ("h.x/a@md5:" + "0" * 32, "unsupported digest algorithm"),
        ("h.x/a@md5:" + "0" * 31, ""),
        ("h.x/a@sha256:" + "0" * 63, "invalid checksum digest length"),
        ("h.x/a@sha384:" + "0" * 95, "invalid checksum digest length"),
        ("h.x/a@sha512:" + "0" * 129, "invalid checksum digest length"),
        ("h.x/a@sha256:" + "A" * 64, "invalid checksum digest format"),
        ("0" * 64, f"invalid repository name ({'0' * 64}), cannot specify 64-byte hexadecimal"),
        ("h.x/" + "a" * 252, "repository name must not be more than 255 characters"),
        ("h.x/" + "a/" * 510, ""),
    ],
)
def test_reasons_for_invalid_names(image: str, why: str) -> None:
    with pytest.raises(InvalidReference) as caught:
        parse_reference(image)
    whole = why if why and not why.startswith(":") else f"invalid reference format{why}"
    assert str(caught.value).startswith(whole)
    assert why or str(caught.value) == whole


@pytest.mark.parametrize(
    "image",
    [
        "h.x/" + "a" * 251,
        "a:" + "t" * 128,
        "h.x/" + "a" * 251 + ":" + "t" * 128 + "@sha512:" + "0" * 128,
        "0" * 63,
        "h.x/a@sha384:" + "0" * 96,
    ],
)
def test_the_longest_names(image: str) -> None:
    assert parse_reference(image).path


@pytest.mark.parametrize(("length", "why"), [(1024, "repository name"), (1025, "reference format")])
def test_overlong_references_are_not_parsed(length: int, why: str) -> None:
    with pytest.raises(InvalidReference, match=why):
        parse_reference("a" * length)


def test_a_long_name_is_shown_in_part() -> None:
    for length, reported in ((255, "-" * 255), (256, "-" * 255 + "…")):
        with pytest.raises(InvalidReference) as caught:
            with_default_tag("-" * length)
        assert f'"{reported}"' in str(caught.value)


def test_hostile_names_take_no_time() -> None:
    started = time.thread_time()
    for image in ("a-" * 500, "a_" * 511 + "!", "a." * 511 + "/!", "-" * 1023, "a" * 10_000_000):
        with pytest.raises(InvalidReference):
            parse_reference(image)
    assert time.thread_time() - started < 0.5


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("busybox", "busybox:latest"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("busybox:1", "busybox:1"),
        (f"x@{DIGEST}", f"x@{DIGEST}"),
    ],
)
def test_default_tag(image: str, expected: str) -> None:
    assert with_default_tag(image) == expected


def test_error_names_the_image() -> None:
    with pytest.raises(InvalidReference) as caught:
        with_default_tag("Foo:bar")
    assert str(caught.value) == (
        'couldn\'t parse image name "Foo:bar": invalid reference format: '
        "repository name (library/Foo) must be lowercase"
    )


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("x:1", "IfNotPresent"),
        (f"x@{DIGEST}", "IfNotPresent"),
        (f"x:1@{DIGEST}", "IfNotPresent"),
        (f"x:latest@{DIGEST}", "Always"),
        ("X!", "IfNotPresent"),
    ],
)
def test_default_policy(image: str, expected: str) -> None:
    assert default_pull_policy(image) == expected


@pytest.mark.parametrize(
    ("image", "reported"),
    [
        ("user:SECRET@registry.example/a:1", "[redacted]@registry.example/a:1"),
        ("https://user:SECRET@registry.example/a", "https://[redacted]@registry.example/a"),
        ("SECRET@registry.example/a@" + DIGEST, "[redacted]@registry.example/a@" + DIGEST),
        ("user:SE@CRET@registry.example/a", "[redacted]@registry.example/a"),
        ("registry.example:5000/a:1@" + DIGEST, "registry.example:5000/a:1@" + DIGEST),
        ("busybox:1.36", "busybox:1.36"),
    ],
)
def test_user_information_is_not_shown(image: str, reported: str) -> None:
    assert reported_image(image) == reported
    if "SECRET" in image:
        with pytest.raises(InvalidReference) as caught:
            with_default_tag(image)
        assert "SECRET" not in str(caught.value)


# Patterns of registries: host, port and path.


@pytest.mark.parametrize(
    ("pattern", "host", "port", "path"),
    [
        ("reg.io", "reg.io", "", ""),
        ("reg.io/", "reg.io", "", ""),
        ("https://reg.io", "reg.io", "", ""),
        ("http://reg.io/a?b#c", "reg.io", "", "/a"),
        ("reg.io#c?d", "reg.io", "", ""),
        ("user@reg.io:5000/a/b", "reg.io", "5000", "/a/b"),
        ("reg.io:x", "reg.io:x", "", ""),
        ("12345", "12345", "", ""),
        ("reg.io/v1", "reg.io", "", ""),
        ("reg.io/v1/", "reg.io", "", ""),
        ("reg.io/v1/v2/a", "reg.io", "", "/v2/a"),
        ("HTTPS://Reg.IO/a", "reg.io", "", "/a"),
        ("reg.io/a/", "reg.io", "", "/a"),
        ("https://index.docker.io/v1/a", "docker.io", "", "/a"),
        ("index.docker.io:5000", "index.docker.io", "5000", ""),
        ("reg.io/v2", "reg.io", "", ""),
        ("reg.io/v2/a", "reg.io", "", "/a"),
        ("reg.io/v10/a", "reg.io", "", "/v10/a"),
        ("reg.io/a/v1", "reg.io", "", "/a/v1"),
        ("*.reg.io", "*.reg.io", "", ""),
        ("a" * 255, "a" * 255, "", ""),
        ("h/" + "a" * 2046, "h", "", "/" + "a" * 2046),
    ],
)
def test_parts(pattern: str, host: str, port: str, path: str) -> None:
    found = RegistryPattern.of_login(pattern)
    assert found is not None
    assert (".".join(found.host), found.port) == (host, port)
    assert "".join(f"/{each}" for each in found.path) == path
    assert found.is_glob is ("*" in host)


@pytest.mark.parametrize(
    "pattern",
    ["", None, 5, "/a", "https://", "ftp://reg.io", ":5000", "a" * 256, "h/" + "a" * 2047],
)
def test_invalid_patterns(pattern: object) -> None:
    assert RegistryPattern.parse(pattern) is None


def test_a_namespace_that_is_called_like_an_api_version_is_a_path_of_match_images() -> None:
    pattern = RegistryPattern.parse("reg.io/v1/team/")
    assert pattern is not None
    assert pattern.fits(Repository.parse("reg.io/v1/team/app"))
    assert not pattern.fits(Repository.parse("reg.io/v1/team-b"))
    assert not pattern.fits(Repository.parse("reg.io/team/app"))
