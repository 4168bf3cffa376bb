"""Image names: what parses, what does not, and the default tag and policy."""

from __future__ import annotations

import time

import pytest

from kubeletpy.images.reference import (
    InvalidReference,
    Reference,
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
    ],
)
def test_no_image_name(image: str) -> None:
    with pytest.raises(InvalidReference):
        parse_reference(image)


def test_hostile_names_take_no_time() -> None:
    started = time.perf_counter()
    for image in ("a-" * 500, "a_" * 511 + "!", "a." * 511 + "/!", "-" * 1023, "a" * 10_000_000):
        with pytest.raises(InvalidReference):
            parse_reference(image)
    assert time.perf_counter() - started < 0.5


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
        ("X!", "IfNotPresent"),
    ],
)
def test_default_policy(image: str, expected: str) -> None:
    assert default_pull_policy(image) == expected
