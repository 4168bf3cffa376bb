"""Replays of recordings: equal decisions count as equal, and differences are shown."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.cli import record as record_command
from kubeletpy.cli import replay as replay_command
from kubeletpy.metrics.trace.model import PodTrace, Span, TraceCall
from kubeletpy.observe.recorder import replay as render
from kubeletpy.observe.recorder.files import DIRECTORY, RecordingFiles, read_lines, recordings
from kubeletpy.observe.recorder.recorder import MAX_HELD_BYTES, FlightRecorder
from kubeletpy.observe.recorder.replay import replay
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.records import (
    DesiredPods,
    Forgotten,
    PodUpdate,
    TimerFired,
    UpdateArrived,
    UpdateType,
)
from kubeletpy.podworkers.state_machine import WorkerMachine
from kubeletpy.runtime_manager.plan.actions import PodActions
from kubeletpy.runtime_manager.plan.compute_actions import PlanInputs, compute_pod_actions
from kubeletpy.status.generate import StatusInputs, generate_api_pod_status
from tests.kit.pods import make_pod
from tests.kit.virtual_time import LoopClock, on_virtual_time

POD = make_pod(
    containers=[{"name": "c", "image": "i", "env": [{"name": "PASSWORD", "value": "hunter2"}]}]
)
EMPTY = PodRuntimeStatus(POD.uid, POD.name, POD.namespace)


def recorded(root: Path, pod: Pod = POD) -> list[bytes]:
    """The lines of a recording of one pod that is started."""
    empty = PodRuntimeStatus(pod.uid, pod.name, pod.namespace)

    @on_virtual_time
    async def record() -> None:
        machine = WorkerMachine()
        files = RecordingFiles(root / DIRECTORY, 1 << 20)
        recorder = FlightRecorder(files, LoopClock(), machine, "node")
        await recorder.flush()
        for number in range(3):
            event = UpdateArrived(PodUpdate(UpdateType.CREATE, pod), float(number))
            recorder.event(event, machine.handle(event))
            if number == 1:
                await recorder.flush()
        inputs = PlanInputs(pod, empty)
        recorder.plan(inputs, compute_pod_actions(pod, empty, inputs.probes))
        requested = StatusInputs(pod, empty, "containerd", {}, 5.0, sandbox_usable=False)
        status = generate_api_pod_status(requested)
        recorder.status(requested, status)
        status["phase"] = "completed by whoever stores it"
        trace = PodTrace(pod.uid, pod.namespace, pod.name, 0.0)
        recorder.span(trace, Span(TraceCall.RUN_POD_SANDBOX, "attempt 0", 1.0, 1.25, "no network"))
        await recorder.close()

    record()
    return list(read_lines(recordings(root / DIRECTORY)))


def test_the_same_version_decides_the_same(tmp_path: Path) -> None:
    lines = recorded(tmp_path)
    assert b"hunter2" not in b"".join(lines)
    found = replay(lines)
    assert (found.decisions, found.differences, found.problems) == (5, 0, {})
    assert (found.node, found.names) == ("node", {POD.uid: f"{POD.namespace}/{POD.name}"})
    story = render.story(found, POD.uid).splitlines()
    assert [line.split("  ", 2)[-1] for line in story[1:]] == [
        "event   UpdateArrived (create) leads to RunSync sync",
        "event   UpdateArrived (create) leads to nothing",
        "event   UpdateArrived (create) leads to nothing",
        "plan    create sandbox, attempt 0: the pod has no sandbox; "
        "start container c: the sandbox is new",
        "status  Pending, not ready, c waiting ContainerCreating",
        "span    RunPodSandbox attempt 0 took 250 ms: no network",
    ]


def test_half_of_a_surrogate_pair_is_escaped(tmp_path: Path) -> None:
    lines = recorded(tmp_path, make_pod(containers=[{"name": "c", "image": "\ud800"}]))
    assert b'"image":"\\ud800"' in b"".join(lines).replace(b'": "', b'":"')
    found = replay(lines)
    assert (found.decisions, found.differences, found.problems) == (5, 0, {})


def test_passes_that_change_nothing_are_not_recorded(tmp_path: Path) -> None:
    @on_virtual_time
    async def record() -> None:
        machine = WorkerMachine()
        recorder = FlightRecorder(RecordingFiles(tmp_path, 1000), LoopClock(), machine, "node")
        await recorder.flush()
        for uids in ("a", "a", "ab", "ab", "b"):
            event = DesiredPods(frozenset(uids), 1.0)
            recorder.event(event, machine.handle(event))
        recorder.event(DesiredPods(frozenset("b"), 2.0), [Forgotten("a")])
        await recorder.close()

    record()
    lines = [json.loads(line) for line in read_lines(recordings(tmp_path))]
    assert [line["in"]["uids"] for line in lines if line["k"] == "event"] == [
        *(["a"], ["a", "b"], ["b"], ["b"])
    ]


def test_each_file_is_self_contained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second file continues from the state of the machine: the pod has a worker already."""
    monkeypatch.setattr("kubeletpy.observe.recorder.files.FILES", 1 << 20)
    monkeypatch.setattr("kubeletpy.observe.recorder.files.HEADS", 0)
    lines = recorded(tmp_path)
    heads = [number for number, line in enumerate(lines) if b'"k":"head"' in line]
    assert len(heads) == 3
    for begin in heads:
        found = replay(lines[begin:])
        assert (found.differences, found.problems) == (0, {})


