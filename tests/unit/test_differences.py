"""The list of intended differences: each row refers to a row of a table and has a reason."""

from __future__ import annotations

import pytest

from tools.rulebook import tables
from tools.rulebook.differences import FILE, Difference, listed

OF_ROWS = [each for each in listed() if each.here != "only here"]


@pytest.mark.parametrize("each", OF_ROWS, ids=lambda each: f"{each.table}-{each.row}")
def test_it_is_about_a_row_that_is_there(each: Difference) -> None:
    assert each.table in tables.files() - {FILE}
    assert any(each.covers(key) for key in tables.keys(each.table))
    assert each.here
    assert each.why


def test_rows_of_a_table_stand_together() -> None:
    order = [each.table for each in listed()]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("row", "key", "covered"),
    [
        ("dra_*", "dra_operations", True),
        ("dra_*", "a_dra_operation", False),
        ("/logs/[{path}]", "/logs/[{path}]", True),
        ("a.b", "aXb", False),
    ],
)
def test_keys_that_a_row_covers(row: str, key: str, covered: bool) -> None:
    assert Difference("t", row, "h", "w").covers(key) is covered
