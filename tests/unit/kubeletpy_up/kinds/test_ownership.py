"""Garbage collection of an object whose owners are removed."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up.kinds import meta
from kubeletpy_up.kinds.meta import ABSENT, SOLID, WAITING, Verdict


def made(uid: str = "u", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "uid": uid, **metadata}}


@pytest.mark.parametrize(
    ("states", "finalizers", "has_dependents", "expected"),
    [
        ({"a": SOLID}, [], False, Verdict()),
        ({"a": SOLID, "b": ABSENT}, [], False, Verdict(disown={"b"})),
        ({"a": SOLID, "b": WAITING}, [], True, Verdict(disown={"b"})),
        ({"a": ABSENT}, [], True, Verdict(delete="Background")),
        ({"a": ABSENT, "b": ABSENT}, ["orphan"], True, Verdict(delete="Orphan")),
        ({"a": ABSENT}, ["foregroundDeletion"], False, Verdict(delete="Foreground")),
        ({"a": WAITING}, [], True, Verdict(delete="Foreground")),
        ({"a": WAITING}, [], False, Verdict(delete="Background")),
        ({"a": ABSENT, "b": WAITING}, [], False, Verdict(delete="Background")),
    ],
)
def test_the_verdict(
    states: dict[str, str], finalizers: list[str], has_dependents: bool, expected: Verdict
) -> None:
    obj = made(finalizers=finalizers)
    assert meta.judge(obj, states, has_dependents=has_dependents) == expected


def test_the_state_of_an_owner() -> None:
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    reference = {"uid": "u"}
    assert meta.state(None, reference) == ABSENT
    assert meta.state(made("v"), reference) == ABSENT
    assert meta.state(made(), reference) == SOLID
    assert meta.state(made(**going), reference) == SOLID
    assert meta.state(made(**going, finalizers=["foregroundDeletion"]), reference) == WAITING


def test_dependents_that_block_an_owner() -> None:
    references = [{"uid": "u", "blockOwnerDeletion": True}, {"uid": "v"}]
    dependent = made("d", ownerReferences=references)
    assert meta.blocks(dependent, "u")
    assert not meta.blocks(dependent, "v")
    assert meta.owner_uids(dependent) == {"u", "v"}
