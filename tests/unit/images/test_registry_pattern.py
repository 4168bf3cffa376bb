"""Patterns of registries: host, port and path."""

from __future__ import annotations

import pytest

from kubeletpy.images.reference import RegistryPattern, Repository


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
