"""Patterns of registries: host, port and path."""

from __future__ import annotations

import pytest

from kubeletpy.images.registry_pattern import RegistryPattern


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
    found = RegistryPattern.parse(pattern)
    assert found is not None
    assert (".".join(found.host), found.port, found.path) == (host, port, path)
    assert found.is_glob is ("*" in host)


@pytest.mark.parametrize(
    "pattern", ["", None, 5, "/a", "https://", ":5000", "a" * 256, "h/" + "a" * 2047]
)
def test_invalid_patterns(pattern: object) -> None:
    assert RegistryPattern.parse(pattern) is None
