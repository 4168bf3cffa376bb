"""The state of a volume after an operation, and the names of operations (table sg)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    Mode,
    Published,
    PublishedOnDisk,
    StagedOnDisk,
)
from kubeletpy.volumes.operations.model import (
    Facts,
    Operation,
    OperationKind,
    PodDemand,
    PodMount,
    Presence,
    Volume,
)
from kubeletpy.volumes.operations.plan import (
    NOT_REQUIRED,
    Flow,
    Left,
    OperationDone,
    after,
    failed,
    finished,
    flow,
    plan,
)
from tests.kit.volumes import spec

MOUNT = PublishedOnDisk("csi", "v", "u1", "pv", "/p", driver="d")
STAGED = StagedOnDisk("csi", "v", "/s", driver="d", spec_name="pv")
THERE = PodMount(MOUNT, Presence.THERE, found=True)
MAYBE = PodMount(MOUNT, Presence.UNCERTAIN, found=True)
EMPTY = Volume("v", "csi")
NOW = 7.0


def done(
    volume: Volume | None, kind: OperationKind, result: Any, left: Left | None = None
) -> Volume:
    operation = Operation(kind, "v", "csi", "why", pod_uid="u1")
    return after(volume, operation, result, left or Left(MOUNT, STAGED), NOW)


def test_an_unknown_volume_becomes_known() -> None:
    operation = Operation(OperationKind.STAGE, "v", "csi", "why", spec=spec(attachable=True))
    volume = after(None, operation, FailureOutcome.FINAL, Left(), NOW)
    assert volume == Volume("v", "csi", attachable=True)
    plain = replace(operation, spec=spec(attachable=False))
    assert after(volume, plain, FailureOutcome.FINAL, Left(), NOW).attachable
    assert not after(None, plain, FailureOutcome.FINAL, Left(), NOW).attachable


@pytest.mark.parametrize(
    ("kind", "result", "device", "staged", "found"),
    [
        (OperationKind.STAGE, OperationDone(), Presence.THERE, True, False),
        (OperationKind.STAGE, FailureOutcome.UNCERTAIN, Presence.UNCERTAIN, True, True),
        (OperationKind.STAGE, FailureOutcome.FINAL, Presence.ABSENT, False, True),
        (OperationKind.STAGE, FailureOutcome.TRANSIENT, Presence.ABSENT, False, True),
        (OperationKind.UNSTAGE, OperationDone(), Presence.ABSENT, False, False),
        (OperationKind.UNSTAGE, FailureOutcome.FINAL, Presence.UNCERTAIN, False, True),
        (OperationKind.UNSTAGE, FailureOutcome.UNCERTAIN, Presence.UNCERTAIN, False, True),
    ],
)
def test_the_device(
    kind: OperationKind, result: Any, device: Presence, staged: bool, found: bool
) -> None:
    volume = done(replace(EMPTY, device_found=True), kind, result)
    assert (volume.device, volume.staged, volume.device_found) == (
        device,
        STAGED if staged else None,
        found,
    )


def test_unstaged_for_certain_nothing_is_staged() -> None:
    volume = done(
        replace(EMPTY, staged=STAGED, device=Presence.THERE), OperationKind.UNSTAGE, OperationDone()
    )
    assert (volume.staged, volume.device) == (None, Presence.ABSENT)


@pytest.mark.parametrize(
    ("pods", "held", "result", "left", "still_held"),
    [
        ({"u1": THERE}, True, OperationDone(), [], False),
        ({"u1": THERE, "u2": THERE}, True, OperationDone(), ["u2"], True),
        ({"u1": THERE, "u2": THERE}, False, OperationDone(), ["u2"], False),
        ({"u1": THERE}, True, FailureOutcome.FINAL, ["u1"], True),
        ({}, True, FailureOutcome.FINAL, [], False),
    ],
)
def test_unpublished(pods: Any, held: bool, result: Any, left: Any, still_held: bool) -> None:
    volume = done(replace(EMPTY, pods=pods, expansion_held=held), OperationKind.UNPUBLISH, result)
    assert (list(volume.pods), volume.expansion_held) == (left, still_held)
    if "u1" in volume.pods:
        assert volume.pods["u1"] == replace(THERE, state=Presence.UNCERTAIN)


@pytest.mark.parametrize("kind", [OperationKind.PUBLISH, OperationKind.REPUBLISH])
@pytest.mark.parametrize(
    ("before", "result", "mount"),
    [
        (
            None,
            OperationDone(Published("/p")),
            PodMount(MOUNT, Presence.THERE, False, Published("/p"), NOW),
        ),
        (
            THERE,
            OperationDone(Published("/p")),
            PodMount(MOUNT, Presence.THERE, False, Published("/p"), NOW),
        ),
        # a running pod keeps its mount
        (THERE, FailureOutcome.UNCERTAIN, THERE),
        (THERE, FailureOutcome.FINAL, THERE),
        (None, FailureOutcome.UNCERTAIN, PodMount(MOUNT, Presence.UNCERTAIN)),
        (MAYBE, FailureOutcome.UNCERTAIN, MAYBE),
        # a publish before the uncertainty is not relied on
        (replace(MAYBE, published=Published("/old"), at=3.0), FailureOutcome.UNCERTAIN, MAYBE),
        (replace(MAYBE, found=False), FailureOutcome.UNCERTAIN, replace(MAYBE, found=False)),
        (None, FailureOutcome.FINAL, None),
        (MAYBE, FailureOutcome.FINAL, MAYBE),
    ],
)
def test_published(kind: OperationKind, before: Any, result: Any, mount: Any) -> None:
    pods = {} if before is None else {"u1": before}
    assert done(replace(EMPTY, pods=pods), kind, result).pods.get("u1") == mount


def test_a_mount_without_a_path_is_not_recorded() -> None:
    assert done(EMPTY, OperationKind.PUBLISH, FailureOutcome.UNCERTAIN, Left()).pods == {}


@pytest.mark.parametrize("kind", [OperationKind.EXPAND, OperationKind.PUBLISH])
@pytest.mark.parametrize(
    ("before", "notified", "size"), [(0, 5, 5), (3, 5, 5), (5, 3, 3), (3, 0, 3), (0, 0, 0)]
)
def test_the_size(kind: OperationKind, before: int, notified: int, size: int) -> None:
    volume = done(replace(EMPTY, size=before), kind, OperationDone(size=notified))
    assert volume.size == size
    assert done(replace(EMPTY, size=before), kind, FailureOutcome.FINAL).size == before


def test_an_operation_without_a_size_changes_none() -> None:
    assert done(replace(EMPTY, size=3), OperationKind.PUBLISH, OperationDone()).size == 3


def test_an_expansion_that_falls_short_is_not_repeated_until_something_changes() -> None:
    """If its claim shows that it is not this node's turn, it must not be retried permanently."""
    desired = spec(
        pv={"spec": {"capacity": {"storage": "3"}}},
        claim={"status": {"capacity": {"storage": "1"}, "allocatedResources": {"storage": "2"}}},
    )
    expand = Operation(OperationKind.EXPAND, "v", "csi", "why", pod_uid="u1", spec=desired)
    there = replace(EMPTY, size=1, pods={"u1": replace(THERE, published=Published("/p"))})
    short = after(there, expand, OperationDone(size=2), Left(), NOW)
    assert short.expanded_for == (3, 1, "2", "")

    def planned(volume: Volume, of: Any) -> list[OperationKind]:
        demand = PodDemand("u1", (replace(of, unique_name="v"),))
        return [each.kind for each in plan([demand], {"v": volume}, Facts(), NOW).operations]

    assert planned(there, desired) == [OperationKind.EXPAND]
    assert planned(short, desired) == []
    turn = {"allocatedResourceStatuses": {"storage": "NodeResizePending"}}
    changed = {"status": {**(desired.claim or {})["status"], **turn}}
    assert planned(short, replace(desired, claim=changed)) == [OperationKind.EXPAND]
    assert after(there, expand, FailureOutcome.UNCERTAIN, Left(), NOW).expanded_for is None


