"""Which nodes a NodeSelector matches: for pod affinity and for persistent volumes. Pure.

Source: API conventions of node selectors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def matches(selector: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """Whether one of a NodeSelector's terms matches the node with these labels and this name."""
    terms = selector.get("nodeSelectorTerms") or ()
    return any(_matches_term(term, labels, name) for term in terms)


def _matches_term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """Whether all requirements of a term match; a term without any matches nothing."""
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(meets(entry, labels) for entry in expressions) and all(
        entry.get("key") == "metadata.name"
        and entry.get("operator") in ("In", "NotIn")
        and len(entry.get("values") or ()) == 1
        and meets(entry, {"metadata.name": name})
        for entry in fields
    )


def meets(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether one requirement matches; a malformed one matches nothing."""
    found = labels.get(requirement.get("key") or "")
    values: Sequence[str] = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return found in values
        case "NotIn":
            return bool(values) and found not in values
        case "Exists":
            return not values and found is not None
        case "DoesNotExist":
            return not values and found is None
        case "Gt" | "Lt" as operator:
            (only,) = values if len(values) == 1 else (None,)
            number, bound = _whole(found), _whole(only)
            if number is None or bound is None:
                return False
            return number > bound if operator == "Gt" else number < bound
        case _:
            return False


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None
