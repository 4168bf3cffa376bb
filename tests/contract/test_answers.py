"""Every answer is that of a Kubernetes 1.37 API server, as it was recorded.

An earlier server answers otherwise in the steps that ``earlier.csv`` lists.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract import answers, earlier, left
from tests.contract.conversation import every, hold
from tests.contract.over_http2 import Way
from tests.contract.server import Server


@pytest.mark.parametrize("name", answers.names())
def test_a_conversation(name: str, server: Server, is_embedded: bool) -> None:
    steps, expected = answers.steps(name), answers.recorded(name)
    assert [step.name for step in every(steps)] == list(expected), "record it again"
    got = hold(server, steps, server.namespace(name.replace("_", "-")))
    version = earlier.version(server.client("admin").send("GET", "/version").body["gitVersion"])
    problems = []
    for step, answer in got.items():
        if is_embedded:
            lines = left.unexpected(name, step, expected[step], answer)
        else:
            lines = earlier.unexpected(version, name, step, expected[step], answer)
        problems += [f"{name}, {step}: {line}" for line in lines]
    assert problems == []


OVER_HTTP2 = ("watching", "changing_pods", "pages", "what_a_node_reads", "forms")
"""Verbs, forms of patches, bodies, watches, pages and refusals: what a transport could change."""


@pytest.mark.parametrize("name", OVER_HTTP2)
def test_a_conversation_over_http2(
    name: str, server: Server, is_embedded: bool, tmp_path: Path
) -> None:
    way = Way(server, tmp_path)
    try:
        test_a_conversation(name, server, is_embedded)
    finally:
        assert way.close() == 1


def test_the_list_of_differences_names_steps() -> None:
    listed = {(name, step.name) for name in answers.names() for step in every(answers.steps(name))}
    assert listed >= left.WORDS | left.OTHERWISE
    assert len(left.WORDS | left.OTHERWISE) == len(left.ROWS), "each once"


def test_each_difference_of_an_earlier_version_has_a_reason() -> None:
    listed = {(name, step.name) for name in answers.names() for step in every(answers.steps(name))}
    named = [(row["conversation"], row["step"]) for row in earlier.rows()]
    assert set(named) <= listed
    assert len(set(named)) == len(named)
    assert {row["before"] for row in earlier.rows()} == {"1.36", "1.37"}
    assert all(row["reason"] for row in earlier.rows())


def test_an_earlier_server_may_differ_only_where_it_is_listed() -> None:
    old, step = (1, 36), "can I, nothing"
    refused = {"body": {"message": "pods is forbidden: node: no relationship found"}}
    without = {"body": {"message": "pods is forbidden: no relationship found"}}
    assert earlier.unexpected(old, "access_reviews", step, refused, {}) == []
    assert earlier.unexpected(old, "access_reviews", step, refused, without) != []
    assert earlier.unexpected(old, "nodes", "all", refused, without) == []
    assert earlier.unexpected(old, "nodes", "all", refused, refused) != []
    assert earlier.unexpected((1, 37), "nodes", "all", refused, without) != []
    assert earlier.unexpected((1, 37), "access_reviews", step, refused, {}) != []
