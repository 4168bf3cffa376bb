"""The decisions that a plan reports."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import ContainerKind
from kubeletpy.pods.runtime_status import Decision, KillReason, StartError
from kubeletpy.runtime_manager.plan.actions import (
    KillContainer,
    PodActions,
    ResetContainer,
    StartContainer,
    kill_decision,
    start_decision,
)
from kubeletpy.runtime_manager.plan.resize import ResizePlan
from tests.unit.runtime_manager.pods_and_records import container

NOTHING = PodActions(kill_pod=False, create_sandbox=False, sandbox_id="s", attempt=0)
APP: Any = container("app")
REGULAR = ContainerKind.REGULAR
START = StartContainer(REGULAR, APP, "it is new")


def starting(name: str) -> StartContainer:
    spec: Any = container(name)
    return StartContainer(REGULAR, spec, "it is new")


def test_a_start_in_backoff_becomes_a_wait() -> None:
    starts = tuple(starting(name) for name in ("crashes", "pulls", "fails", "goes"))
    first = Decision("create sandbox, attempt 0", "the pod has none")
    actions = replace(
        NOTHING, regular_to_start=starts, decisions=(first, *map(start_decision, starts))
    )
    errors = {
        "crashes": StartError("CrashLoopBackOff", "back-off 10s"),
        "pulls": StartError("ImagePullBackOff", "back-off pulling"),
        "fails": StartError("ErrImagePull", "no such image"),
        "other": StartError("CrashLoopBackOff", "of another pod"),
    }
    assert actions.decided(errors) == (
        first,
        Decision("hold container crashes back", "back-off 10s"),
        Decision("hold container pulls back", "back-off pulling"),
        Decision("start container fails", "it is new", starts="fails"),
        Decision("start container goes", "it is new", starts="goes"),
    )
    assert actions.decided({}) == actions.decisions


@pytest.mark.parametrize(
    ("create", "sandbox", "replaces"),
    [(True, "s", True), (True, "", False), (False, "s", False), (False, "", False)],
)
def test_a_sandbox_is_replaced(create: bool, sandbox: str, replaces: bool) -> None:
    actions = replace(NOTHING, create_sandbox=create, sandbox_id=sandbox)
    assert actions.replaces_sandbox is replaces


@pytest.mark.parametrize(
    ("change", "nothing"),
    [
        ({}, True),
        ({"decisions": (Decision("leave container app", "it runs"),)}, True),
        ({"kill_pod": True}, False),
        ({"create_sandbox": True}, False),
        (
            {
                "containers_to_kill": (
                    KillContainer("id", "app", REGULAR, APP, "", KillReason.UNKNOWN_STATE),
                )
            },
            False,
        ),
        (
            {
                "containers_to_reset": (
                    ResetContainer("id", "app", REGULAR, APP, kill=False, source=False),
                )
            },
            False,
        ),
        ({"ephemeral_to_start": (START,)}, False),
        ({"init_to_start": (START,)}, False),
        ({"regular_to_start": (START,)}, False),
        ({"resize": ResizePlan(pod="its limits differ")}, False),
    ],
)
def test_nothing_to_do(change: dict[str, Any], nothing: bool) -> None:
    assert replace(NOTHING, **change).nothing_to_do is nothing


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (ContainerKind.REGULAR, "kill container app (id)"),
        (ContainerKind.INIT, "kill init container app (id)"),
        (ContainerKind.EPHEMERAL, "kill ephemeral container app (id)"),
    ],
)
def test_the_decision_of_a_kill_has_container_and_reason(kind: ContainerKind, what: str) -> None:
    kill = KillContainer("id", "app", kind, APP, "its probe failed", KillReason.STARTUP_PROBE)
    assert kill_decision(kill) == Decision(
        what, "its probe failed", killed="app", kill_reason=KillReason.STARTUP_PROBE
    )
