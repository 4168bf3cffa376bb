"""When an operation on a volume is retried (docs/reference/behaviour-storage.md, sd2)."""

from __future__ import annotations

from kubeletpy.volumes.claims.model import FailureOutcome, OperationFailed
from kubeletpy.volumes.operations.model import Backoffs, Failure, Key, OperationKind

ONE: Key = ("vol", "uid")
ERROR = OperationFailed(next(iter(FailureOutcome)), "disk is full", call="NodeStageVolume")


def test_each_wait_is_twice_the_one_before_up_to_two_minutes() -> None:
    backoffs = Backoffs()
    waits = []
    for _ in range(2000):
        backoffs.failed((OperationKind.STAGE, ONE), ERROR, "d", 10.0)
        waits.append(backoffs.failures[OperationKind.STAGE, ONE].retry_at - 10.0)
    assert waits[:10] == [0.5, 1, 2, 4, 8, 16, 32, 64, 122, 122]
    assert set(waits[10:]) == {122.0}


def test_failures_are_counted_from_the_first_in_a_row() -> None:
    backoffs = Backoffs()
    backoffs.failed((OperationKind.STAGE, ONE), ERROR, "d", 10.0)
    backoffs.failed((OperationKind.STAGE, ONE), ERROR, "d", 20.0)
    assert backoffs.failures == {
        (OperationKind.STAGE, ONE): Failure("disk is full", "NodeStageVolume", 2, 21.0, 10.0)
    }
    # another operation on the volume resets all of them
    backoffs.failed((OperationKind.UNSTAGE, ONE), ERROR, "d", 30.0)
    assert backoffs.failures == {
        (OperationKind.UNSTAGE, ONE): Failure("disk is full", "NodeStageVolume", 1, 30.5, 30.0)
    }
    assert backoffs.ended(OperationKind.STAGE, ONE) is None
    assert backoffs.failures == {}


def test_a_driver_that_changed_may_be_tried_at_once() -> None:
    def failed() -> Backoffs:
        made = Backoffs()
        for name, driver in (("a", "d"), ("b", "e"), ("c", "d")):
            made.failed((OperationKind.STAGE, (name, "uid")), ERROR, driver, 0.0)
        return made

    for driver, left in (("d", ["b"]), ("e", ["a", "c"]), ("f", ["a", "b", "c"]), ("", [])):
        backoffs = failed()
        backoffs.driver_changed(driver)
        assert [name for _, (name, _) in backoffs.failures] == left
        backoffs.driver_changed("")
        assert backoffs.failures == {}


def test_why_a_volume_could_not_be_taken_from_a_pod() -> None:
    backoffs = Backoffs()
    backoffs.failed((OperationKind.UNSTAGE, ("a", "uid")), ERROR, "d", 0.0)
    backoffs.failed((OperationKind.UNPUBLISH, ("b", "other")), ERROR, "d", 0.0)
    assert backoffs.of_unpublish("uid") is None
    backoffs.failed((OperationKind.UNPUBLISH, ("c", "uid")), ERROR, "d", 5.0)
    assert backoffs.of_unpublish("uid") is backoffs.failures[OperationKind.UNPUBLISH, ("c", "uid")]
