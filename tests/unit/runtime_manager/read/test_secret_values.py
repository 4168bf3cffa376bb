"""Runtimes quote commands, and so variables, in their errors: secrets are hidden in them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.runtime_manager.read.status_reader import (
    MAX_SECRET_CHARACTERS,
    MAX_SECRETS,
    UNSHOWN,
    hide_secrets,
)

ENV = [
    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    {"name": "PLAIN", "value": "visible"},
    {"name": "DB_HOST", "value": "db.example"},
]
GROUPS = [{"prefix": "DB_", "secretRef": {"name": "db"}}, {"configMapRef": {"name": "c"}}]
VARIABLES = {
    "KEY": "hush-hush",
    "PLAIN": "visible",
    "DB_PASSWORD": "open sesame",
    "DB_HOST": "db.example",
    "DB_CERT": "BEGIN\nAAAA\nEND",
    "DB_ON": "1",
    "DB_WORD": "open",
    "MODE": "fast",
}


@pytest.mark.parametrize(
    ("stated", "reported"),
    [
        ('exec: "hush-hush": not found', 'exec: "***": not found'),
        ("open sesame and hush-hush", "*** and ***"),
        ("open, not openly", "***, not ***ly"),
        ('exec: "BEGIN\\nAAAA\\nEND"', 'exec: "***\\n***\\nEND"'),
        ("visible on db.example, fast, 1 time", "visible on db.example, fast, 1 time"),
    ],
)
def test_values_of_secrets_are_hidden(stated: str, reported: str) -> None:
    container = cast(Any, {"name": "c", "env": ENV, "envFrom": GROUPS})
    assert hide_secrets(stated, container, VARIABLES) == reported


def test_without_secrets_nothing_is_hidden() -> None:
    container = cast(Any, {"name": "c", "env": ENV[1:], "envFrom": GROUPS[1:]})
    assert hide_secrets("hush-hush fast", container, VARIABLES) == "hush-hush fast"


@pytest.mark.parametrize(
    "much",
    [
        "x" * (MAX_SECRET_CHARACTERS + 1),
        "\n".join(f"line {number}" for number in range(MAX_SECRETS + 1)),
    ],
    ids=["long", "many lines"],
)
def test_a_message_is_hidden_if_a_secret_is_too_large_to_search_for(much: str) -> None:
    container = cast(Any, {"name": "c", "env": ENV, "envFrom": GROUPS})
    assert hide_secrets("exec: a word", container, {**VARIABLES, "DB_X": much}) == UNSHOWN
    assert hide_secrets("exec: a word", container, {**VARIABLES, "MODE": much}) == "exec: a word"


@pytest.mark.parametrize(
    ("most", "more"),
    [
        ("x" * MAX_SECRET_CHARACTERS, "x"),
        # the complete value counts too
        ("\n".join(f"line {number}" for number in range(MAX_SECRETS - 1)), "\nline"),
    ],
    ids=["long", "many lines"],
)
def test_the_largest_secret_that_is_searched_for(most: str, more: str) -> None:
    container = cast(Any, {"name": "c", "env": ENV[:1]})
    assert hide_secrets("exec: a word", container, {"KEY": most}) == "exec: a word"
    assert hide_secrets("exec: a word", container, {"KEY": most + more}) == UNSHOWN
