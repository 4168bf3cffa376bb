"""Text from untrusted peers, made safe to display."""

from __future__ import annotations

import pytest

from kubeletpy.base.text import scrub


@pytest.mark.parametrize(
    ("stated", "reported"),
    [
        ("GET https://joe:hunter2@reg.io/v2/: 401", "GET https://reg.io/v2/: 401"),
        ("Basic am9l c3ecr3t refused", "Basic am9l [redacted] refused"),
        ("a\x1b[31m\x00red\nline\ttab", "a[31mred\nline\ttab"),
        ("x" * 5000, "x" * 4095 + "…"),
    ],
)
def test_scrub(stated: str, reported: str) -> None:
    assert scrub(stated, ["", "c3", "c3ecr3t"]) == reported