def change(lines: list[bytes], kind: str, **changes: Any) -> list[bytes]:
    """The recording of a version with other decisions."""
    made = []
    for line in lines:
        read = json.loads(line)
        made.append(json.dumps({**read, **changes} if read["k"] == kind else read).encode())
    return made


@pytest.mark.parametrize(
    ("kind", "out", "was"),
    [
        ("plan", {"decisions": [["wait", "of a whim"]]}, "plan    wait: of a whim"),
        ("plan", {"kill_pod": "x"}, "plan    no change"),
        ("status", {"phase": "Running"}, "status  Running, not ready"),
        ("event", [], "event   UpdateArrived (create) leads to nothing"),
        ("event", [["Interrupt", 3]], 'event   [["Interrupt", 3]]'),
    ],
)
def test_differences_are_shown(kind: str, out: Any, was: str, tmp_path: Path) -> None:
    found = replay(change(recorded(tmp_path), kind, out=out))
    assert found.differences
    stated = render.differences(found).splitlines()
    assert stated[0] == f"{POD.namespace}/{POD.name}"
    assert stated[1].endswith(was)
    assert stated[2].split()[0] == "now"
    assert f"{found.differences} difference" in render.overview(found, "1")


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([b"nonsense"], "Expecting value"),
        ([b"[]"], "a line is no object"),
        ([b'{"k": "new"}'], "a line is of a kind that this version does not support"),
        ([b'{"k": "head", "format": 99}'], "format 99 is not known, this is 1"),
        ([b'{"k": "span", "uid": "u"}'], "a line has no time or no pod"),
        ([b'{"k": "span", "t": 1}'], "a line has no time or no pod"),
        ([b'{"k": "event", "t": 1, "uid": "", "event": "X"}'], "event X is not known"),
        (
            [b'{"k":"event","t":1,"uid":"","event":"TimerFired","in":{"uid":"u","now":1}}'],
            "the recording has no head",
        ),
        ([b'{"k": "plan", "t": 1, "uid": "u", "in": {}}'], "PlanInputs: .*[Mm]issing"),
        ([b'{"k": "shared", "n": 0, "type": "Pod", "value": {}}'], "a pod of the recording"),
        ([b'{"k":"shared","n":{}}'], "the number of a shared value is expected where .* has dict"),
        ([b'{"k":"shared"}'], "the number of a shared value is expected where .* has NoneType"),
        (
            [b'{"k":"shared","n":0,"type":"PodRuntimeStatus","value":{"uid":[],"name":"n"}}'],
            "PodRuntimeStatus: Expected `str`, got `array`",
        ),
    ],
)
def test_unreadable_lines_are_named(lines: list[bytes], problem: str) -> None:
    found = replay(lines)
    (stated,) = found.problems
    assert re.match(problem, stated)
    assert f"line 1 is not replayed: {stated}" in render.overview(found, "1")


