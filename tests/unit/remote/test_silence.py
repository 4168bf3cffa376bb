"""The error for a silent peer names the call and the time instead of quoting gRPC."""

from __future__ import annotations

import pytest

from kubeletpy.remote.errors import Code, is_silence, no_answer, runtime_is_silent


@pytest.mark.parametrize(
    ("code", "details", "silent"),
    [
        (Code.DEADLINE_EXCEEDED, "", True),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", True),
        (Code.DEADLINE_EXCEEDED, "Stream removed (Deadline Exceeded)", True),
        (Code.UNKNOWN, "Stream removed (Deadline Exceeded)", True),
        (Code.CANCELLED, "Stream removed (Deadline Exceeded)", True),
        (Code.UNKNOWN, "Stream removed", False),
        (Code.DEADLINE_EXCEEDED, "timeout 1s exceeded: context deadline exceeded", False),
        (Code.UNAVAILABLE, "Deadline Exceeded", False),
        (Code.UNKNOWN, "no such image", False),
    ],
)
def test_silence(code: Code, details: str, silent: bool) -> None:
    assert is_silence(code, details) is silent


def test_texts() -> None:
    assert no_answer(120) == "no answer within 120s"
    assert no_answer(None) == "no answer in time"
    assert runtime_is_silent("RunPodSandbox", "unix:///run/x.sock", 240) == (
        "no answer within 240s to RunPodSandbox from the container runtime at unix:///run/x.sock; "
        "check that it is running and not overloaded or stopped, or raise runtimeRequestTimeout"
    )
