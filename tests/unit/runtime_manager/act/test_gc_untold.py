"""Records whose end has not been reported to the API are not removed."""

from __future__ import annotations

import pytest

from kubeletpy.runtime_manager.plan.gc_selection import (
    DeadContainer,
    GCPolicy,
    containers_to_remove,
)


def dead(name: str, created: int, uid: str = "u") -> DeadContainer:
    return DeadContainer(f"{uid}-{name}-{created}", uid, name, created, unknown=False)


RUNS = [dead("a", n) for n in (1, 2, 3, 4)] + [dead("b", 1), dead("b", 2), dead("b", 9, "v")]


@pytest.mark.parametrize("policy", [GCPolicy(), GCPolicy(0, 0, 0), GCPolicy(0, 1, 1)])
@pytest.mark.parametrize("removable", [True, False])
def test_records_for_the_status_stay_until_it_is_reported(
    policy: GCPolicy, removable: bool
) -> None:
    going = containers_to_remove(
        RUNS,
        policy,
        lambda uid: removable,
        all_sources_ready=True,
        reported=lambda uid: uid != "u",
    )
    assert {"u-a-4", "u-a-3", "u-b-2", "u-b-1"}.isdisjoint(each.id for each in going)
    if removable:
        assert [each.id for each in going] == ["u-a-1", "u-a-2", "v-b-9"]


def test_once_it_is_reported_they_go() -> None:
    going = containers_to_remove(RUNS, GCPolicy(), lambda uid: True, all_sources_ready=True)
    assert len(going) == len(RUNS)
