"""Every answer is that of a Kubernetes 1.36 API server, as it was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract import answers, left
from tests.contract.conversation import differences, every, hold
from tests.contract.over_http2 import Way
from tests.contract.server import Server


@pytest.mark.parametrize("name", answers.names())
def test_a_conversation(name: str, server: Server, is_embedded: bool) -> None:
    steps, expected = answers.steps(name), answers.recorded(name)
    assert [step.name for step in every(steps)] == list(expected), "record it again"
    got = hold(server, steps, server.namespace(name.replace("_", "-")))
    problems = []
    for step, answer in got.items():
        if is_embedded:
            lines = left.unexpected(name, step, expected[step], answer)
        else:
            lines = differences(expected[step], answer)
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
    assert not left.WORDS & left.OTHERWISE
