"""Watches that keep failing, for the node and for the pods that depend on them."""

from __future__ import annotations

from typing import Any

from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.kubeapi.watch_state import FailingWatch
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.gather import explain
from kubeletpy.observe.explain.texts import failing_watches
from kubeletpy.pods.runtime_status import StartError
from tests.unit.observe.explain.facts import NOW, OFFSET, facts, not_ready, waiting

WHY = "the answer is no gzip"
SERVICES = FailingWatch("services", "", "", f"watch of services: {WHY}", 40.0, 12)
TOKEN = FailingWatch("secrets", "default", "token", f"watch of secrets: {WHY}", 70.0, 5)


def unstarted(message: str, cause: Cause | None = None, **more: Any) -> PodFacts:
    error = StartError("CreateContainerConfigError", message, NOW + 7, cause=cause)
    status = not_ready(waiting("CreateContainerConfigError"))
    return facts(status=status, start_errors={"main": error}, **more)


def test_a_node_names_its_failing_watches_by_reason() -> None:
    nodes = FailingWatch("nodes", "", "node-1", "connection refused", 50.0, 2)
    assert failing_watches([SERVICES, nodes, TOKEN], 100.0) == [
        "the watch of services, secrets default/token has failed for 1m "
        "(12 times in a row): the answer is no gzip; changes there are not seen",
        "the watch of nodes node-1 has failed for 50s (2 times in a row): "
        "connection refused; changes there are not seen",
    ]


def test_an_unreachable_api_is_one_sentence() -> None:
    """The message of a request without an answer begins with the request's path."""
    away = [
        FailingWatch(each, "", "", f"GET https://api:6443/api/v1/{each}: refused", 40.0, 2)
        for each in ("nodes", "pods", "services")
    ]
    assert failing_watches(away, 100.0) == [
        "the watch of nodes, pods, services has failed for 1m (2 times in a "
        "row): refused; changes there are not seen"
    ]


def test_many_watches_that_fail_for_one_reason_are_one_sentence() -> None:
    many = [FailingWatch("secrets", "ns", f"s{n}", WHY, 1.0, 2) for n in range(500)]
    (stated,) = failing_watches(many, 100.0)
    assert stated.startswith(
        "the watch of secrets ns/s0, secrets ns/s1, secrets ns/s2 and 497 more "
    )


def test_a_pod_that_waits_for_services_names_their_watch() -> None:
    unread = Cause(CauseKind.SERVICES_UNREAD)
    found = explain(unstarted("no services", unread, failing_watches=(SERVICES,)))
    assert found.verdict == f"not running: the watch of services has failed for 1m: {WHY}"
    assert (found.waits[0].kind, found.waits[0].subject) == ("watch", "services")
    assert found.waits[0].since == 40.0 + OFFSET
    assert "kubeletpy explain --node" in found.hint


def test_a_pod_that_waits_for_something_else_does_not() -> None:
    found = explain(unstarted("container has no such key", failing_watches=(SERVICES,)))
    assert [each.kind for each in found.waits] == ["start error"]
    assert explain(facts(failing_watches=(SERVICES,))).waits == ()


def test_a_pod_that_waits_for_an_object_names_its_watch() -> None:
    found = explain(unstarted("secret could not be read", failing_watches=(TOKEN,)))
    assert found.verdict.endswith(f"the watch of secrets default/token has failed for 30s: {WHY}")
