"""The next operations on volumes: tables, and invariants of every history of plans."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.model import (
    Mode,
    PublishedOnDisk,
    StagedOnDisk,
    VolumeSpec,
    VolumeWait,
    WaitCause,
    Waits,
)
from kubeletpy.volumes.operations.model import (
    Facts,
    Failure,
    Operation,
    OperationKind,
    OperationsPlan,
    PodDemand,
    PodMount,
    Presence,
    Volume,
)
from kubeletpy.volumes.operations.plan import ending_waits, is_published, plan, pv_size
from tests.kit.volumes import pv, spec

THERE, UNSURE, ABSENT = Presence.THERE, Presence.UNCERTAIN, Presence.ABSENT
STAGED = StagedOnDisk("kubernetes.io/csi", "vol", "/staged")
UNREAD = Waits(WaitCause.UNREAD, "claim", "503")


def left(uid: str) -> PublishedOnDisk:
    return PublishedOnDisk("kubernetes.io/csi", "vol", uid, "pv1", f"/pods/{uid}")


def there(
    device: Presence, *uids: str, state: Presence = THERE, found: bool = False, size: int = 0
) -> dict[str, Volume]:
    pods = {uid: PodMount(left(uid), state) for uid in uids}
    staged = None if device is ABSENT else STAGED
    return {
        "vol": Volume(
            "vol", "kubernetes.io/csi", pods, device, staged, device_found=found, size=size
        )
    }


def demand_of(uid: str, *specs: VolumeSpec) -> PodDemand:
    return PodDemand(uid, specs or (spec(),))


ENDED = PodDemand("u1", ending=True)
RWOP = spec(access_modes=("ReadWriteOncePod",))
BIG = spec(pv=pv(capacity={"storage": "2Gi"}))
FAILED = {
    (OperationKind.STAGE, ("vol", "")): Failure("boom", "NodeStageVolume of driver d", 1, 5000.0)
}
UNBLOCKED = Facts()
NO_DRIVER = Waits(WaitCause.DRIVER_MISSING, "csidriver", "not registered")
BLOCKED = {"vol": NO_DRIVER}
PAST_DUE = Facts(republished=frozenset({"vol"}))
RED = spec(selinux_context="red")
UNSTAGED = spec(device_mountable=False)
CONFLICT = WaitCause.SELINUX_CONFLICT
HELD = {
    (OperationKind.UNSTAGE, ("vol", "")): Failure(
        "busy", "NodeUnstageVolume of driver d", 1, 5000.0
    )
}
HELD_BACK = {
    name: replace(volume, expansion_held=True)
    for name, volume in there(THERE, "u1", size=1).items()
}
NOWHERE = {name: replace(volume, staged=None) for name, volume in there(UNSURE).items()}
NOW = 1000.0


@pytest.mark.parametrize(
    ("demands", "actual", "facts", "kinds", "cause"),
    [
        ([demand_of("u1")], {}, UNBLOCKED, [OperationKind.STAGE], WaitCause.BUSY),
        ([demand_of("u1")], there(UNSURE), UNBLOCKED, [OperationKind.STAGE], WaitCause.BUSY),
        ([demand_of("u1")], there(THERE), UNBLOCKED, [OperationKind.PUBLISH], WaitCause.BUSY),
        ([demand_of("u1")], there(THERE, "u1"), UNBLOCKED, [], None),
        (
            [demand_of("u1")],
            there(THERE, "u1", state=UNSURE),
            UNBLOCKED,
            [OperationKind.PUBLISH],
            WaitCause.BUSY,
        ),
        (
            [demand_of("u1"), demand_of("u2")],
            there(THERE),
            UNBLOCKED,
            [OperationKind.PUBLISH],
            WaitCause.BUSY,
        ),
        ([demand_of("u1", RWOP)], there(THERE, "u2"), UNBLOCKED, [], WaitCause.SOLE_USER),
        ([demand_of("u1")], {}, Facts(blocked={"vol": NO_DRIVER}), [], WaitCause.DRIVER_MISSING),
        ([demand_of("u1")], {}, Facts(attachments={"vol": UNREAD}), [], WaitCause.UNREAD),
        ([demand_of("u1")], {}, Facts(failures=FAILED), [], WaitCause.BACKOFF),
        (
            [demand_of("u1", BIG)],
            there(THERE, "u1", size=1 << 30),
            UNBLOCKED,
            [OperationKind.EXPAND],
            None,
        ),
        ([demand_of("u1", BIG)], there(THERE, "u1", size=2 << 30), UNBLOCKED, [], None),
        (
            [demand_of("u1", BIG)],
            there(THERE, "u1", size=(2 << 30) - 1),
            UNBLOCKED,
            [OperationKind.EXPAND],
            None,
        ),
        (
            [demand_of("u1", BIG)],
            there(THERE, "u1", size=1),
            UNBLOCKED,
            [OperationKind.EXPAND],
            None,
        ),
        ([demand_of("u1", BIG)], there(THERE, "u1", size=0), UNBLOCKED, [], None),
        (
            [PodDemand("u1", waits={"v": UNREAD})],
            there(THERE, "u1"),
            UNBLOCKED,
            [],
            WaitCause.UNREAD,
        ),
        ([], there(THERE, "u1"), UNBLOCKED, [], None),
        ([ENDED], there(THERE, "u1"), UNBLOCKED, [OperationKind.UNPUBLISH], None),
        ([ENDED], there(THERE, "u1", "u2"), UNBLOCKED, [OperationKind.UNPUBLISH], None),
        (
            [ENDED, PodDemand("u2", ending=True)],
            there(THERE, "u1", "u2"),
            UNBLOCKED,
            [OperationKind.UNPUBLISH, OperationKind.UNPUBLISH],
            None,
        ),
        ([PodDemand("u1", (spec(),), {"v": UNREAD}, True)], {}, UNBLOCKED, [], None),
        ([ENDED], there(THERE), UNBLOCKED, [OperationKind.UNSTAGE], None),
        (
            [demand_of("u1", replace(BIG, read_only=True))],
            there(THERE, "u1", size=1),
            UNBLOCKED,
            [],
            None,
        ),
        ([demand_of("u1", RWOP)], there(THERE, "u1"), UNBLOCKED, [], None),
        ([demand_of("u1", RWOP)], there(THERE), UNBLOCKED, [OperationKind.PUBLISH], WaitCause.BUSY),
        (
            [demand_of("u1", RWOP)],
            there(THERE, "u1", state=UNSURE),
            UNBLOCKED,
            [OperationKind.PUBLISH],
            WaitCause.BUSY,
        ),
        ([demand_of("u1", BIG)], HELD_BACK, UNBLOCKED, [], None),
        (
            [demand_of("u1", spec(), spec("other", pod_volume="w"))],
            {},
            UNBLOCKED,
            [OperationKind.STAGE, OperationKind.STAGE],
            WaitCause.BUSY,
        ),
        ([demand_of("u1", RED)], NOWHERE, UNBLOCKED, [OperationKind.STAGE], WaitCause.BUSY),
        ([demand_of("u1", UNSTAGED)], {}, UNBLOCKED, [OperationKind.PUBLISH], WaitCause.BUSY),
        ([demand_of("u1")], there(THERE, "u1"), PAST_DUE, [OperationKind.REPUBLISH], None),
        ([demand_of("u1")], there(THERE, "u1"), replace(PAST_DUE, blocked=BLOCKED), [], None),
        ([demand_of("u1")], there(THERE, "u1"), replace(PAST_DUE, attachments=BLOCKED), [], None),
        (
            [demand_of("u1", RED)],
            there(THERE),
            UNBLOCKED,
            [OperationKind.UNSTAGE],
            WaitCause.SELINUX_CONFLICT,
        ),
        ([demand_of("u1", RED)], there(THERE, "u2"), UNBLOCKED, [], WaitCause.SELINUX_CONFLICT),
        ([demand_of("u1", RED)], there(THERE), Facts(failures=HELD), [], WaitCause.BACKOFF),
        (
            [demand_of("u1", RED)],
            there(THERE, "u2"),
            Facts(failures=HELD),
            [],
            WaitCause.SELINUX_CONFLICT,
        ),
        ([demand_of("u1", RED)], there(ABSENT), UNBLOCKED, [OperationKind.STAGE], WaitCause.BUSY),
        (
            [demand_of("u1", RED)],
            there(THERE, "u1", state=UNSURE),
            UNBLOCKED,
            [OperationKind.PUBLISH],
            WaitCause.BUSY,
        ),
        (
            [demand_of("u1", RED), demand_of("u2")],
            there(THERE),
            UNBLOCKED,
            [OperationKind.PUBLISH],
            CONFLICT,
        ),
        ([], there(UNSURE), UNBLOCKED, [OperationKind.UNSTAGE], None),
        ([], there(THERE, found=True), UNBLOCKED, [], None),
        ([], there(THERE, found=True), Facts(leftovers_judged=True), [OperationKind.UNSTAGE], None),
        (
            [PodDemand("u1", waits={"v": UNREAD})],
            there(THERE, found=True),
            Facts(leftovers_judged=True),
            [],
            WaitCause.UNREAD,
        ),
    ],
)
def test_the_next_operations(
    demands: list[PodDemand],
    actual: dict[str, Volume],
    facts: Facts,
    kinds: list[OperationKind],
    cause: WaitCause | None,
) -> None:
    made = plan(demands, actual, facts, NOW)
    assert [operation.kind for operation in made.operations] == kinds
    wait = made.waits.get(("u1", "v"))
    assert (wait.cause if wait is not None else None) is cause


def test_only_what_shows_the_volume_waits_for_it() -> None:
    """A pod has one claim under two names, and another claim."""
    twice = [spec(), spec(pod_volume="again"), spec("other", pod_volume="other", spec_name="pv2")]
    actual = {
        "other": Volume(
            "other", "kubernetes.io/csi", {"u1": PodMount(left("u1"), THERE)}, THERE, STAGED
        )
    }
    blocked = Facts(blocked={"vol": NO_DRIVER})
    made = plan([demand_of("u1", *twice)], actual, blocked, 0.0)
    assert made.waits == {("u1", "v"): NO_DRIVER, ("u1", "again"): NO_DRIVER}


def test_time_alone_ends_a_backoff_and_calls_for_a_republish() -> None:
    made = plan([demand_of("u1")], {}, Facts(failures=FAILED), NOW)
    waits = Waits(WaitCause.BACKOFF, 'volume "vol"', "boom", "NodeStageVolume of driver d", 5000.0)
    assert made == OperationsPlan(waits={("u1", "v"): waits}, next_at=5000.0)
    over = plan([demand_of("u1")], {}, Facts(failures=FAILED), 5000.0)
    assert over.operations[0].kind is OperationKind.STAGE
    later = {
        (OperationKind.STAGE, ("other", "")): replace(
            FAILED[OperationKind.STAGE, ("vol", "")], retry_at=6000.0
        )
    }
    two = [demand_of("u1", spec(), spec("other", pod_volume="w"))]
    assert plan(two, {}, Facts(failures={**later, **FAILED}), NOW).next_at == 5000.0
    facts = Facts(republished=frozenset({"vol"}))
    assert plan([demand_of("u1")], there(THERE, "u1"), facts, 1.0).next_at == 60.0
    due = plan([demand_of("u1")], there(THERE, "u1"), facts, 60.0)
    assert [operation.kind for operation in due.operations] == [OperationKind.REPUBLISH]
    block = PodDemand("u1", (spec("vol", mode=Mode.BLOCK),))
    due = plan([block], there(THERE, "u1"), facts, 60.0)
    assert [operation.kind for operation in due.operations] == [OperationKind.REPUBLISH]


def test_nothing_else_is_done_to_a_volume_that_is_being_staged() -> None:
    staging = Operation(OperationKind.STAGE, "vol", "kubernetes.io/csi", "", "u1", spec())
    facts = Facts(running={staging.key: staging})
    made = plan([demand_of("u1"), demand_of("u2"), ENDED], there(UNSURE, "u3"), facts, 0.0)
    assert not made.operations
    assert made.waits["u2", "v"].call == "NodeStageVolume of driver d"


@pytest.mark.parametrize(
    ("running", "kinds"),
    [
        (Operation(OperationKind.STAGE, "vol", "p", "", "u2", spec()), []),
        (
            Operation(OperationKind.UNPUBLISH, "vol", "p", "", "u2", whole=False),
            [OperationKind.UNPUBLISH],
        ),
        (Operation(OperationKind.UNPUBLISH, "vol", "p", "", "u1", whole=False), []),
        (
            Operation(OperationKind.STAGE, "other", "p", "", "u1", spec("other")),
            [OperationKind.UNPUBLISH],
        ),
    ],
)
def test_operations_beside_one_in_progress(running: Operation, kinds: list[OperationKind]) -> None:
    facts = Facts(running={running.key: running})
    made = plan([ENDED], there(UNSURE, "u1", "u2"), facts, 0.0)
    assert [operation.kind for operation in made.operations] == kinds


def test_a_wait_names_the_pod_that_holds_a_sole_user_volume() -> None:
    made = plan([demand_of("u1", RWOP)], there(THERE, "u1", "u2", state=UNSURE), UNBLOCKED, 0.0)
    wait = made.waits["u1", "v"]
    assert (wait.cause, wait.object) == (WaitCause.SOLE_USER, 'pod with uid "u2"')
    assert not made.operations


def test_volumes_with_nothing_left_are_forgotten() -> None:
    unstaged = replace(there(THERE)["vol"], device=ABSENT)
    for volume in (there(ABSENT)["vol"], NOWHERE["vol"], unstaged):
        assert plan([], {"vol": volume}, UNBLOCKED, 0.0) == OperationsPlan(forgotten=("vol",))
    staging = Operation(OperationKind.STAGE, "vol", "kubernetes.io/csi", "", "u1", spec())
    busy = Facts(running={staging.key: staging})
    assert plan([], there(ABSENT), busy, 0.0) == OperationsPlan()
    elsewhere = Facts(running={("other", ""): replace(staging, unique_name="other")})
    assert plan([], there(ABSENT), elsewhere, 0.0) == OperationsPlan(forgotten=("vol",))


def test_each_pod_waits_under_its_own_name() -> None:
    one, other = demand_of("u1"), demand_of("u2", spec(pod_volume="w"))
    made = plan([one, other], {}, Facts(blocked=BLOCKED), 0.0)
    assert made == OperationsPlan(waits={("u1", "v"): NO_DRIVER, ("u2", "w"): NO_DRIVER})


OP = Operation(
    OperationKind.STAGE, "vol", "kubernetes.io/csi", "a pod needs the volume", "u1", spec()
)
OF_DEVICE = replace(OP, pod_uid="", spec=None, kind=OperationKind.UNSTAGE, staged=STAGED)


@pytest.mark.parametrize(
    ("demand", "actual", "operation"),
    [
        (demand_of("u1"), {}, replace(OP, reason="a pod needs the volume, and it is not staged")),
        (
            demand_of("u1"),
            there(THERE),
            replace(OP, kind=OperationKind.PUBLISH, reason="the pod needs the volume"),
        ),
        (
            demand_of("u1"),
            there(THERE, "u1", state=UNSURE),
            replace(
                OP,
                kind=OperationKind.PUBLISH,
                reason="whether the pod has the volume is not certain",
                mount=left("u1"),
            ),
        ),
        (
            demand_of("u1", UNSTAGED),
            {},
            replace(
                OP,
                kind=OperationKind.PUBLISH,
                reason="the pod needs the volume",
                spec=UNSTAGED,
                whole=False,
            ),
        ),
        (
            demand_of("u1", replace(UNSTAGED, attachable=True)),
            {},
            replace(
                OP,
                kind=OperationKind.PUBLISH,
                reason="the pod needs the volume",
                spec=replace(UNSTAGED, attachable=True),
            ),
        ),
        (
            demand_of("u1", replace(UNSTAGED, pv=BIG.pv)),
            there(ABSENT, "u1", size=1),
            replace(
                OP,
                kind=OperationKind.EXPAND,
                reason=f"the PersistentVolume has {2 << 30} bytes, the volume 1",
                spec=replace(UNSTAGED, pv=BIG.pv),
                mount=left("u1"),
            ),
        ),
        (
            ENDED,
            there(THERE, "u1"),
            replace(
                OP,
                kind=OperationKind.UNPUBLISH,
                reason="the pod's containers have exited",
                spec=None,
                mount=left("u1"),
                whole=False,
            ),
        ),
        (
            ENDED,
            there(THERE),
            replace(OF_DEVICE, reason="no pod of this node has or needs the volume"),
        ),
        (
            demand_of("u1", RED),
            there(THERE),
            replace(OF_DEVICE, reason="a pod needs it with another SELinux label"),
        ),
    ],
)
def test_the_reason_of_an_operation(
    demand: PodDemand, actual: dict[str, Volume], operation: Operation
) -> None:
    assert plan([demand], actual, UNBLOCKED, 0.0).operations == (operation,)


# -- histories -------------------------------------------------------------------------------

UIDS = ("u1", "u2", "u3")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["want", "end", "unread"]), st.sampled_from(UIDS)),
        st.tuples(st.just("finish"), st.sampled_from(["done", "failed", "unsure"])),
    ),
    max_size=40,
)


class Node:
    """A volume, pods that come and go, and operations with random outcomes."""

    def __init__(self) -> None:
        self.demands: dict[str, PodDemand] = {}
        self.actual: dict[str, Volume] = {}
        self.running: list[Operation] = []

    def go_on(self) -> None:
        facts = Facts(running={op.key: op for op in self.running}, leftovers_judged=True)
        made = plan(self.demands.values(), self.actual, facts, 0.0)
        for operation in made.operations:
            self.check(operation)
            self.running.append(operation)
        for name in made.forgotten:
            assert not self.actual[name].pods
            del self.actual[name]
        keys = [operation.key for operation in self.running]
        assert len(set(keys)) == len(keys), "one at a time"
        assert ("vol", "") not in keys or len(keys) == 1, "the whole volume, and nothing else"

    def check(self, operation: Operation) -> None:
        volume = self.actual.get("vol")
        desired = any(d.specs and not d.ending for d in self.demands.values())
        if operation.kind is OperationKind.UNSTAGE:
            assert not desired
            assert volume is not None
            assert not volume.pods
        if operation.kind is OperationKind.UNPUBLISH:
            assert self.demands[operation.pod_uid].ending

    def finish(self, how: str) -> None:
        if not self.running:
            return
        operation = self.running.pop(0)
        volume = self.actual.get("vol") or Volume("vol", "kubernetes.io/csi")
        pods = dict(volume.pods)
        uid = operation.pod_uid
        match operation.kind, how:
            case OperationKind.STAGE, "done" | "unsure":
                state = THERE if how == "done" else UNSURE
                volume = replace(volume, device=state, staged=STAGED)
            case OperationKind.PUBLISH, "done" | "unsure":
                pods[uid] = PodMount(left(uid), THERE if how == "done" else UNSURE)
            case OperationKind.UNPUBLISH, "done":
                del pods[uid]
            case OperationKind.UNSTAGE, "done":
                volume = replace(volume, device=ABSENT, staged=None)
            case OperationKind.UNSTAGE, _:
                volume = replace(volume, device=UNSURE)
        self.actual["vol"] = replace(volume, pods=pods)


@given(STEPS)
@settings(max_examples=300)
def test_no_history_takes_a_volume_from_a_running_pod_and_all_pods_end(
    steps: list[tuple[str, str]],
) -> None:
    node = Node()
    ended: set[str] = set()
    for what, which in steps:
        if what == "finish":
            node.finish(which)
        elif what == "end":
            node.demands[which] = PodDemand(which, ending=True)
            ended.add(which)
        elif which not in ended:
            unread = PodDemand(which, waits={"v": UNREAD})
            node.demands[which] = unread if what == "unread" else demand_of(which)
        node.go_on()
    for _ in range(30):
        node.finish("done")
        node.go_on()
    assert not node.running
    volume = node.actual.get("vol")
    published = set(volume.pods) if volume is not None else set()
    wanting = {uid for uid, demand in node.demands.items() if demand.specs}
    assert wanting <= published
    assert not published & ended
    if not node.demands.keys() - ended:
        assert volume is None


@pytest.mark.parametrize(
    ("volume", "certain"),
    [
        (None, False),
        (there(THERE)["vol"], False),
        (there(THERE, "u2")["vol"], False),
        (there(THERE, "u1", state=UNSURE)["vol"], False),
        (there(THERE, "u1")["vol"], True),
    ],
)
def test_whether_a_pod_has_a_volume_for_certain(volume: Volume | None, certain: bool) -> None:
    assert is_published(volume, "u1") is certain


@pytest.mark.parametrize(
    ("capacity", "size"),
    [({"storage": "1Ki"}, 1024), ({"storage": "-1"}, 0), ({"storage": "lots"}, 0), ({}, 0)],
)
def test_the_size_that_a_volume_should_have(capacity: dict[str, str], size: int) -> None:
    assert pv_size(spec(pv=pv(capacity=capacity))) == size


# Volumes that the end of a pod waits for.

ABOUT, CALL = 'volume "d^h"', "NodeUnpublishVolume of driver d"
MOUNT = PublishedOnDisk("csi", "d^h", "u1", "pv", "/p", driver="d")
VOLUME = Volume("d^h", "csi", {"u1": PodMount(MOUNT, Presence.THERE)})
TAKEN = Operation(OperationKind.UNPUBLISH, "d^h", "csi", "", "u1", mount=MOUNT, whole=False)
BUSY = Failure("busy", CALL, 2, 30.0, 20.0)


def waits(
    *under_way: tuple[Operation, float], failures: dict[OperationKind, Failure] | None = None
) -> list[VolumeWait]:
    known = {(kind, ("d^h", "u1")): failure for kind, failure in (failures or {}).items()}
    return list(ending_waits("u1", {"d^h": VOLUME}, under_way, known))


def test_a_wait_for_a_running_operation() -> None:
    busy = Waits(WaitCause.BUSY, ABOUT, f"{CALL} is under way", CALL)
    expected = [VolumeWait("pv", busy, 7.0, "d")]
    assert waits((TAKEN, 7.0)) == expected
    assert waits((TAKEN, 7.0), failures={OperationKind.UNPUBLISH: BUSY}) == expected


def test_a_wait_for_a_failed_operation() -> None:
    later = Waits(WaitCause.BACKOFF, ABOUT, "busy", CALL, 30.0)
    assert waits(failures={OperationKind.UNPUBLISH: BUSY}) == [VolumeWait("pv", later, 20.0, "d")]


def test_other_operations_and_pods_are_no_wait() -> None:
    assert waits() == []
    assert waits(failures={OperationKind.PUBLISH: BUSY}) == []
    assert waits((replace(TAKEN, kind=OperationKind.PUBLISH), 7.0)) == []
    assert waits((replace(TAKEN, pod_uid="u2"), 7.0)) == []
    assert list(ending_waits("u2", {"d^h": VOLUME}, [(TAKEN, 7.0)], {})) == []
    removed = [(replace(TAKEN, pod_uid="u2"), 7.0)]
    assert list(ending_waits("u2", {"d^h": VOLUME}, removed, {})) == []
