"""Outcome of a change, from the plans before and after it."""

from __future__ import annotations

import pytest

from kubeletpy.observe.foresee.change import (
    Change,
    ChangeMethod,
    Fate,
    acts,
    fate,
    forbidden,
    hints,
    restarted,
)
from kubeletpy.observe.foresee.model import Act, Durations, ForeseenOutcome, ImageUse
from kubeletpy.pods.runtime_status import Decision, SyncIntent
from tests.unit.observe.foresee.pods import container, pod

KEEP = Decision("keep container a", "it runs")
KILL = Decision("kill container a", "its image changed")


def intent(*decisions: Decision, **more: object) -> SyncIntent:
    return SyncIntent(decisions, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (intent(), intent(), ForeseenOutcome.UNCHANGED),
        (intent(), intent(resized=("a",)), ForeseenOutcome.IN_PLACE),
        (intent(resized=("a",)), intent(resized=("a",)), ForeseenOutcome.UNCHANGED),
        (intent(), intent(stopped=("a",), started=("a",)), ForeseenOutcome.RESTARTS),
        (intent(started=("a",)), intent(started=("a",), resized=("b",)), ForeseenOutcome.IN_PLACE),
        (intent(), intent(new_sandbox=True, started=("a",)), ForeseenOutcome.RECREATES),
        (
            intent(new_sandbox=True),
            intent(new_sandbox=True, started=("a",)),
            ForeseenOutcome.RESTARTS,
        ),
        (intent(), intent(ends=True), ForeseenOutcome.ENDS),
        (intent(ends=True), intent(ends=True), ForeseenOutcome.UNCHANGED),
    ],
)
def test_actions_that_the_sync_takes_anyway_do_not_count(
    before: SyncIntent, after: SyncIntent, outcome: ForeseenOutcome
) -> None:
    assert fate(before, after) == Fate(outcome)


def test_actions_in_order() -> None:
    before = intent(KEEP, started=("b",))
    after = intent(KEEP, KILL, started=("b", "a"))
    images = [ImageUse("a:2", ("a",), "pull", "absent"), ImageUse("x", ("a",), "use", "present")]
    assert restarted(before, after) == ("a",)
    assert acts(before, after, images, Durations([])) == [
        Act("kill container a", "its image changed"),
        Act("pull image a:2", "absent"),
        Act("CreateContainer a"),
        Act("StartContainer a"),
    ]


def changed(*paths: str, way: ChangeMethod = ChangeMethod.NEVER) -> list[Change]:
    return [Change(path, way) for path in paths]


def test_changes_that_the_api_server_refuses() -> None:
    one, many = changed("a", "b"), changed(*(f"f{n}" for n in range(12)))
    ten = ", ".join(f"spec.f{n}" for n in range(10))
    text = "it has to be deleted and created anew"
    assert forbidden(pod(), pod(), one) == Fate(
        ForeseenOutcome.FORBIDDEN,
        "Forbidden",
        f"the API server lets nobody change spec.a, spec.b of a pod that exists: {text}",
    )
    assert forbidden(pod(), pod(), many) == Fate(
        ForeseenOutcome.FORBIDDEN,
        "Forbidden",
        f"the API server lets nobody change {ten} and 2 more of a pod that exists: {text}",
    )
    assert forbidden(pod(), pod(), many[:10]) == Fate(
        ForeseenOutcome.FORBIDDEN,
        "Forbidden",
        f"the API server lets nobody change {ten} of a pod that exists: {text}",
    )
    assert forbidden(pod(), pod(), changed("a", way=ChangeMethod.UPDATE)) is None


def test_a_resize_keeps_the_qos_class() -> None:
    sized = pod(container("a", resources={"requests": {"cpu": "1"}}))
    resize = changed("containers[a].resources.requests.cpu", way=ChangeMethod.RESIZE)
    assert forbidden(pod(), sized, resize) == Fate(
        ForeseenOutcome.FORBIDDEN,
        "Invalid",
        "a resize may not change the pod's QoS class from BestEffort to Burstable",
    )
    assert forbidden(sized, sized, resize) is None
    assert forbidden(pod(), sized, changed("x", way=ChangeMethod.UPDATE)) is None


def test_how_a_change_is_made() -> None:
    assert hints(changed("containers[a].image", way=ChangeMethod.UPDATE)) == ()
    assert hints(
        [
            Change("ephemeralContainers[e]", ChangeMethod.DEBUG),
            Change("activeDeadlineSeconds", ChangeMethod.UPDATE),
            Change("resources.requests.cpu", ChangeMethod.RESIZE),
        ]
    ) == (
        "resources are changed with `kubectl patch --subresource resize`",
        "ephemeral containers are added with `kubectl debug`",
        "once activeDeadlineSeconds are over the pod is stopped and Failed",
    )