LOCAL = PublishedOnDisk("local", "v", "u1", "pv", "/p")


@pytest.mark.parametrize(
    ("facts", "call"),
    [
        ({"mount": MOUNT}, "NodePublishVolume of driver d"),
        ({"staged": STAGED}, "NodePublishVolume of driver d"),
        ({"mount": LOCAL}, 'mount of csi volume "pv"'),
        ({"mount": LOCAL, "staged": STAGED}, 'mount of csi volume "pv"'),
        ({}, 'mount of csi volume "v"'),
        (
            {"spec": spec(kind="local", spec_name="of-spec"), "mount": MOUNT},
            'mount of csi volume "of-spec"',
        ),
    ],
)
def test_the_call_of_an_operation(facts: Any, call: str) -> None:
    assert Operation(OperationKind.PUBLISH, "v", "csi", "why", **facts).call == call


@pytest.mark.parametrize(
    ("facts", "block"),
    [
        ({}, False),
        ({"mount": MOUNT}, False),
        ({"mount": replace(MOUNT, mode=Mode.BLOCK)}, True),
        ({"spec": spec(mode=Mode.BLOCK)}, True),
        ({"spec": spec(mode=Mode.BLOCK), "mount": MOUNT}, True),
        ({"spec": spec(), "mount": replace(MOUNT, mode=Mode.BLOCK)}, False),
        ({"staged": replace(STAGED, mode=Mode.BLOCK)}, True),
    ],
)
def test_the_metric_name_of_an_operation(facts: Any, block: bool) -> None:
    names = {
        of_block: Operation(
            OperationKind.PUBLISH, "v", "csi", "why", mount=replace(MOUNT, mode=mode)
        ).metric_name
        for of_block, mode in ((True, Mode.BLOCK), (False, Mode.FILESYSTEM))
    }
    assert len(set(names.values())) == 2
    assert Operation(OperationKind.PUBLISH, "v", "csi", "why", **facts).metric_name == names[block]


