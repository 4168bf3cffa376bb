"""The files of docs/reference, and what a citation may name in each."""

from __future__ import annotations

import csv
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
KEYS = {
    "config.csv": ("path",),
    "flags.csv": ("flag",),
    "features.csv": ("gate",),
    "constants.csv": ("area", "name"),
    "names.csv": ("kind", "key"),
    "reasons.csv": ("kind", "name"),
    "events.csv": ("reason",),
    "metrics.csv": ("name",),
    "versions.csv": ("fact",),
    "server.csv": ("kind", "path"),
    "state-files.csv": ("file",),
    "differences.csv": ("table",),
}
"""The columns of a table whose values a citation may name."""
HEADING = re.compile(r"^#{2,3} ([a-z]{1,2}\d*)\. ", re.M)


@cache
def rows(name: str) -> tuple[dict[str, str], ...]:
    """The rows of a CSV table; they are shared: never change one."""
    with (REFERENCE / name).open(newline="") as file:
        return tuple(csv.DictReader(file))


@cache
def document(name: str) -> dict[str, Any]:
    """A JSON table; it is shared: never change it."""
    loaded: dict[str, Any] = json.loads((REFERENCE / name).read_text())
    return loaded


def _of_protocol(table: dict[str, Any]) -> frozenset[str]:
    """Services, enums and messages, and ``Name.member`` for what is in them."""
    names = set()
    for kind, members in (("services", "methods"), ("enums", "values"), ("messages", "fields")):
        for each in table.get(kind, ()):
            names.add(each["name"])
            names |= {f"{each['name']}.{member['name']}" for member in each[members]}
    return frozenset(names)


@cache
def keys(name: str) -> frozenset[str]:
    """Names that a citation may use in the file: sections, values of key columns, definitions."""
    if name.endswith(".md"):
        return frozenset(HEADING.findall((REFERENCE / name).read_text()))
    if name.endswith(".csv"):
        named = {row[column] for row in rows(name) for column in KEYS[name]}
        if name == "constants.csv":
            named |= {f"{row['area']}: {row['name']}" for row in rows(name)}
        if name == "reasons.csv":  # some rows have several reasons
            named |= {word for key in named for word in key.split()}
        groups = {re.split(r"[.\[{]", key)[0] for key in named} if name == "config.csv" else set()
        return frozenset(named | groups)
    table = document(name)
    if name in ("api-schema.json", "api-schema-more.json", "api-wire.json"):
        return frozenset(table)
    if name == "api-resources.json":
        resources = table["resources"]
        return frozenset(resources) | {
            each["name"] for listed in resources.values() for each in listed
        }
    return _of_protocol(table)


def files() -> frozenset[str]:
    """The names of all files of docs/reference."""
    return frozenset(path.name for path in REFERENCE.iterdir())
