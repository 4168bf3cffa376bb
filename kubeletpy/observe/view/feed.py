"""Builds the page's data from the agent's answers: plain JSON, part by part. Pure.

Each text is truncated, put on one line, and freed of control characters and marks that turn the
direction of text; none may be passed on as it was received. The page shows them as text only.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins

from kubeletpy.base.structs import Struct, field
from kubeletpy.observe.explain.model import WaitKind, from_json
from kubeletpy.observe.explain.render import death
from kubeletpy.observe.explain.texts import one_line
from kubeletpy.observe.explain.verdict import CauseCode
from kubeletpy.observe.view.drawing import waterfalls

MAX_SAMPLES = 120
"""Number of samples that are kept of each container."""
GAP_S = 30.0
"""Seconds without a sample after which the plot begins anew, so that it has no gap."""


class _Container(Struct):
    memory_limit: int | None = None
    at: float | None = None
    cpu: float | None = None
    samples: deque[tuple[float, float | None, int | None]] = field(
        default_factory=lambda: deque(maxlen=MAX_SAMPLES)
    )


class History:
    """CPU and memory of each running container over the last minutes, from the answers to /usage.

    Times are those of the answers.
    """

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, _Container]] = {}

    def add(self, answer: Mapping[str, Any]) -> None:
        """Add the samples of an answer to /usage; containers that it leaves out are dropped."""
        known, self._pods = self._pods, {}
        for pod in answer.get("pods") or ():
            before = known.get(pod["uid"], {})
            self._pods[pod["uid"]] = {
                each["name"]: _with(before.get(each["name"]) or _Container(), each)
                for each in pod["containers"]
            }

    def now(self) -> dict[str, tuple[float | None, int | None]]:
        """Return pod uid -> the CPUs and bytes that its containers use; None if unknown yet."""
        return {
            uid: (_total(containers, 1), _total(containers, 2))
            for uid, containers in self._pods.items()
        }

    def containers(self, uid: str) -> list[dict[str, Any]]:
        """Return the containers of a pod, each with ``samples`` of (Unix time, CPUs, bytes)."""
        return [
            {
                "name": name,
                "memory_limit": each.memory_limit,
                "samples": [list(sample) for sample in each.samples],
            }
            for name, each in self._pods.get(uid, {}).items()
        ]


def _with(known: _Container, answer: Mapping[str, Any]) -> _Container:
    at, cpu = answer["at"], answer["cpu"]
    known.memory_limit = answer["memory_limit"]
    if at is None or (known.at is not None and at <= known.at):
        return known
    used = None
    if known.at is not None and at - known.at > GAP_S:
        known.samples.clear()
    elif known.at is not None and cpu is not None and known.cpu is not None and cpu >= known.cpu:
        used = round((cpu - known.cpu) / (at - known.at), 5)
    known.samples.append((at, used, answer["memory"]))
    known.at, known.cpu = at, cpu
    return known


def _total(containers: Mapping[str, _Container], index: int) -> Any:
    latest = [each.samples[-1][index] for each in containers.values() if each.samples]
    known = [value for value in latest if value is not None]
    return round(sum(known), 5) if known else None


JSON = dict[str, Any]
MAX_NAME = 260
MAX_TEXT = 1200
MAX_PODS = 1000
MAX_LOG_LINES = 10
MAX_LOG_LINE = 300
"""Characters of a line of a log."""
MAX_ROWS = 40
"""Maximum number of decisions, events, exits and so on: the latest."""

WELL, BUSY, SICK = "well", "busy", "sick"
"""The tone of a row: nothing to do, in progress, needs attention."""
_BUSY = frozenset(
    {CauseCode.STARTING, CauseCode.ENDING}
    | {
        kind.replace(" ", "-").lower()
        for kind in (
            *(WaitKind.ADMISSION, WaitKind.IMAGE_PULL, WaitKind.SANDBOX, WaitKind.GRACE_PERIOD),
            *(WaitKind.HOOK, WaitKind.START_PLACE, WaitKind.STOP_PLACE, WaitKind.STOP_ORDER),
            *(WaitKind.RELEASE, WaitKind.INIT_CONTAINER, WaitKind.STATIC_NAME),
        )
    }
)
"""Causes that are part of every start and end."""
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


def names(path: str) -> tuple[str, str]:
    """Return namespace and name of ``NAMESPACE/NAME``. Raises ValueError for any other text."""
    namespace, _, name = path.partition("/")
    if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
        raise ValueError("no pod is called that")
    return namespace, name


def node(about: Mapping[str, Any]) -> JSON:
    """Return the node, from the answer to /node."""
    troubles = [_text(each) for each in (about.get("troubles") or ())[:MAX_ROWS]]
    return {"name": _text(about.get("name"), MAX_NAME), "troubles": troubles}


def unanswered(why: str, last: Mapping[str, Any] | None) -> JSON:
    """Return the node while its agent does not answer; ``last``: as it was shown before."""
    return {"name": (last or {}).get("name", ""), "troubles": [_text(why)], "silent": True}


def pods(lines: Sequence[Mapping[str, Any]]) -> list[JSON]:
    """Return the rows, from the answer to /pods: unhealthy first, then by namespace and name."""
    rows = [_row(line) for line in lines]
    order = (SICK, BUSY, WELL)
    rows.sort(key=lambda row: (order.index(row["tone"]), row["path"], row["uid"]))
    return rows[:MAX_PODS]


def _row(line: Mapping[str, Any]) -> JSON:
    return {
        "uid": _text(line["uid"], MAX_NAME),
        "path": f"{_text(line['namespace'], MAX_NAME)}/{_text(line['name'], MAX_NAME)}",
        "tone": tone(healthy=line["healthy"], cause=line["cause"]),
        "state": _text(line["state"], MAX_NAME),
        "verdict": _text(line["verdict"]),
        "cause": _text(line["cause"], MAX_NAME),
        "since": line["first_seen"],
    }


def tone(*, healthy: bool, cause: str) -> str:
    """Return the tone of a pod's row: ``WELL``, ``BUSY`` or ``SICK``."""
    return WELL if healthy else BUSY if cause in _BUSY else SICK


