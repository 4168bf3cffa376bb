"""A replayed recording in words: one line a pod, or the whole story of one. Pure.

External text is put on one line; times are UTC.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from kubeletpy.observe.explain.texts import milliseconds, one_line
from kubeletpy.observe.recorder.model import LineKind
from kubeletpy.observe.recorder.replay import NODE, Moment, Replayed

_WIDTH = 300


def overview(found: Replayed, version: str) -> str:
    """A summary of the replay: each pod with its last state, and what could not be read."""
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
    """Every decision that this version makes differently."""
    lines = []
    for uid, story in found.stories.items():
        unlike = [moment for moment in story if moment.now is not None]
        if unlike:
            lines.append(_name(found, uid))
            lines += [line for moment in unlike for line in _moment(moment)]
    return "".join(f"{line}\n" for line in lines)


def story(found: Replayed, uid: str) -> str:
    """All that happened to a pod."""
    lines = [f"{_name(found, uid)} ({one_line(uid)})"]
    lines += [line for moment in found.stories[uid] for line in _moment(moment)]
    return "\n".join(lines) + "\n"


def _moment(moment: Moment) -> Iterator[str]:
    words = _words(moment.kind, moment.line, moment.line.get("out"))
    yield f"  {_time(moment.at)}  {moment.kind:<6}  {one_line(words, _WIDTH)}"
    if moment.now is not None:
        now = _words(moment.kind, moment.line, moment.now)
        if now == words:  # they differ in what the words leave out
            now = json.dumps(moment.now)
        yield f"  {'':12}  {'now':<6}  {one_line(now, _WIDTH)}"


def _words(kind: LineKind, line: dict[str, Any], out: Any) -> str:
    try:
        if kind is LineKind.SPAN:
            error = f": {line['error']}" if line.get("error") else ""
            words = f"{line['name']} {line['detail']}".strip()
            return f"{words} took {milliseconds(float(line['took']))}{error}"
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
    return one_line(_words(LineKind.STATUS, last.line, last.line.get("out")), _WIDTH)


def _name(found: Replayed, uid: str) -> str:
    return one_line(found.names.get(uid, uid)) or "the node"


def _time(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):
        return "--:--:--.---"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
