"""Intended differences of kubeletpy from docs/reference: one list, with a reason each.

The list is docs/reference/differences.csv. Tests that compare code and tables allow nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from tools.rulebook import tables

FILE = "differences.csv"


@dataclass(frozen=True)
class Difference:
    """One row of the list.

    Attributes:
        table: a file of docs/reference.
        row: what it differs in: a section of a page, a key of a table; ``*`` stands for any text.
        here: what kubeletpy does.
        why: the reason.
    """

    table: str
    row: str
    here: str
    why: str

    def covers(self, key: str) -> bool:
        """Whether it is about the row of that key."""
        pattern = re.escape(self.row).replace(r"\*", ".*")
        return re.fullmatch(pattern, key) is not None


@cache
def listed(table: str = "") -> tuple[Difference, ...]:
    """The differences from one table, or all."""
    found = (Difference(**row) for row in tables.rows(FILE))
    return tuple(each for each in found if table in ("", each.table))


def allowed(table: str, key: str, here: str = "") -> bool:
    """Whether a row may differ (in that way)."""
    return any(each.covers(key) and here in ("", each.here) for each in listed(table))
