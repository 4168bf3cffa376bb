"""Names of images, and the configuration of registries."""

from __future__ import annotations

import contextlib

from kubeletpy.images.credentials import MalformedPullSecret, parse_docker_config
from kubeletpy.images.reference import (
    InvalidReference,
    RegistryPattern,
    Repository,
    default_pull_policy,
    parse_reference,
)
from tests.fuzz.target import JSON_WORDS, target, text

_DIGEST = b"@sha256:" + b"0" * 64


@target(
    InvalidReference,
    seeds=(b"busybox", b"a.io:5000/b/c:d", b"[::1]:5000/b" + _DIGEST),
    parts=(b"@sha256:", b"/", b":", b"__", b"localhost", _DIGEST),
)
def image_reference(data: bytes) -> None:
    """The name of an image."""
    found = parse_reference(text(data))
    default_pull_policy(text(data))
    assert parse_reference(f"{found.repository}:x").repository == found.repository


@target(
    seeds=(b"*.a.io/b\0x.a.io/b/c", b"https://a:5/v1/\0a:5/b"), parts=(b"*", b"**", b"https://")
)
def registry_pattern(data: bytes) -> None:
    """Which images a credential is for: the pattern, NUL, the image."""
    first, _, second = text(data).partition("\0")
    found = RegistryPattern.parse(first)
    if found is not None:
        with contextlib.suppress(ValueError):
            found.fits(Repository.parse(second))


@target(MalformedPullSecret, seeds=(b'{"auths":{"a":{"auth":"YTpi"}}}',), parts=JSON_WORDS)
def docker_config(data: bytes) -> None:
    """A pull secret's content."""
    parse_docker_config(data)
