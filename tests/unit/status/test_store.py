"""What keeping, merging, patching and finishing a status do to it."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.status import store
from kubeletpy.status.finish import finished_status
from kubeletpy.status.patch import status_patch

from .samples import NOW, pod, shown

T0 = "2026-01-01T00:00:00Z"
T1 = "2027-01-15T08:00:00Z"  # NOW


def ready(status: str, time: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": status,
        **({"lastTransitionTime": time} if time else {}),
        **more,
    }


@pytest.mark.parametrize(
    ("before", "after", "time"),
    [
        ([], ready("True"), T1),
        ([ready("True", T0)], ready("True"), T0),
        ([ready("False", T0)], ready("True"), T1),
        ([ready("True", T0, reason="x")], ready("True", reason="y"), T0),
    ],
)
def test_transition_times(before: Any, after: Any, time: str) -> None:
    kept = store.prepare(pod(), {"conditions": [after]}, {"conditions": before}, NOW)
    assert kept["conditions"][0]["lastTransitionTime"] == time


def test_start_time_is_set_once() -> None:
    assert store.prepare(pod(), {}, {}, NOW)["startTime"] == T1
    assert store.prepare(pod(), {}, {"startTime": T0}, NOW)["startTime"] == T0


def test_messages_share_the_pods_limit() -> None:
    of = pod("a", "b")
    long = shown("a", terminated={"exitCode": 1, "message": "é" * 12288})
    kept = store.prepare(of, {"containerStatuses": [long]}, {}, NOW)  # type: ignore[list-item]
    message = kept["containerStatuses"][0]["state"]["terminated"]["message"]
    assert len(message.encode()) == 12288 // 2
    assert long["state"]["terminated"]["message"] == "é" * 12288, "the input is left alone"


def test_foreign_conditions_do_not_make_a_difference() -> None:
    theirs = {"type": "x/y", "status": "True"}
    assert store.same({"conditions": [theirs]}, {})  # type: ignore[list-item]
    assert not store.same({"conditions": [ready("True")]}, {})  # type: ignore[list-item]
    assert not store.same({"phase": "Running"}, {"phase": "Pending"})


@pytest.mark.parametrize(
    ("spec", "exit_code", "fine"),
    [
        ({"restartPolicy": "Always"}, 0, True),
        ({"restartPolicy": "Never"}, 1, False),
        ({"restartPolicy": "OnFailure"}, 0, False),
        ({"restartPolicy": "OnFailure"}, 1, True),
    ],
)
def test_the_dead_do_not_rise(spec: Any, exit_code: int, fine: bool) -> None:
    old: Any = {"containerStatuses": [shown("a", terminated={"exitCode": exit_code})]}
    new: Any = {"containerStatuses": [shown("a", running={})]}
    problem = store.illegal_transition(pod(**spec), old, new)
    assert (problem is None) is fine
    another: Any = {"containerStatuses": [{**shown("a", running={}), "restartCount": 1}]}
    assert store.illegal_transition(pod(**spec), old, another) is None
    assert store.illegal_transition(pod(**spec), old, old) is None


def test_a_terminal_phase_is_held_back_while_containers_may_run() -> None:
    kept: Any = {"phase": "Failed", "reason": "Evicted", "conditions": [ready("True")]}
    held = store.merge_for_api({"phase": "Running"}, kept, containers_may_run=True)
    assert held["phase"] == "Running"
    assert "reason" not in held
    told = store.merge_for_api({"phase": "Running"}, kept, containers_may_run=False)
    assert (told["phase"], told["reason"]) == ("Failed", "Evicted")
    assert told["conditions"][0]["status"] == "False"
    assert told["conditions"][0]["reason"] == "PodFailed"


def test_fields_of_others_survive_the_merge() -> None:
    in_api: Any = {
        "resourceClaimStatuses": [{"name": "c"}],
        "conditions": [{"type": "x/y", "status": "True"}, ready("False")],
    }
    kept: Any = {"phase": "Running", "conditions": [ready("True")]}
    merged = store.merge_for_api(in_api, kept, containers_may_run=True)
    assert merged["resourceClaimStatuses"] == [{"name": "c"}]
    assert [c["type"] for c in merged["conditions"]] == ["x/y", "Ready"]
    assert merged["conditions"][1]["status"] == "True"


def test_the_patch_says_only_what_differs() -> None:
    in_api: Any = {"phase": "Pending", "reason": "x", "conditions": [ready("False", T0)]}
    after: Any = {
        "phase": "Running",
        "podIPs": [{"ip": "1.2.3.4"}],
        "conditions": [ready("True", T1)],
    }
    assert status_patch("u", in_api, after) == {
        "metadata": {"uid": "u"},
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": "1.2.3.4"}],
            "reason": None,
            "conditions": [ready("True", T1)],
        },
    }
    assert status_patch("u", after, after) is None


def test_lists_keyed_by_ip_are_replaced() -> None:
    in_api: Any = {"podIPs": [{"ip": "1.2.3.4"}]}
    patch: Any = status_patch("u", in_api, {"podIPs": [{"ip": "5.6.7.8"}]})
    assert patch["status"]["podIPs"] == [{"ip": "5.6.7.8"}, {"$patch": "replace"}]


def test_a_condition_field_that_is_gone_is_nulled() -> None:
    before: Any = {"conditions": [ready("False", T0, reason="r", message="m")]}
    after: Any = {"conditions": [ready("True", T1)]}
    patch: Any = status_patch("u", before, after)
    assert patch["status"]["conditions"] == [ready("True", T1, reason=None, message=None)]


@pytest.mark.parametrize(
    ("spec", "statuses", "inits", "container", "init"),
    [
        ({}, [shown("a", running={})], [], 137, None),
        ({}, [shown("a", terminated={"exitCode": 4})], [], 4, None),
        ({"init": [{"name": "i"}]}, [shown("a", waiting={})], [shown("i", waiting={})], None, 137),
        (
            {"init": [{"name": "i"}]},
            [shown("a", waiting={})],
            [shown("i", terminated={"exitCode": 0})],
            137,
            0,
        ),
    ],
)
def test_what_is_open_at_the_end_is_settled(
    spec: Any, statuses: Any, inits: Any, container: int | None, init: int | None
) -> None:
    done = finished_status(
        pod(**spec),
        {"phase": "Running", "containerStatuses": statuses, "initContainerStatuses": inits},
    )

    def code(entries: Any) -> Any:
        return entries[0]["state"].get("terminated", {}).get("exitCode") if entries else None

    assert code(done["containerStatuses"]) == container
    assert code(done.get("initContainerStatuses")) == init
    assert done["phase"] == "Failed"
