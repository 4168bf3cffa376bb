"""``$(NAME)`` references (docs/reference/behaviour.md, h)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.pods.environment import MAX_EXPANDED, MAX_TOTAL, ExpansionTooLong, expand, expand_all

KNOWN = {"A": "one", "B": "two", "EMPTY": "", "REF": "$(A)", "a b": "spaced", "": "nameless"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain", "plain"),
        ("$(A)", "one"),
        ("x$(A)y$(B)z", "xoneytwoz"),
        ("$(A)$(A)", "oneone"),
        ("$(MISSING)", "$(MISSING)"),
        ("$(EMPTY)!", "!"),
        ("$(REF)", "$(A)"),
        ("$(a b)", "spaced"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$one"),
        ("$$$$(A)", "$$(A)"),
        ("$A", "$A"),
        ("$", "$"),
        ("a$", "a$"),
        ("$$", "$"),
        ("$(A", "$(A"),
        ("$(A$(B)", "$(A$(B)"),
        ("$()", "nameless"),
        ("$xA)", "$xA)"),
        ("$(MISSING)!", "$(MISSING)!"),
        ("$(A)) $(", "one) $("),
        (")$(", ")$("),
    ],
)
def test_references(text: str, expected: str) -> None:
    assert expand(text, KNOWN.get) == expected


@given(st.text(alphabet="$()AB x"))
def test_text_without_dollars_in_the_values_never_fails(text: str) -> None:
    expand(text, KNOWN.get)
    assert expand(text.replace("$", ""), KNOWN.get) == text.replace("$", "")


def test_bounded_and_linear() -> None:
    with pytest.raises(ExpansionTooLong):
        expand("$(BIG)" * 3, {"BIG": "x" * (MAX_EXPANDED // 2)}.get)
    assert expand("$(" * 200_000, KNOWN.get) == "$(" * 200_000


def test_commands() -> None:
    assert expand_all(["echo", "$(A)"], KNOWN) == ["echo", "one"]


def test_the_words_of_a_command_are_bounded_together() -> None:
    variables = {"B": "x" * 1_000_000}
    assert len(expand_all(["$(B)"] * 6, variables)) == 6
    with pytest.raises(ExpansionTooLong):
        expand_all(["$(B)"] * 10_000, variables)


def test_the_longest_that_fits() -> None:
    most = {"B": "x" * MAX_EXPANDED, "C": "x" * (MAX_EXPANDED + 1), "D": "x" * (MAX_EXPANDED - 1)}
    assert len(expand("$(B)", most.get)) == MAX_EXPANDED
    assert len(expand("$(D)$$", most.get)) == MAX_EXPANDED
    for text in ("$(C)", "$(B)$$", "$(D)$$$$"):
        with pytest.raises(ExpansionTooLong):
            expand(text, most.get)


def test_the_most_words_that_fit() -> None:
    word = "x" * (MAX_TOTAL // 2)
    assert len(expand_all(["", word, word], {})) == 3
    with pytest.raises(ExpansionTooLong):
        expand_all(["", word, word, "x"], {})
