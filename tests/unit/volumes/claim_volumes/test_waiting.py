"""Waits of a pod that are reported as events, and the end of its patience."""

from __future__ import annotations

import pytest

from kubeletpy.volumes.claims.model import WaitCause, Waits, wait_text
from kubeletpy.volumes.operations.waiting import (
    ATTACH_PATIENCE_S,
    LIMIT_PATIENCE_S,
    Patience,
    VolumesWait,
)


def waits(cause: WaitCause, name: str = "v") -> dict[str, Waits]:
    return {name: Waits(cause, 'volumeattachment "x"', "no room")}


@pytest.mark.parametrize(
    ("cause", "patient", "reported"),
    [
        (WaitCause.BUSY, False, True),
        (WaitCause.BACKOFF, False, True),
        (WaitCause.NOT_ATTACHED, True, True),
        (WaitCause.NOT_ATTACHED, False, False),
        (WaitCause.ATTACH_LIMIT, True, False),
        (WaitCause.ATTACH_FAILED, True, False),
        (WaitCause.CLAIM_LOST, True, False),
        (WaitCause.NOT_IN_USE_YET, False, True),
    ],
)
def test_waits_that_are_not_reported(cause: WaitCause, patient: bool, reported: bool) -> None:
    assert VolumesWait(waits(cause), patient=patient).reported is reported


def test_one_that_is_not_reported_is_enough() -> None:
    attaching, busy = waits(WaitCause.NOT_ATTACHED, "a"), waits(WaitCause.BUSY, "b")
    assert VolumesWait({**attaching, **busy}, patient=True).reported
    unbound = {**attaching, **waits(WaitCause.CLAIM_UNBOUND, "b")}
    assert not VolumesWait(unbound, patient=True).reported
    assert not VolumesWait({**waits(WaitCause.CLAIM_LOST, "a"), **busy}).reported
    assert VolumesWait({**waits(WaitCause.BUSY, "a"), **waits(WaitCause.BACKOFF, "b")}).reported
    stated = str(VolumesWait({**waits(WaitCause.CLAIM_LOST, "a"), **waits(WaitCause.BUSY, "b")}))
    assert stated.startswith('volume "a": no room')
    assert '; volume "b": no room' in stated


def test_attachments_may_take_a_moment() -> None:
    patience, missing = Patience(), waits(WaitCause.NOT_ATTACHED)
    assert patience.has("u1", missing, 5.0)
    assert patience.has("u1", missing, 5.0 + ATTACH_PATIENCE_S - 1)
    assert not patience.has("u1", missing, 5.0 + ATTACH_PATIENCE_S)
    assert patience.has("u2", missing, 5.0 + ATTACH_PATIENCE_S), "each pod for itself"
    assert patience.has("u1", {}, 50.0)
    assert patience.has("u1", missing, 60.0), "it begins anew"


def test_a_full_node_is_waited_for_as_long_as_the_kubelet_does() -> None:
    patience = Patience()
    assert not patience.ends("u1", 0.0, full=True)
    assert not patience.ends("u1", LIMIT_PATIENCE_S - 1, full=True)
    assert patience.ends("u1", LIMIT_PATIENCE_S, full=True)
    assert not patience.ends("u1", LIMIT_PATIENCE_S, full=False)
    assert not patience.ends("u1", LIMIT_PATIENCE_S + 1, full=True), "there was room meanwhile"
    patience.forget("u1")
    assert not patience.ends("u1", 999.0, full=True)


def test_the_volumes_for_which_the_node_is_full() -> None:
    both = {**waits(WaitCause.ATTACH_LIMIT, "a"), **waits(WaitCause.NOT_ATTACHED, "b")}
    assert VolumesWait(both, node_is_full=True).node_is_full == ("a",)
    assert VolumesWait(both).node_is_full == ()


@pytest.mark.parametrize(
    ("cause", "message", "call", "stated"),
    [
        (WaitCause.CLAIM_LOST, "lost", "", "lost (waiting for pv x)"),
        (WaitCause.CLAIM_LOST, "pv x is lost", "", "pv x is lost"),
        (WaitCause.BUSY, "another operation", "", "another operation"),
        (WaitCause.BACKOFF, "no room", "Stage of d", "no room (failed: Stage of d)"),
        (WaitCause.BACKOFF, "Stage of d: no room", "Stage of d", "Stage of d: no room"),
        (WaitCause.NOT_ATTACHED, "no", "Publish", "no (waiting for pv x) (needed: Publish)"),
    ],
)
def test_the_text_of_a_wait(cause: WaitCause, message: str, call: str, stated: str) -> None:
    assert wait_text(Waits(cause, "pv x", message, call)) == stated
