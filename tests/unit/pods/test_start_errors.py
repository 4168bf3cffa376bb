"""Start errors of a runtime are shown without the values of secrets."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.pods.runtime_status import MOST_QUOTED, reported_reason
from tests.unit.proportion import is_linear

KEY = {"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
SAID = 'runc: exec: "/x/hush": stat /x/hush: no such file'


@pytest.mark.parametrize(
    ("fields", "stated", "reported"),
    [
        ({}, SAID, SAID),
        ({"env": [{"name": "A", "value": "b"}]}, SAID, SAID),
        ({"envFrom": [{"configMapRef": {"name": "c"}}]}, SAID, SAID),
        ({"env": [KEY]}, SAID, 'runc: exec: "***": stat ***: no such file'),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'a "b" "" c', 'a "***" "" c'),
        ({"env": [KEY]}, r'exec: "a \"b\" c" d', 'exec: "***" d'),
        ({"env": [KEY]}, "killed", "killed"),
        ({"env": [KEY]}, 'exec: "/x/hu', 'exec: "***'),
        ({"env": [KEY]}, 'exec: "a\\', 'exec: "***\\'),
        ({"env": [KEY]}, 'exec: "a\\\nb" c', 'exec: "***" c'),
        ({"env": [KEY]}, 'no "/x" in "/x/hush"', 'no "***" in "***"'),
        (
            {"env": [KEY]},
            " ".join(f'"{n:03}"' for n in range(MOST_QUOTED)),
            " ".join(['"***"'] * MOST_QUOTED),
        ),
        ({"env": [KEY]}, " ".join(f'"{n:03}"' for n in range(MOST_QUOTED + 1)), "***"),
    ],
)
def test_reasons(fields: Any, stated: str, reported: str) -> None:
    assert reported_reason(stated, cast(Any, {"name": "c", **fields})) == reported


@pytest.mark.parametrize("piece", ['"', '\\"', '"a', 'a"\\', '" '])
def test_a_reason_is_read_in_linear_time(piece: str) -> None:
    container = cast(Any, {"name": "c", "env": [KEY]})
    assert is_linear(lambda size: reported_reason('"' + piece * size, container))
