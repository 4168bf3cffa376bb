"""Events, reasons and names: what the tables list is in the agent's sources, or differs by plan."""

from __future__ import annotations

import re

import pytest

from tools.rulebook import tables
from tools.rulebook.differences import Difference, allowed, listed
from tools.rulebook.product import code, has_string

PROSE = re.compile(r"\(.*\)|\{admission reason\}|by|shared|OutOf\{resource\}")
"""Cells that describe a reason instead of naming it."""
KINDS = {
    "cri-label",
    "cri-annotation",
    "pod-annotation",
    "node-annotation",
    "node-label",
    "dir",
    "checkpoint",
    "log",
    "volume-dir",
}
"""Kinds of names.csv whose keys are written as they are; tests of the rooms hold the others."""
DESCRIBED = re.compile(r"\(.*\)|synced on existing node|--node-labels .*|.* except \..*")
LITERAL = re.compile(r"\{[^{}]*\}|\[[^]]*\]|[ ,|/]")
"""What stands between the literal parts of a name."""


def said(reason: str) -> bool:
    """Whether the sources have the reason, alone or made of its end and something before."""
    return has_string(reason) or (reason.startswith("Resize") and has_string("Resize{"))


EVENTS = sorted({row["reason"] for row in tables.rows("events.csv")})
REASONS = sorted(
    {
        name
        for row in tables.rows("reasons.csv")
        if row["kind"] not in ("exit-code", "condition-ownership")
        for name in row["name"].split()
        if not PROSE.fullmatch(name)
    }
)
NAMES = sorted(
    {
        row["key"]
        for row in tables.rows("names.csv")
        if row["kind"] in KINDS and not DESCRIBED.fullmatch(row["key"])
    }
)


@pytest.mark.parametrize("reason", [r for r in EVENTS if not PROSE.fullmatch(r)])
def test_event(reason: str) -> None:
    assert said(reason) != allowed("events.csv", reason, "not emitted")


@pytest.mark.parametrize("name", REASONS)
def test_reason(name: str) -> None:
    assert said(name) != allowed("reasons.csv", name, "not used")


@pytest.mark.parametrize("key", NAMES)
def test_name(key: str) -> None:
    parts = [part for part in LITERAL.split(key) if len(part.strip(".")) > 3]
    missing = [part for part in parts if part not in code()]
    assert bool(missing) == allowed("names.csv", key, "not used"), missing


@pytest.mark.parametrize("each", [d for d in listed("events.csv") if d.here == "only here"])
def test_what_is_only_here(each: Difference) -> None:
    assert said(each.row)
    assert each.row not in tables.keys(each.table)
