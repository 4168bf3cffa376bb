"""Replays a recording, compares the decisions, and reports them as text. Pure.

The functions that decide are those of the version that runs this; time comes from the recording.
Lines that can't be understood are counted by their cause.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from kubeletpy.base.structs import Struct, field
from kubeletpy.observe.explain.texts import milliseconds, one_line
from kubeletpy.observe.recorder.model import (
    EVENTS,
    FORMAT,
    BadRecording,
    LineKind,
    MachineState,
    decode,
    decode_shared,
    effects_output,
    plan_output,
    restored_machine,
)
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.state_machine import WorkerMachine
from kubeletpy.runtime_manager.plan.compute_actions import PlanInputs, compute_pod_actions
from kubeletpy.status.generate import StatusInputs, generate_api_pod_status

LONGEST_PROBLEM = 200
"""Characters of a problem, which may quote the recording."""
NODE = ""
"""The uid of the story for lines that concern no single pod."""


class Moment(Struct, frozen=True):
    """One line of a pod's story.

    Attributes:
        at: Unix seconds.
        kind: of the recorded line.
        line: as recorded.
        now: the output of this version for the same input where it differs; else None.
    """

    at: float
    kind: LineKind
    line: dict[str, Any]
    now: Any = None


class Replayed(Struct):
    """The contents of a recording.

    Attributes:
        names: uid to ``namespace/name``.
        stories: the moments of each pod, by uid, in order.
        versions: of the agents that recorded.
        decisions: the number of those that were made again.
        problems: why lines could not be read or replayed, and how often.
        first: the number of the first line with each problem.
        refused: lines that are JSON, but no line of a recording. A line that is cut off is not
            counted, since an agent that was killed leaves one.
    """

    names: dict[str, str] = field(default_factory=dict)
    stories: dict[str, list[Moment]] = field(default_factory=dict)
    versions: list[str] = field(default_factory=list)
    node: str = ""
    decisions: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)
    refused: int = 0

    def add_problem(self, number: int, problem: str) -> None:
        """Count a problem of line ``number``."""
        problem = problem[:LONGEST_PROBLEM]
        self.problems[problem] += 1
        self.first.setdefault(problem, number)

    @property
    def differences(self) -> int:
        """Decisions that this version makes differently."""
        return sum(m.now is not None for story in self.stories.values() for m in story)


def replay(lines: Iterable[bytes]) -> Replayed:
    """Replay a recording. Never raises for what is in it."""
    found, player = Replayed(), _Player()
    for number, line in enumerate(lines, 1):
        try:
            read = json.loads(line)
        except (ValueError, RecursionError) as error:
            found.add_problem(number, str(error))
            continue
        try:
            _replay_untrusted(found, player, read)
        except BadRecording as error:
            found.refused += 1
            found.add_problem(number, str(error))
    return found


def _replay_untrusted(found: Replayed, player: _Player, read: Any) -> None:
    """Replay a line of any type. Raises BadRecording, and nothing else."""
    if not isinstance(read, dict):
        raise BadRecording("a line is no object")
    try:
        _replay_line(found, player, read)
    except BadRecording:
        raise
    except Exception as error:
        # an untrusted peer may have written any type anywhere, beyond what the decoder checks
        raise BadRecording(f"{type(error).__name__}: {error}") from error


def _replay_line(found: Replayed, player: _Player, line: dict[str, Any]) -> None:
    kind = _kind(line)
    if kind is LineKind.SHARED:
        value = player.share(line)
        found.names[str(value.uid)] = f"{value.namespace}/{value.name}"
        return
    if kind is LineKind.HEAD:
        player.begin(line)
        found.node = str(line.get("node", ""))
        if (version := str(line.get("version"))) not in found.versions:
            found.versions.append(version)
        return
    at, uid = line.get("t"), line.get("uid")
    if isinstance(at, bool) or not isinstance(at, int | float) or not isinstance(uid, str):
        raise BadRecording("a line has no time or no pod")
    now = None
    try:
        if kind is not LineKind.SPAN:
            again = player.again(kind, line)
            found.decisions += 1
            now = again if again != line.get("out") else None
    finally:
        found.stories.setdefault(uid, []).append(Moment(at, kind, line, now))


def _kind(line: dict[str, Any]) -> LineKind:
    try:
        return LineKind(str(line.get("k")))
    except ValueError as error:
        raise BadRecording("a line is of a kind that this version does not support") from error


class _Player:
    """Holds the objects that later lines refer to, and the workers' machine."""

    def __init__(self) -> None:
        self._shared: dict[int, object] = {}
        self._head: dict[str, Any] | None = None
        self._machine: WorkerMachine | None = None

    def begin(self, head: dict[str, Any]) -> None:
        """Begin a new file; all of the one before it is dropped."""
        if head.get("format") != FORMAT:
            raise BadRecording(f"format {head.get('format')} is not known, this is {FORMAT}")
        self._shared, self._head, self._machine = {}, head, None

    def share(self, line: dict[str, Any]) -> Pod | PodRuntimeStatus:
        """Keep and return a value that later lines refer to by number."""
        number = line.get("n")
        if type(number) is not int:
            raise BadRecording(
                f"the number of a shared value is expected where the recording has "
                f"{type(number).__name__}"
            )
        value = decode_shared(str(line.get("type")), line.get("value"))
        self._shared[number] = value
        return value

    def again(self, kind: LineKind, line: dict[str, Any]) -> Any:
        """Return the output of this version for a line's input."""
        recorded = line.get("in")
        try:
            if kind is LineKind.PLAN:
                return _json(plan_output(_plan(decode(PlanInputs, recorded, self._shared))))
            if kind is LineKind.STATUS:
                inputs = decode(StatusInputs, recorded, self._shared)
                return _json(generate_api_pod_status(inputs))
            event = decode(_event(line), recorded, self._shared)
            return _json(effects_output(self._machine_from_head().handle(event)))
        except BadRecording:
            raise
        except Exception as error:
            # a difference too, but not one in the decision: this version can't decide at all
            raise BadRecording(f"{kind}: {type(error).__name__}: {error}") from error

    def _machine_from_head(self) -> WorkerMachine:
        if self._machine is None:
            if self._head is None:
                raise BadRecording("the recording has no head")
            state = decode(MachineState, self._head.get("machine"), self._shared)
            self._machine = restored_machine(state)
        return self._machine


