"""Which nodes a NodeSelector picks: of pods' affinity, and of persistent volumes. Pure.

Source: API conventions of node selectors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def matches(selector: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """Whether one of a NodeSelector's terms picks the node with these labels and this name."""
    terms = selector.get("nodeSelectorTerms") or ()
    return any(_matches_term(term, labels, name) for term in terms)


def _matches_term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """All requirements of a term; a term without any matches nothing."""
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_matches(entry, labels) for entry in expressions) and all(
        entry.get("key") == "metadata.name"
        and entry.get("operator") in ("In", "NotIn")
        and len(entry.get("values") or ()) == 1
        and _matches(entry, {"metadata.name": name})
        for entry in fields
    )


def _matches(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """One requirement; what is malformed matches nothing."""
    found = labels.get(requirement.get("key") or "")
    values: Sequence[str] = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return found is not None and found in values
        case "NotIn":
            return bool(values) and (found is None or found not in values)
        case "Exists":
            return not values and found is not None
        case "DoesNotExist":
            return not values and found is None
        case "Gt" | "Lt" as operator:
            number, bound = _whole(found), _whole(values[0] if len(values) == 1 else None)
            if number is None or bound is None:
                return False
            return number > bound if operator == "Gt" else number < bound
        case _:
            return False


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None