@pytest.mark.parametrize(("whole", "uid"), [(True, ""), (False, "u1")])
def test_the_key_of_an_operation(whole: bool, uid: str) -> None:
    operation = Operation(OperationKind.PUBLISH, "v", "csi", "why", pod_uid="u1", whole=whole)
    assert operation.key == ("v", uid)
    assert Operation(OperationKind.PUBLISH, "v", "csi", "why", pod_uid="u1").whole


# When a volume grows on this node, and the status of its claim (tables so2, so3).

GIB = 1 << 30
SHARED = ("ReadWriteMany",)


def claim(states: Any = None, sizes: Any = None, has: str = "1Gi", **notes: str) -> dict[str, Any]:
    status: dict[str, Any] = {"capacity": {"storage": has}}
    if states is not None:
        status["allocatedResourceStatuses"] = {"storage": states} if states else {"other": "x"}
    if sizes is not None:
        status["allocatedResources"] = {"storage": sizes} if sizes else {"other": "x"}
    return {"metadata": {"annotations": notes}, "status": status}


@pytest.mark.parametrize(
    ("of", "modes", "expected"),
    [
        (None, (), (Flow.LEGACY, 2 * GIB)),
        (claim(), (), (Flow.LEGACY, 2 * GIB)),
        (claim("NodeResizePending"), (), (Flow.RECOVERY, 2 * GIB)),
        (claim("NodeResizePending", "3Gi"), (), (Flow.RECOVERY, 3 * GIB)),
        (claim("NodeResizeInProgress", "3Gi"), (), (Flow.RECOVERY, 3 * GIB)),
        (claim("NodeResizeInfeasible", "3Gi"), (), (Flow.WAIT, 3 * GIB)),
        (claim("ControllerResizeInProgress", "3Gi", has="3Gi"), (), (Flow.WAIT, 3 * GIB)),
        (claim(None, "3Gi"), (), (Flow.WAIT, 3 * GIB)),
        (claim(None, "3Gi", has="3Gi"), (), (Flow.NOTHING, 3 * GIB)),
        (claim(None, "3Gi", has="4Gi"), (), (Flow.NOTHING, 3 * GIB)),
        (claim("", "", has="2Gi"), (), (Flow.NOTHING, 2 * GIB)),
        (claim(None, "3Gi", has="3Gi"), SHARED, (Flow.EXPAND_ONLY, 3 * GIB)),
        (claim(None, "3Gi", has="3Gi", **{NOT_REQUIRED: ""}), SHARED, (Flow.NOTHING, 3 * GIB)),
        (claim(None, "3Gi", has="1Gi"), SHARED, (Flow.WAIT, 3 * GIB)),
    ],
)
def test_the_flow_and_size_of_an_expansion(of: Any, modes: Any, expected: Any) -> None:
    pv = {"spec": {"capacity": {"storage": "2Gi"}}}
    assert flow(spec(claim=of, pv=pv, access_modes=modes)) == expected


@pytest.mark.parametrize(
    ("of", "states"), [(claim(), None), (claim("NodeResizeInProgress"), {"storage": None})]
)
def test_a_claim_that_has_grown(of: Any, states: Any) -> None:
    patch = finished(of, "3Gi")["status"]
    assert patch["capacity"] == {"storage": "3Gi"}
    assert patch.get("allocatedResourceStatuses") == states
    assert {entry["$patch"] for entry in patch["conditions"]} == {"delete"}


@pytest.mark.parametrize("infeasible", [True, False])
def test_a_claim_that_could_not_grow(infeasible: bool) -> None:
    status = failed("why", "then", infeasible=infeasible)["status"]
    assert (status["conditions"][0]["type"], status["conditions"][0]["message"]) == (
        "NodeResizeError",
        "why",
    )
    states = {"storage": "NodeResizeInfeasible"} if infeasible else None
    assert status.get("allocatedResourceStatuses") == states
