"""A decision is recorded when it, or what it is about, has changed."""

from __future__ import annotations

from kubeletpy.observe.recorder.model import Changes, LineKind
from tests.unit.podworkers.builders import make_pod, runtime_status


def test_inputs_and_decisions_that_count_as_news() -> None:
    changes = Changes()
    pod, status = make_pod("a"), runtime_status("a")
    assert changes.has(LineKind.PLAN, pod, status, {"start": ["c"]})
    assert not changes.has(LineKind.PLAN, pod, status, {"start": ["c"]})
    assert changes.has(LineKind.STATUS, pod, status, {"start": ["c"]}), "another kind"
    assert changes.has(LineKind.PLAN, pod, status, {}), "another decision"
    assert changes.has(LineKind.PLAN, make_pod("a"), status, {}), "another object of the pod"
    pod, status = make_pod("a"), runtime_status("a")
    assert changes.has(LineKind.PLAN, pod, status, {})
    assert changes.has(LineKind.PLAN, pod, runtime_status("a"), {}), "the status was read again"
    assert changes.has(LineKind.PLAN, make_pod("b"), status, {}), "another pod"


def test_a_removed_pod_and_a_new_file_start_afresh() -> None:
    changes = Changes()
    pods = [make_pod("a"), make_pod("b")]
    status = runtime_status("a")
    for pod in pods:
        assert changes.has(LineKind.PLAN, pod, status, {})
    changes.removed(pods[0].uid)
    changes.removed("unknown")
    assert [changes.has(LineKind.PLAN, pod, status, {}) for pod in pods] == [True, False]
    changes.begin()
    assert [changes.has(LineKind.PLAN, pod, status, {}) for pod in pods] == [True, True]
