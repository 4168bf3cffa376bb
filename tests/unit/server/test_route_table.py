"""The routes of the agent's server, row by row (docs/reference/server.csv: endpoint)."""

from __future__ import annotations

import re

import pytest

from kubeletpy.server.routes import ROUTES, VERBS, Route
from tools.rulebook.differences import allowed
from tools.rulebook.tables import rows

OPTIONAL = re.compile(r"\[(/?)([^]]*)\]")
NAMES = {"{ns}": "{namespace}", "{path}": "{path:.*}"}
ROWS = [
    row for row in rows("server.csv") if row["kind"] == "endpoint" and row["path"].startswith("/")
]


def paths(written: str) -> set[str]:
    """The route patterns for a path of the table."""
    for theirs, ours in NAMES.items():
        written = written.replace(theirs, ours)
    written = re.sub(r"\{profile\|.*\}", "{profile:.*}", written)
    if not OPTIONAL.search(written):
        return {written}
    without = OPTIONAL.sub("", written, count=1)
    return {OPTIONAL.sub(r"\1\2", written, count=1), without.rstrip("/")}


def route_of(row: dict[str, str]) -> Route | None:
    found = [route for route in ROUTES if paths(row["path"]) <= set(route.paths)]
    assert len(found) < 2
    return found[0] if found else None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["path"])
def test_route(row: dict[str, str]) -> None:
    route = route_of(row)
    assert (route is None) == allowed("server.csv", row["path"], "not served")
    if route is None:
        return
    methods = tuple(row["methods"].split())
    assert route.methods == methods
    assert {VERBS[method] for method in methods} == set(row["verbs"].split())
    subresources = tuple(part.removeprefix("nodes/") for part in row["subresource"].split(" else "))
    assert route.subresources == subresources
    assert route.read_only == ("read-only port" in row["auth"])


def test_no_other_route() -> None:
    known = [route_of(row) for row in ROWS]
    ours = [route.paths[0] for route in ROUTES if route not in known]
    assert [path for path in ours if not allowed("server.csv", path, "only here")] == []
