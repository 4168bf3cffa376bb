"""The metrics that a PromQL expression names, and the metrics that an agent has."""

from __future__ import annotations

import re

from tools.rulebook.differences import allowed
from tools.rulebook.tables import rows

OF_PROMETHEUS = frozenset({"up"})
OF_KUBE_STATE_METRICS = frozenset(
    {"kube_node_status_condition", "kube_pod_container_status_waiting_reason"}
)
_STRINGS = re.compile(r'"[^"]*"')
_IGNORED = re.compile(
    r"\{[^}]*\}|\[[^\]]*\]|\boffset\s+\w+"  # selectors, ranges
    r"|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"  # labels
)
_NAME = re.compile(r"(?<![\w:.])([a-zA-Z_:][\w:]*)\s*(\(?)")
_PARTS = frozenset({"and", "or", "unless", "bool", "inf", "nan"})


def metrics_of(expression: str) -> set[str]:
    """The metrics (and recorded series) that an expression names."""
    text = _IGNORED.sub(" ", _STRINGS.sub("", expression))
    return {name for name, call in _NAME.findall(text) if not call and name.lower() not in _PARTS}


def labels_of(expression: str) -> set[str]:
    """The labels that an expression selects or groups by."""
    text = _STRINGS.sub('""', expression)
    selected = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"\"", text)
    grouped = re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", text)
    return {*selected, *(each.strip() for group in grouped for each in group.split(","))}


def labels() -> dict[str, set[str]]:
    """The labels of each row of metrics.csv."""
    return {row["name"]: set(filter(None, row["labels"].split("|"))) for row in rows("metrics.csv")}


def exported() -> set[str]:
    """Metrics that the agent's endpoints may have: the served rows of metrics.csv."""
    kinds = {
        row["name"]: row["type"]
        for row in rows("metrics.csv")
        if not allowed("metrics.csv", row["name"], "not served")
    }
    parts = ("_bucket", "_sum", "_count")
    histograms = {name for name, kind in kinds.items() if kind == "histogram"}
    return (kinds.keys() - histograms) | {f"{name}{part}" for name in histograms for part in parts}