def test_a_long_problem_is_cut() -> None:
    (stated,) = replay(
        [b'{"k": "event", "t": 1, "uid": "", "event": "%s"}' % (b"X" * 300)]
    ).problems
    assert stated == f"event {'X' * 194}"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(["head", "shared", "event", "plan", "status", "span"]),
)
def test_no_line_ends_a_replay(value: Any, kind: str) -> None:
    line = {"k": kind, "t": 1.5, "uid": "u", "n": 0, "type": "Pod", "event": "TimerFired"}
    line |= {"in": value, "out": value, "value": value, "format": 1, "machine": value}
    found = replay([json.dumps(line).encode(), json.dumps({**line, "k": "event"}).encode()])
    render.overview(found, "1")
    for uid in found.stories:
        render.story(found, uid)


def test_every_value_of_a_recording_may_have_another_type(tmp_path: Path) -> None:
    """Each value of a good recording, one after the other, is replaced by each kind of JSON."""
    lines = [json.loads(line) for line in recorded(tmp_path)]
    tried = 0
    for number, line in enumerate(lines):
        for path in _paths(line):
            for odd in (None, True, -1, 1e400, "x", [], {}, [[7]], {"#": 0}, {"#": "x"}):
                changed = [json.dumps(each).encode() for each in lines]
                changed[number] = json.dumps(_with(line, path, odd)).encode()
                found = replay(changed)
                render.overview(found, "1")
                render.differences(found)
                for uid in found.stories:
                    render.story(found, uid)
                tried += 1
    assert tried > 500


