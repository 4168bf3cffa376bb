"""Pods that should have ended: an event names each blocker, at intervals."""

from __future__ import annotations

import asyncio
import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.stuck import (
    CHECK_S,
    CHECKS_PER_REFRESH,
    FILE_NAME,
    REPEAT_S,
    WRITE_CHECK_S,
    KeptTroubles,
    StuckPods,
    held_up_by,
)
from kubeletpy.podworkers.history import OVER_S, Troubles
from kubeletpy.podworkers.records import Stage
from kubeletpy.status.store import WriteProblem
from tests.kit.events import Recorder
from tests.kit.observe import NOW, doing, facts, failed
from tests.kit.pods import make_pod
from tests.kit.virtual_time import on_virtual_time
from tests.unit.observe.explain.test_verdict import DELETED, HELD

LATE: dict[str, Any] = {"terminating_at": NOW - 41, "grace": 30}
RELEASING: dict[str, Any] = {**LATE, "terminated_at": NOW - 11}
DONE: dict[str, Any] = {**RELEASING, "finished": True}
CASES: list[tuple[str, dict[str, Any], str | None]] = [
    ("runs", {}, None),
    ("within its grace period", {"worker": {**LATE, "terminating_at": NOW - 39}}, None),
    ("hook", {"trace": doing(TraceCall.PRE_STOP, "main", 41, 30), "worker": LATE}, "hook main"),
    (
        "signal",
        {"trace": doing(TraceCall.STOP_CONTAINER, "main", 41), "worker": LATE},
        "grace period main",
    ),
    (
        "call",
        {"trace": doing(TraceCall.STOP_POD_SANDBOX, "ab", 9), "worker": LATE},
        "runtime call ab",
    ),
    ("runtime", {"runtime_error": "it is down", "worker": LATE}, "runtime"),
    (
        "kill fails",
        {"last_sync": failed(Step.KILL, "no answer", Stage.TERMINATING), "worker": LATE},
        "stop",
    ),
    ("nothing known", {"worker": LATE}, "worker"),
    ("just stopped", {"worker": {**RELEASING, "terminated_at": NOW - 9}}, None),
    (
        "volumes fail",
        {"last_sync": failed(Step.VOLUMES, "busy", Stage.TERMINATED), "worker": RELEASING},
        "volume",
    ),
    (
        "volumes hang",
        {"trace": doing(TraceCall.TAKE_VOLUMES_DOWN, "", 9), "worker": RELEASING},
        "release",
    ),
    (
        "API",
        {"worker": DONE, "write_problem": WriteProblem(NOW - 60, "forbidden", 9)},
        "API write pod status",
    ),
    ("finalizer", {"pod": HELD, "worker": DONE}, "finalizer example.com/hold"),
    ("asked", {"worker": DONE}, "API"),
    ("a job that has ended", {"pod": make_pod(), "worker": DONE}, None),
]


def test_an_event_does_not_have_the_command_of_a_hook() -> None:
    """Clients that may read events need not be allowed to read pods."""
    hook = {"preStop": {"exec": {"command": ["drain", "--token=abc"]}}}
    ending = make_pod(deleting=30, containers=[{"name": "main", "lifecycle": hook}])
    trace = doing(TraceCall.PRE_STOP, "main", 41, 30)
    assert held_up_by(facts(ending, worker=LATE, trace=trace)) == ("hook main", "preStop hook")


