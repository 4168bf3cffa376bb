"""An explanation as readable text. Pure; works on the JSON that the socket returns.

The first line is the answer. All external text is on one line and without control characters, so
that no pod can write arbitrary output to the reader's terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeletpy.observe.explain import render_pressure
from kubeletpy.observe.explain.model import ContainerStateKey, WorkerState
from kubeletpy.observe.explain.moments import clock_time, since
from kubeletpy.observe.explain.render_pressure import pod_name
from kubeletpy.observe.explain.texts import ago, duration, one_line, restarts, until

MAX_VERDICT = 2000
MAX_CELL = 1000
MAX_DECISIONS = 12
MAX_ERRORS = 5
MAX_EXITS = 6
_BOLD, _RED, _GREEN, _DIM, _RESET = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[2m", "\x1b[0m"

View = Mapping[str, Any]


class Paint:
    """Colours, or none."""

    def __init__(self, colours: bool) -> None:
        self._on = colours

    def __call__(self, code: str, text: str) -> str:
        return f"{code}{text}{_RESET}" if self._on and code else text


def pods(lines: Sequence[View], *, colours: bool = False) -> str:
    """Pods of the node, one line each: unhealthy pods first, otherwise in the given order."""
    if not lines:
        return "no pods on this node\n"
    lines = sorted(lines, key=lambda each: bool(each["healthy"]))
    paint = Paint(colours)
    wide = max(len(pod_name(each)) for each in lines)
    rows = []
    for each in lines:
        verdict = one_line(each["verdict"], MAX_VERDICT)
        rows.append(f"{pod_name(each):<{wide}}  {paint('' if each['healthy'] else _RED, verdict)}")
    return "\n".join(rows) + "\n"


def pod(view: View, *, colours: bool = False) -> str:
    """Everything about one pod."""
    paint, now = Paint(colours), float(view["at"])
    tint = _GREEN if view["healthy"] else _RED
    parts = [
        f"{paint(_BOLD, pod_name(view))}: {paint(tint, one_line(view['verdict'], MAX_VERDICT))}",
        _facts(view, now),
        render_pressure.eviction(view["eviction"], now) if view.get("eviction") else "",
        render_pressure.by_limit(view["by_limit"], now) if view.get("by_limit") else "",
        waits(view["waits"], now),
        _actions(view["actions"], now),
        _containers(view["containers"], now),
        _held_table(view["held"]),
        _probes(view["probes"], now),
        _exits(view["exits"], now),
        _history("Last errors", view["errors"], MAX_ERRORS, now),
        _history("Last decisions", view["decisions"], MAX_DECISIONS, now),
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return "\n".join(
        paint(_BOLD, line) if line and not line.startswith(" ") and ":" not in line else line
        for line in text.split("\n")
    )


def _facts(view: View, now: float) -> str:
    worker = view["worker"]
    state = worker["state"]
    if worker["since"] is not None:
        state += f" for {duration(now - worker['since'])}"
    if worker["stage"]:
        state += ", a sync runs"
    ending = worker["state"] in (WorkerState.TERMINATING, WorkerState.TERMINATED)
    if ending and worker["grace"] is not None:
        state += f", grace period {worker['grace']}s"
    rows = []
    if view["first_seen"] is not None:
        rows.append(("Since", since(view["first_seen"], now)))
    if view["hint"]:
        rows.append(("To do", one_line(view["hint"], MAX_VERDICT)))
    if view["final"]:
        rows.append(("Final", "this pod is not tried again: what owns it, or you, make another"))
    rows.append(("Worker", state))
    if worker["next_sync_at"] is not None:
        rows.append(("Next sync", f"{until(worker['next_sync_at'], now)}, or on the next event"))
    ready = "Ready" if view["ready"] else "not Ready"
    rows.append(("Status", f"{view['phase']}, {ready}"))
    if view["pod_ips"]:
        rows.append(("Address", ", ".join(view["pod_ips"])))
    rows.append(("UID", view["uid"] + (" (static pod)" if view["static"] else "")))
    return "\n".join(f"  {name:<10} {one_line(text, MAX_VERDICT)}" for name, text in rows)


def waits(found: Sequence[View], now: float) -> str:
    """A table of what a pod waits for, and until when; empty: for nothing."""
    rows = []
    for wait in found:
        when = []
        if wait["since"] is not None:
            when.append(f"for {duration(now - wait['since'])}")
        if wait["until"] is not None:
            when.append(f"until {clock_time(wait['until'], now)} ({until(wait['until'], now)})")
        rows.append((wait["kind"], wait["subject"], ", ".join(when), wait["why"]))
    return _table("Waits for", rows)


def _actions(actions: Sequence[View], now: float) -> str:
    rows = []
    for action in actions:
        end = "" if action["until"] is None else f"at most until {clock_time(action['until'], now)}"
        rows.append(
            (action["what"], action["subject"], f"for {duration(now - action['since'])}", end)
        )
    return _table("Is doing", rows)


def _containers(containers: Sequence[View], now: float) -> str:
    rows = []
    for view in containers:
        state = f"{view['state']} {view['reason']}"  # gaps are closed in the table
        if view["since"] is not None and view["state"] == ContainerStateKey.RUNNING:
            state += f" for {duration(now - view['since'])}"
        ready = "ready" if view["ready"] else "not ready"
        often = restarts(view["restarts"])
        rows.append((view["name"], view["kind"], state, ready, often, view["image"]))
    return _table("Containers", rows)


def _held_table(held: Sequence[View]) -> str:
    rows = []
    for each in held:
        nodes = ", ".join(map(str, each["nodes"]))
        where = f"NUMA node {nodes}" if nodes else ""
        rows.append((each["container"], each["resource"], each["what"], where))
    return _table("Has of the machine", rows)


def _probes(probes: Sequence[View], now: float) -> str:
    rows = []
    for probe in probes:
        found = "not run yet" if not probe["last"] else f"last {probe['last']}"
        if probe["last"] and probe["last"] != probe["settled"]:
            found += f", {probe['streak']} of {probe['threshold']}"
        when = "" if probe["at"] is None else ago(probe["at"], now)
        due = "" if probe["next_at"] is None else f"next {until(probe['next_at'], now)}"
        settled = f"counts as {probe['settled']}" if probe["settled"] else ""
        rows.append((probe["container"], probe["kind"], settled, found, when, due, probe["words"]))
    return _table("Probes", rows)


def _exits(exits: Sequence[View], now: float) -> str:
    rows = []
    for one in exits[:MAX_EXITS]:
        when = "" if one["finished_at"] is None else ago(one["finished_at"], now)
        ran = ""
        if one["started_at"] is not None and one["finished_at"] is not None:
            ran = f"after {duration(one['finished_at'] - one['started_at'])}"
        attempt = "" if one["attempt"] is None else f"run {one['attempt'] + 1}"
        how = f"exit code {one['exit_code']} {one['reason']}".strip()
        rows.append((one["container"], attempt, how, when, ran, one["message"]))
    return _table("Ended runs", rows)


def _history(title: str, entries: Sequence[View], limit: int, now: float) -> str:
    rows = []
    newest = sorted(entries, key=lambda one: one["last_at"] or one["at"], reverse=True)
    for entry in newest[:limit]:
        times = f"{entry['count']} times" if entry["count"] > 1 else ""
        when = ago(entry["last_at"] or entry["at"], now)
        rows.append((when, times, entry["what"], entry["why"]))
    return _table(title, rows)


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as they need to be; empty columns are left out."""
    if not rows:
        return ""
    clean = [tuple(one_line(cell, MAX_CELL) for cell in row) for row in rows]
    used = sorted({index for row in clean for index, cell in enumerate(row) if cell})
    widths = {index: max(len(row[index]) for row in clean) for index in used}
    lines = [
        "  " + "  ".join(f"{row[index]:<{widths[index]}}" for index in used).rstrip()
        for row in clean
    ]
    return "\n".join([title, *lines])