def _paths(value: Any) -> list[tuple[Any, ...]]:
    """The paths to all values inside one."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, ...]] = []
    for key, each in inside:
        found.append((key,))
        if isinstance(each, dict | list):
            found += [(key, *rest) for rest in _paths(each)]
    return found


def _with(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    made = dict(value) if isinstance(value, dict) else list(value)
    made[path[0]] = _with(value[path[0]], path[1:], odd) if path[1:] else odd
    return made


def test_a_refused_line_is_named_with_its_number_and_the_exit_code_is_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hostile"
    lines = [*recorded(tmp_path), b'{"k":"shared","n":{}}\n', b'{"k":"span","t":1']
    file.write_bytes(b"".join(lines))
    assert replay_command.main([str(file)]) == 2
    stated = capsys.readouterr().out
    assert f"line {len(lines) - 1} is not replayed: the number of a shared value" in stated
    assert replay_command.main([str(file), POD.uid]) == 2
    assert f"line {len(lines) - 1}: the number of a shared" in capsys.readouterr().err
    file.write_bytes(b"".join([*recorded(tmp_path), lines[-1]]))
    assert replay_command.main([str(file)]) == 0, "a line that is cut off is no fault"


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path)
    file = str(tmp_path / "saved.gz")
    assert record_command.main(["--root-dir", str(tmp_path), "-o", file]) == 0
    assert Path(file).stat().st_mode & 0o777 == 0o600
    assert replay_command.main([file]) == 0
    stated = capsys.readouterr().out
    assert "5 decisions of node node" in stated
    assert "no differences" in stated
    assert replay_command.main([file, f"{POD.namespace}/{POD.name}"]) == 0
    assert capsys.readouterr().out.count("UpdateArrived") == 3
    assert replay_command.main([file, "other"]) == 2
    assert "no pod default/other" in capsys.readouterr().err
    assert record_command.main(["--root-dir", str(tmp_path), "-o", file]) == 1
    assert "File exists" in capsys.readouterr().err


def test_missing_and_broken_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record_command.main(["--root-dir", str(tmp_path)]) == 1
    assert "nothing is recorded in" in capsys.readouterr().err
    plain, cut = tmp_path / "plain", tmp_path / "cut.gz"
    plain.write_text("{}\n")
    cut.write_bytes(gzip.compress(b"x" * 1000)[:-20])
    for path in (tmp_path / "none", plain, cut):
        assert replay_command.main([str(path)]) == 2
        assert str(path) in capsys.readouterr().err


@on_virtual_time
async def test_shared_objects_in_memory_are_bounded(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path, 1 << 30)
    recorder = FlightRecorder(files, LoopClock(), WorkerMachine(), "node")
    await recorder.flush()
    image = "x" * (MAX_HELD_BYTES // 4)
    pods = [make_pod(f"p{n}", containers=[{"name": "c", "image": image}]) for n in range(10)]
    for attempt, pod in enumerate((*pods, pods[-1], pods[0], pods[1])):
        if pod is pods[1] and attempt > 1:
            await recorder.flush()
        recorder.plan(PlanInputs(pod, EMPTY), PodActions(False, True, "", attempt))
    await recorder.close()
    lines = [json.loads(line) for line in read_lines(recordings(tmp_path))]
    numbers = [line["in"]["pod"]["#"] for line in lines if line["k"] == "plan"]
    assert len(set(numbers[:11])) == 10, "what was just written is referred to"
    assert numbers[11] not in numbers[:11], "what was written long ago is written again"
    assert not replay(read_lines(recordings(tmp_path))).problems


@on_virtual_time
async def test_only_the_newest_object_of_a_pod_is_held(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path, 1 << 20)
    recorder = FlightRecorder(files, LoopClock(), WorkerMachine(), "node")
    await recorder.flush()
    old, new = make_pod(), make_pod()
    for attempt, pod in enumerate((old, new, new, old)):
        recorder.plan(PlanInputs(pod, EMPTY), PodActions(False, True, "", attempt))
    await recorder.close()
    lines = [json.loads(line) for line in read_lines(recordings(tmp_path))]
    first, second, third, fourth = [line["in"]["pod"]["#"] for line in lines if line["k"] == "plan"]
    assert second == third
    assert len({first, second, fourth}) == 3


@on_virtual_time
async def test_a_full_disk_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    files = RecordingFiles(tmp_path / "file" / "r", 1000)
    recorder = FlightRecorder(files, LoopClock(), WorkerMachine(), "node")
    task = asyncio.ensure_future(recorder.run())
    for _ in range(3):
        inputs = PlanInputs(POD, EMPTY)
        recorder.plan(inputs, compute_pod_actions(POD, EMPTY, inputs.probes))
        await asyncio.sleep(5)
    assert [record.message for record in caplog.records] == ["not recorded"]
    assert not task.done()
    task.cancel()


@on_virtual_time
async def test_a_decision_is_recorded_again_once_it_is_news(tmp_path: Path) -> None:
    files = RecordingFiles(tmp_path, 1 << 20)
    machine = WorkerMachine()
    recorder = FlightRecorder(files, LoopClock(), machine, "node")
    await recorder.flush()

    def sync() -> None:
        inputs = PlanInputs(POD, EMPTY)
        recorder.plan(inputs, compute_pod_actions(POD, EMPTY, inputs.probes))

    sync()
    sync()
    recorder.event(TimerFired(POD.uid, 1.0), [Forgotten(POD.uid)])
    sync()
    await recorder.flush()
    sync()
    await recorder.close()
    kinds = [json.loads(line)["k"] for line in read_lines(recordings(tmp_path))]
    plan = ["shared", "shared", "plan"]
    assert kinds == ["head", *plan, "event", *plan], "nothing is held for a removed pod"


@on_virtual_time
async def test_after_a_failed_write_a_new_file_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = FlightRecorder(
        RecordingFiles(tmp_path, 1 << 20), LoopClock(), WorkerMachine(), "node"
    )
    inputs = PlanInputs(POD, EMPTY)

    async def record() -> None:
        recorder.plan(inputs, compute_pod_actions(POD, EMPTY, inputs.probes))
        await recorder.flush()

    def half(descriptor: int, data: memoryview) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "no space left on device")
        return write(descriptor, data[: len(data) - 50])

    write = os.write
    await recorder.flush()
    monkeypatch.setattr(os, "write", half)
    for _ in range(3):
        await record()
    assert len(recordings(tmp_path)) == 1, "tries that fail leave nothing"
    monkeypatch.undo()
    await record()  # begins a file with the current state
    await record()
    await recorder.close()
    *_, newest = recordings(tmp_path)
    kinds = [json.loads(line)["k"] for line in read_lines([newest])]
    assert kinds == ["head", "shared", "shared", "plan"]
    assert not replay(read_lines([newest])).problems


# Recordings of real nodes, in tests/recorded: this version decides as the recorded one did.

RECORDED = sorted((Path(__file__).parents[3] / "recorded").glob("*.jsonl.gz"))


def test_there_are_some() -> None:
    assert RECORDED


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.name)
def test_it_is_decided_in_the_same_way(file: Path) -> None:
    with gzip.open(file) as lines:
        found = replay(lines)
    assert not found.problems
    assert found.decisions
    different = [moment for story in found.stories.values() for moment in story if moment.now]
    assert not different, different[0]
