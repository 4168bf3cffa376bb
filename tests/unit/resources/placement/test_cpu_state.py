"""Allocation of CPUs to containers, and their return to the pool."""

from __future__ import annotations

import pytest

from kubeletpy.resources.placement.state import CpuState, Entries

P = "static"
C0, C12, C1, C2 = frozenset({0}), frozenset({1, 2}), frozenset({1}), frozenset({2})
NONE: frozenset[int] = frozenset()


@pytest.mark.parametrize(
    ("entries", "container", "left", "back"),
    [
        ({"u": {"a": C12}}, "a", {}, C12),
        ({"u": {"a": C1, "b": C2}}, "a", {"u": {"b": C2}}, C1),
        # the CPUs of an init container also belong to a later container
        ({"u": {"i": C12, "a": C1}}, "i", {"u": {"a": C1}}, C2),
        ({"u": {"a": C1}, "v": {"a": C2}}, "a", {"v": {"a": C2}}, C1),
        ({"u": {"a": C1}}, "x", {"u": {"a": C1}}, NONE),
        ({"v": {"a": C1}}, "a", {"v": {"a": C1}}, NONE),
        ({}, "a", {}, NONE),
    ],
)
def test_taken_back(entries: Entries, container: str, left: Entries, back: frozenset[int]) -> None:
    assert CpuState(P, C0, entries).without_container("u", container) == CpuState(
        P, C0 | back, left
    )


@pytest.mark.parametrize(
    ("uids", "left", "back"),
    [
        ({"u", "v"}, {"u": {"a": C12}, "v": {"a": C1}}, NONE),
        ({"u"}, {"u": {"a": C12}}, NONE),
        ({"v"}, {"v": {"a": C1}}, C2),
        ({"x"}, {}, C12),
    ],
)
def test_without_all_but(uids: set[str], left: Entries, back: frozenset[int]) -> None:
    state = CpuState(P, C0, {"u": {"a": C12}, "v": {"a": C1}})
    found = state.without_all_but(uids)
    assert found == CpuState(P, C0 | back, left)
    assert (found is state) == (uids == {"u", "v"})


def test_cpus_of_a_container() -> None:
    state = CpuState(P, C0 | C12, {"v": {"a": C0}})
    one = state.with_container("u", "a", C1)
    assert one == CpuState(P, C0 | C2, {"v": {"a": C0}, "u": {"a": C1}})
    two = one.with_container("u", "b", C2)
    assert two == CpuState(P, C0, {"v": {"a": C0}, "u": {"a": C1, "b": C2}})
    assert (
        two.container_cpus("u", "b"),
        two.container_cpus("u", "x"),
        two.container_cpus("x", "b"),
    ) == (C2, None, None)
    assert two.exclusive == C0 | C12


@pytest.mark.parametrize(
    ("state", "empty"),
    [
        (CpuState(P), True),
        (CpuState(P, C0), False),
        (CpuState(P, NONE, {"u": {"a": C0}}), False),
        (CpuState(P, C1, {"u": {"a": C0}}), False),
    ],
)
def test_empty(state: CpuState, empty: bool) -> None:
    assert state.is_empty is empty
