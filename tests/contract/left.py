"""Intended differences of the embedded API: ``left.csv``; docs/embedded-api.md says more."""

from __future__ import annotations

import csv
from pathlib import Path

from tests.contract.client import JSON
from tests.contract.conversation import differences

with Path(__file__).with_name("left.csv").open(newline="") as _file:
    ROWS = tuple(csv.DictReader(_file))
WORDS = frozenset((row["conversation"], row["step"]) for row in ROWS if row["differs"] == "words")
"""Steps in which only messages differ: code, reason and the causes' fields are the same."""
OTHERWISE = frozenset((row["conversation"], row["step"]) for row in ROWS) - WORDS
"""Steps whose answers differ in more."""


def unexpected(conversation: str, step: str, expected: JSON, got: JSON) -> list[str]:
    """Unexpected differences in an answer of the embedded API."""
    lines = differences(expected, got)
    if (conversation, step) in OTHERWISE:
        return [] if lines else [f"{conversation}, {step}: is listed, and does not differ any more"]
    if (conversation, step) in WORDS:
        same = differences(_without_words(expected), _without_words(got))
        return same if lines else [f"{conversation}, {step}: is listed, and does not differ"]
    return lines


def _without_words(answer: JSON) -> JSON:
    body = answer["body"]
    causes = (body.get("details") or {}).get("causes") or ()
    return {
        "code": answer["code"],
        "reason": body.get("reason"),
        "causes": [(cause.get("reason"), cause.get("field")) for cause in causes],
    }