def _plan(inputs: PlanInputs) -> Any:
    return compute_pod_actions(
        inputs.pod,
        inputs.status,
        inputs.probes,
        all_containers_restarting=inputs.all_containers_restarting,
        in_effect=inputs.in_effect,
    )


def _event(line: dict[str, Any]) -> type:
    found = EVENTS.get(str(line.get("event")))
    if found is None:
        raise BadRecording(f"event {line.get('event')} is not known to this version")
    return found


def _json(value: Any) -> Any:
    """Return the value after a round trip through JSON: tuples are lists."""
    return json.loads(json.dumps(value))


# The replayed recording as text: one line a pod, or the complete story of one. External text is on
# one line; times are UTC.

_WIDTH = 300


def overview(found: Replayed, version: str) -> str:
    """Return a summary of the replay: each pod with its last state, and the problems."""
    recorded = one_line(", ".join(found.versions)) or "no version"
    lines = [
        f"{found.decisions} decisions of node {one_line(found.node)}, made by {recorded}, "
        f"replayed by {version}: {_count(found.differences, 'difference')}"
    ]
    for uid, story in sorted(found.stories.items(), key=lambda each: each[1][0].at):
        if uid == NODE:
            continue
        unlike = sum(moment.now is not None for moment in story)
        lines.append(
            f"  {_time(story[0].at)} to {_time(story[-1].at)}  {_name(found, uid)}  "
            f"{_last_status(story)}" + (f"  {_count(unlike, 'difference')}" if unlike else "")
        )
    for problem, times in sorted(found.problems.items()):
        first = found.first.get(problem, 0)
        what = (
            f"line {first} is" if times == 1 else f"{times} lines, the first is line {first}, are"
        )
        lines.append(f"{what} not replayed: {one_line(problem)}")
    return "\n".join(lines) + "\n"


def differences(found: Replayed) -> str:
    """Return the decisions that this version makes differently."""
    lines = []
    for uid, story in found.stories.items():
        unlike = [moment for moment in story if moment.now is not None]
        if unlike:
            lines.append(_name(found, uid))
            lines += [line for moment in unlike for line in _moment(moment)]
    return "".join(f"{line}\n" for line in lines)


def story(found: Replayed, uid: str) -> str:
    """Return all that happened to a pod."""
    lines = [f"{_name(found, uid)} ({one_line(uid)})"]
    lines += [line for moment in found.stories[uid] for line in _moment(moment)]
    return "\n".join(lines) + "\n"


def _moment(moment: Moment) -> Iterator[str]:
    text = _summary(moment.kind, moment.line, moment.line.get("out"))
    yield f"  {_time(moment.at)}  {moment.kind:<6}  {one_line(text, _WIDTH)}"
    if moment.now is not None:
        now = _summary(moment.kind, moment.line, moment.now)
        if now == text:  # they differ in what the text leaves out
            now = json.dumps(moment.now)
        yield f"  {'':12}  {'now':<6}  {one_line(now, _WIDTH)}"


def _summary(kind: LineKind, line: dict[str, Any], out: Any) -> str:
    try:
        if kind is LineKind.SPAN:
            error = f": {line['error']}" if line.get("error") else ""
            what = f"{line['name']} {line['detail']}".strip()
            return f"{what} took {milliseconds(float(line['took']))}{error}"
        if kind is LineKind.PLAN:
            return (
                "; ".join(f"{what}: {why}" for what, why in out.get("decisions", ())) or "no change"
            )
        if kind is LineKind.STATUS:
            return _status(out)
        effects = ", ".join(
            " ".join([name, *(str(plain[key]) for key in ("stage", "delay") if key in plain)])
            for name, plain in out
        )
        return f"{line['event']}{_type(line)} leads to {effects or 'nothing'}"
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        # a recording may have any type anywhere: then it is shown as it is
        return json.dumps(out)


def _type(line: dict[str, Any]) -> str:
    kind = line["in"].get("update", {}).get("type")
    return f" ({kind})" if kind else ""


def _status(status: dict[str, Any]) -> str:
    reason = f" ({status['reason']})" if status.get("reason") else ""
    ready = [c["status"] for c in status.get("conditions", ()) if c["type"] == "Ready"]
    parts = [f"{status.get('phase')}{reason}", "ready" if ready == ["True"] else "not ready"]
    for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for each in status.get(key) or ():
            state, detail = next(iter((each.get("state") or {"unknown": {}}).items()))
            why = detail.get("reason", "")
            code = f" {detail['exitCode']}" if "exitCode" in detail else ""
            parts.append(f"{each['name']} {state}{f' {why}' if why else ''}{code}")
    return ", ".join(parts)


def _last_status(story: list[Moment]) -> str:
    last = next((m for m in reversed(story) if m.kind is LineKind.STATUS), None)
    if last is None:
        return "no status"
    return one_line(_summary(LineKind.STATUS, last.line, last.line.get("out")), _WIDTH)


def _name(found: Replayed, uid: str) -> str:
    return one_line(found.names.get(uid, uid)) or "the node"


def _time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):
        return "--:--:--.---"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
