"""Lines, words and numbers of the kernel's files."""

from __future__ import annotations

import pytest

from kubeletpy.base.text import lines, number, tokens


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\nb\n", ["a", "", "b"]),
        ("a\x1cb\u2028c\x85\x0b\x0cd\r\n", ["a\x1cb\u2028c\x85\x0b\x0cd\r"]),
    ],
)
def test_lines_end_at_newlines_only(text: str, found: list[str]) -> None:
    assert lines(text) == found


def test_words_are_cut_at_blanks_and_tabs_only() -> None:
    assert tokens(" a\t b\x1cc\u2003d  ") == ["a", "b\x1cc\u2003d"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0\n", 0),
        (" 18446744073709551615 ", 2**64 - 1),
        ("", None),
        (None, None),
        ("max", None),
        ("-1", None),
        ("²", None),
        ("\uff11\uff12", None),
        ("1\x1c", None),
        ("9" * 5000, None),
    ],
)
def test_numbers(text: str | None, value: int | None) -> None:
    assert number(text) == value
