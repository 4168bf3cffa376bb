"""What is shown of a runtime's reason when it may hold values of secrets."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.pods.start_errors import shown_reason

KEY = {"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
SAID = 'runc: exec: "/x/hush": stat /x/hush: no such file'


@pytest.mark.parametrize(
    ("fields", "said", "shown"),
    [
        ({}, SAID, SAID),
        ({"env": [{"name": "A", "value": "b"}]}, SAID, SAID),
        ({"envFrom": [{"configMapRef": {"name": "c"}}]}, SAID, SAID),
        ({"env": [KEY]}, SAID, 'runc: exec: "***": stat ***: no such file'),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, 'a "b" "" c', 'a "***" "" c'),
        ({"env": [KEY]}, r'exec: "a \"b\" c" d', 'exec: "***" d'),
        ({"env": [KEY]}, "killed", "killed"),
    ],
)
def test_reasons(fields: Any, said: str, shown: str) -> None:
    assert shown_reason(said, cast(Any, {"name": "c", **fields})) == shown
