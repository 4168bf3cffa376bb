"""A decision is recorded when it, or what it is about, has changed."""

from __future__ import annotations

from kubeletpy.observe.recorder.model import LineKind, News
from tests.unit.podworkers.builders import make_pod, runtime_status


def test_inputs_and_decisions_that_count_as_news() -> None:
    news = News()
    pod, status = make_pod("a"), runtime_status("a")
    assert news.has(LineKind.PLAN, pod, status, {"start": ["c"]})
    assert not news.has(LineKind.PLAN, pod, status, {"start": ["c"]})
    assert news.has(LineKind.STATUS, pod, status, {"start": ["c"]}), "another kind"
    assert news.has(LineKind.PLAN, pod, status, {}), "another decision"
    assert news.has(LineKind.PLAN, make_pod("a"), status, {}), "another object of the pod"
    pod, status = make_pod("a"), runtime_status("a")
    assert news.has(LineKind.PLAN, pod, status, {})
    assert news.has(LineKind.PLAN, pod, runtime_status("a"), {}), "the status was read again"
    assert news.has(LineKind.PLAN, make_pod("b"), status, {}), "another pod"


def test_a_removed_pod_and_a_new_file_start_afresh() -> None:
    news = News()
    pods = [make_pod("a"), make_pod("b")]
    status = runtime_status("a")
    for pod in pods:
        assert news.has(LineKind.PLAN, pod, status, {})
    news.gone(pods[0].uid)
    news.gone("unknown")
    assert [news.has(LineKind.PLAN, pod, status, {}) for pod in pods] == [True, False]
    news.begin()
    assert [news.has(LineKind.PLAN, pod, status, {}) for pod in pods] == [True, True]
