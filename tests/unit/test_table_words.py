"""Events, reasons and names of the tables are in the agent's sources, or differ on purpose."""

from __future__ import annotations

import re

import pytest

from kubeletpy.kubeapi.events.reasons import Reason
from tools.rulebook import tables
from tools.rulebook.differences import allowed
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
"""Kinds of names.csv with literal keys; tests of the packages check the others."""
DESCRIBED = re.compile(r"\(.*\)|synced on existing node|--node-labels .*|.* except \..*")
LITERAL = re.compile(r"\{[^{}]*\}|\[[^]]*\]|[ ,|/]")
"""Separators and placeholders between the literal parts of a name."""


REASONS = sorted(
    {
        name
        for row in tables.rows("reasons.csv")
        if row["kind"] not in ("admission", "exit-code", "condition-ownership")
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


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_has_an_emitter(reason: Reason) -> None:
    assert re.search(rf"\bReason\.{reason.name}\b", code())


@pytest.mark.parametrize("name", REASONS)
def test_reason(name: str) -> None:
    assert has_string(name) != allowed("reasons.csv", name, "not used")


@pytest.mark.parametrize("key", NAMES)
def test_name(key: str) -> None:
    parts = [part for part in LITERAL.split(key) if len(part.strip(".")) > 3]
    missing = [part for part in parts if part not in code()]
    assert bool(missing) == allowed("names.csv", key, "not used"), missing