@pytest.mark.parametrize(("changes", "what"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_blocker_of_a_termination(changes: dict[str, Any], what: str | None) -> None:
    found = held_up_by(facts(**{"pod": DELETED, **changes}))
    assert (found and found[0]) == what


def test_the_event_names_the_blocker_and_is_not_always_repeated() -> None:
    recorder = Recorder()
    now: list[PodFacts] = []

    stuck = StuckPods(lambda: ["uid"] if now else [], lambda uid: now[0], recorder)
    stuck.report_stuck()
    problem = WriteProblem(NOW - 60, "forbidden", 9)
    now.append(facts(DELETED, worker=DONE, write_problem=problem))
    stuck.report_stuck()
    now[0] = replace(now[0], write_problem=replace(problem, count=10))
    stuck.report_stuck()
    assert recorder.events == [
        (
            Reason.STILL_TERMINATING,
            "Still terminating after 41s: API write pod status: forbidden (tried 9 times)",
        )
    ]
    now[0] = replace(now[0], now=NOW + REPEAT_S)
    stuck.report_stuck()
    now[0] = replace(now[0], write_problem=None)
    stuck.report_stuck()
    assert [text.split(": ")[1] for text in recorder.texts[1:]] == ["API write pod status", "API"]
    assert recorder.reasons == [Reason.STILL_TERMINATING] * 3


@on_virtual_time
async def test_it_continues_without_free_file_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()

    tries = 0

    def read(_: str) -> PodFacts:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return facts(DELETED, worker=DONE)

    stuck = StuckPods(lambda: ["uid"], read, recorder)
    with suppress(TimeoutError):
        async with asyncio.timeout(3 * CHECK_S + 1):
            await stuck.run()
    assert tries == 3
    assert recorder.texts == [
        "Still terminating after 41s: API: the removal of the pod was requested"
    ]
    assert [record.message for record in caplog.records] == [
        "terminating pods could not be checked"
    ]


# Failure start times of pods survive restarts of the agent.


async def test_the_next_agent_reads_failures(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    troubles = Troubles()
    troubles.failed("a", 100.0)
    await KeptTroubles(file, troubles).save()
    assert file.stat().st_mode & 0o777 == 0o600
    again = Troubles()
    await KeptTroubles(file, again).start()
    assert again.since("a", 200.0) == 100.0


async def test_the_next_agent_reads_refusals(tmp_path: Path) -> None:
    file, troubles = tmp_path / FILE_NAME, Troubles()
    kept = KeptTroubles(file, troubles)
    await kept.start()
    troubles.ends("a", 100.0)
    await kept.save()
    again = Troubles()
    await KeptTroubles(file, again).start()
    assert again.ended_at("a") == 100.0
    file.unlink()
    for _ in range(CHECKS_PER_REFRESH):
        await kept.save()
    assert not file.exists(), "an end does not change"


async def test_it_is_written_when_a_series_begins_or_ends_and_periodically(tmp_path: Path) -> None:
    file, troubles = tmp_path / FILE_NAME, Troubles()
    kept = KeptTroubles(file, troubles)
    await kept.start()
    await kept.save()
    assert not file.exists()
    troubles.failed("a", 1.0)
    await kept.save()
    file.unlink()
    written = 0
    for check in range(CHECKS_PER_REFRESH):
        troubles.failed("a", 2.0 + check)
        await kept.save()
        written += file.exists()
        file.unlink(missing_ok=True)
    assert written == 1
    troubles.removed("a")
    await kept.save()
    assert file.read_text() == "{}"
    assert WRITE_CHECK_S * CHECKS_PER_REFRESH < OVER_S


@pytest.mark.parametrize("content", ["", "[1]", '{"a": ', "[" * 100_000, '{"a": {}}'])
async def test_an_invalid_file_is_ignored(tmp_path: Path, content: str) -> None:
    file, troubles = tmp_path / FILE_NAME, Troubles()
    file.write_text(content)
    await KeptTroubles(file, troubles).start()
    assert troubles.as_json() == {}


async def test_an_unwritable_directory_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    troubles = Troubles()
    kept = KeptTroubles(tmp_path / "none" / FILE_NAME, troubles)
    for uid in ("a", "b"):
        troubles.failed(uid, 1.0)
        await kept.save()
    assert [each.message for each in caplog.records] == [
        "after a restart the agent will have lost since when pods have been failing"
    ]
