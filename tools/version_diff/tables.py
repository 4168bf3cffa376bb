"""Enters the differences of a new Kubernetes version into the rows of the fact tables. Pure.

A cell that only a person can decide begins with ``?``. tools/gen_tables.py leaves such a row out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

UNDECIDED = "?"
Rows = list[dict[str, str]]
Difference = tuple[str, str, str]
"""Name, value in the old version, value in the new one; a version without it has an empty value."""
TYPES = {"metav1.Duration": "duration"}


def with_column(rows: Rows, old: str, new: str) -> Rows:
    """A table with a column for each version: the new one has the values of the old one.

    A column of an earlier pre-release of the new version becomes that of the new one.
    """
    found: Rows = []
    for row in rows:
        of_version = {column for column in row if minor(column) == minor(new)}
        cells = {}
        for column, cell in row.items():
            if column not in of_version:
                cells[column] = cell
            if column == old:
                cells[new] = next((row[each] for each in of_version), cell)
        found.append(cells)
    return found


def minor(column: str) -> str:
    """The minor version that a column is about: ``1.38-beta.0`` is about ``1.38``."""
    return column.partition("-")[0]


def with_gates(
    rows: Rows, old: str, new: str, changes: Iterable[Difference], read: Collection[str]
) -> Rows:
    """features.csv. ``read``: the gates that the sources of the kubelet name."""
    by_gate = {row["gate"]: row for row in with_column(rows, old, new)}
    empty = dict.fromkeys(next(iter(by_gate.values())), "")
    for gate, _, stage in changes:
        parts = UNDECIDED if gate in read else "other components"
        row = by_gate.setdefault(gate, {**empty, "gate": gate, "main_parts": parts})
        row[new] = stage
    return sorted(
        by_gate.values(), key=lambda row: (not row["gate"].startswith("All"), row["gate"])
    )


def with_fields(rows: Rows, new: str, changes: Iterable[Difference]) -> Rows:
    """config.csv: new fields after the others of the document."""
    found = [dict(row) for row in rows]
    at = next(i for i, row in enumerate(found) if row["path"].startswith("CredentialProvider"))
    for name, _, kind in changes:
        document, _, field = name.partition(".")
        path = field if document == "KubeletConfiguration" else f"{UNDECIDED}{name}"
        if kind:
            row = {
                **dict.fromkeys(found[0], ""),
                "path": path,
                "default": UNDECIDED,
                "since": minor(new),
            }
            row["type"] = _field_type(kind, {each["type"] for each in rows})
            found.insert(at, row)
            at += 1
        for row in found:
            if row["path"] == field and not kind:
                row["notes"] = f"{UNDECIDED} absent in {new}. {row['notes']}"
    return found


def _field_type(kind: str, known: Collection[str]) -> str:
    pointer = "*" if kind.startswith("*") else ""
    plain = TYPES.get(kind.lstrip("*"), kind.lstrip("*"))
    return f"{pointer}{plain}" if plain in known else f"{UNDECIDED}{kind}"


def with_flags(rows: Rows, old: str, new: str, changes: Iterable[Difference]) -> Rows:
    """flags.csv."""
    by_flag = {row["flag"]: dict(row) for row in rows}
    empty = dict.fromkeys(rows[0], "")
    for flag, before, _ in changes:
        if flag in by_flag:
            by_flag[flag]["until" if before else "since"] = old if before else minor(new)
        elif not before and not flag.startswith(UNDECIDED):
            decided = {"type": UNDECIDED, "default": UNDECIDED, "since": minor(new)}
            by_flag[flag] = {**empty, "flag": flag, **decided}
    return sorted(by_flag.values(), key=lambda row: row["flag"])


def with_metrics(rows: Rows, old: str, new: str, changes: Iterable[Difference]) -> Rows:
    """metrics.csv. A changed level or a changed set of labels leaves the old one in ``earlier``."""
    by_name = {row["name"]: dict(row) for row in rows}
    empty = dict.fromkeys(rows[0], "")
    for name, before, after in changes:
        if name.startswith(UNDECIDED):
            continue
        row = by_name.get(name)
        if row is None:
            buckets = UNDECIDED if after.startswith("histogram") else ""
            added = {
                "name": name,
                "endpoint": "/metrics",
                "meaning": UNDECIDED,
                "since": minor(new),
            }
            by_name[name] = {**empty, **added, **_metric(after), "buckets": buckets}
        elif not after:
            row["until"] = old
        else:
            cells = _metric(after)
            changed = [
                f"{old}: {key}={row[key]}" for key in cells if before and row[key] != cells[key]
            ]
            earlier = "; ".join(changed)
            row |= {**cells, "earlier": earlier if len(changed) < 2 else f"{UNDECIDED} {earlier}"}
    return list(by_name.values())


def _metric(value: str) -> Mapping[str, str]:
    """The columns of a text such as ``counter driver_name|method ALPHA``."""
    kind, *rest = value.split()
    level = rest.pop() if rest and rest[-1].isupper() else ""
    return {"type": kind, "labels": " ".join(rest), "stability": level}
