"""Differences of earlier Kubernetes versions from the newest: ``earlier.csv``."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import Any

from tests.contract.client import JSON
from tests.contract.conversation import differences

NEWEST = (1, 37)
"""The version whose answers are recorded."""
_NAMED = re.compile(r"(^|: )node: ")
"""The authorizer's name in front of its reason, from 1.37 on."""


@cache
def rows() -> tuple[JSON, ...]:
    """Steps that servers before a version answer differently, each with the reason."""
    with Path(__file__).with_name("earlier.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


def version(text: str) -> tuple[int, int]:
    """Major and minor of ``v1.36.3`` or ``1.36``."""
    major, minor = text.removeprefix("v").split(".")[:2]
    return int(major), int(minor)


@cache
def accepted(server: tuple[int, int]) -> frozenset[tuple[str, str]]:
    """The steps that a server of this version may answer differently."""
    return frozenset(
        (row["conversation"], row["step"]) for row in rows() if server < version(row["before"])
    )


def unexpected(
    server: tuple[int, int], conversation: str, step: str, expected: JSON, got: JSON
) -> list[str]:
    """Unexpected differences in an answer of a server of this version."""
    lines = differences(expected if server >= NEWEST else _without_names(expected), got)
    if (conversation, step) not in accepted(server):
        return lines
    return [] if lines else [f"{conversation}, {step}: is listed, and does not differ"]


def _without_names(answer: Any) -> Any:
    if isinstance(answer, dict):
        return {key: _without_names(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [_without_names(each) for each in answer]
    return _NAMED.sub(r"\1", answer) if isinstance(answer, str) else answer