def usage(history: History, uid: str) -> JSON:
    """Return the usage of all pods now, and over time of the containers of one (by uid)."""
    containers = history.containers(uid)
    return {
        "pods": {_text(each, MAX_NAME): list(used) for each, used in history.now().items()},
        "containers": [{**one, "name": _text(one["name"], MAX_NAME)} for one in containers],
    }


def pod(
    answer: Mapping[str, Any],
    timeline: Mapping[str, Any] | None,
    events: Sequence[Mapping[str, Any]],
    logs: Mapping[str, Any] | None = None,
) -> JSON:
    """Return one pod, from the answers to /pods/NAMESPACE/NAME and its timeline, events and logs.

    ``answer`` may state that there is no such pod, and how it was when it ended.
    """
    error = _text(answer.get("error"))
    facts = answer.get("last") if error else answer
    details = {
        "gone": error,
        "waterfalls": _waterfalls(timeline),
        "events": _latest(events, _event),
        "logs": _logs(logs),
    }
    if not facts:
        return {**details, "uid": ""}
    return {
        **details,
        "uid": _text(facts["uid"], MAX_NAME),
        "path": f"{_text(facts['namespace'], MAX_NAME)}/{_text(facts['name'], MAX_NAME)}",
        "tone": tone(healthy=facts["healthy"], cause=facts["cause"]),
        "verdict": _text(facts["verdict"]),
        "hint": _text(facts["hint"]),
        "final": facts["final"],
        "since": facts["first_seen"],
        "facts": _facts(facts),
        "waits": [_plain(wait, "kind", "subject", "why", "since", "until", "share")
                  for wait in facts["waits"][:MAX_ROWS]],
        "containers": [
            _plain(each, "name", "kind", "image", "state", "reason", "message", "since", "ready",
                   "restarts")
            for each in facts["containers"][:MAX_ROWS]
        ],
        "probes": [
            _plain(each, "container", "kind", "settled", "last", "words", "at", "next_at")
            for each in facts["probes"][:MAX_ROWS]
        ],
        "decisions": _latest(facts["decisions"], _decision),
        "errors": _latest(facts["errors"], _decision),
        "exits": [
            _plain({**each, "cause": death(each.get("cause"))},
                   "container", "exit_code", "reason", "message", "finished_at", "cause")
            for each in facts["exits"][:MAX_ROWS]
        ],
    }  # fmt: skip


def changes(sent: Mapping[str, Any], now: Mapping[str, Any]) -> JSON:
    """Return the parts that differ from those that a page has."""
    return {part: value for part, value in now.items() if sent.get(part) != value}


def _facts(facts: Mapping[str, Any]) -> list[list[str]]:
    worker = facts["worker"]
    state = worker["state"] + (f", {worker['stage']}" if worker["stage"] else "")
    found = {
        "Status": f"{facts['phase']}, {'' if facts['ready'] else 'not '}Ready",
        "Worker": state,
        "Last error": worker["last_error"],
        "Address": ", ".join(facts["pod_ips"]),
        "UID": facts["uid"],
        "Kind": "static" if facts["static"] else "",
    }
    return [[name, _text(value)] for name, value in found.items() if value]


def _waterfalls(timeline: Mapping[str, Any] | None) -> list[JSON]:
    if timeline is None or "start" not in timeline:
        return []
    found = [to_builtins(each) for each in waterfalls(from_json(timeline))]
    return [each for each in found if each["rows"]]


def _logs(logs: Mapping[str, Any] | None) -> list[JSON]:
    """Return the ends of logs; an agent of another version returns an error instead of logs."""
    found = (logs or {}).get("containers") or {}
    return [
        {
            "name": _text(name, MAX_NAME),
            "lines": [_text(line, MAX_LOG_LINE) for line in lines[-MAX_LOG_LINES:]],
        }
        for name, lines in [*found.items()][:MAX_ROWS]
    ]


def _event(event: Mapping[str, Any]) -> JSON:
    _, _, container = event["field_path"].partition("{")
    return {
        **_plain(event, "at", "type", "reason", "message", "count"),
        "container": _text(container.removesuffix("}"), MAX_NAME),
        "source": _text(event.get("source"), MAX_NAME),
    }


def _decision(made: Mapping[str, Any]) -> JSON:
    at = made["at"] if made.get("last_at") is None else made["last_at"]
    return {**_plain(made, "what", "why", "count"), "at": at}


def _latest(found: Sequence[Mapping[str, Any]], convert: Any) -> list[JSON]:
    """Return the newest entries first, of a list that has the oldest first."""
    rows = [convert(each) for each in reversed(found[-MAX_ROWS:])]
    return sorted(rows, key=lambda one: one["at"], reverse=True)


def _plain(answer: Mapping[str, Any], *fields: str) -> JSON:
    return {
        name: _text(value) if isinstance(value := answer.get(name), str) else value
        for name in fields
    }


def _text(value: object, limit: int = MAX_TEXT) -> str:
    return "" if value is None else one_line(str(value), limit)
