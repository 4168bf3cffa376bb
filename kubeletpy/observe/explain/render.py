"""Explanations of pods and nodes, and timelines, as readable text for a terminal. Pure.

Works on the JSON that the socket returns. The first line is the answer. All external text is on one
line and without control characters, so that no pod can write arbitrary output to the reader's
terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import ValidationError, convert, to_builtins

from kubeletpy.metrics.trace.model import Chapter
from kubeletpy.observe.explain import texts
from kubeletpy.observe.explain.deaths import DeathCause, DeathKind
from kubeletpy.observe.explain.model import (
    Bar,
    ContainerStateKey,
    Timeline,
    TimelineChapter,
    WorkerState,
)

View = Mapping[str, Any]
"""A part of the socket's JSON."""
MAX_VERDICT = 2000
MAX_CELL = 1000
MAX_DECISIONS = 12
MAX_ERRORS = 5
MAX_EXITS = 6
_BOLD, _RED, _GREEN, _DIM, _RESET = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[2m", "\x1b[0m"


class Paint:
    """Puts text in color for a terminal, or leaves it as it is."""

    def __init__(self, colors: bool) -> None:
        self._on = colors

    def __call__(self, code: str, text: str) -> str:
        return f"{code}{text}{_RESET}" if self._on and code else text


def pods(lines: Sequence[View], *, colors: bool = False) -> str:
    """Return the pods of the node, one line each: unhealthy ones first, else in their order."""
    if not lines:
        return "no pods on this node\n"
    lines = sorted(lines, key=lambda each: bool(each["healthy"]))
    paint = Paint(colors)
    wide = max(len(pod_name(each)) for each in lines)
    rows = []
    for each in lines:
        verdict = texts.one_line(each["verdict"], MAX_VERDICT)
        rows.append(f"{pod_name(each):<{wide}}  {paint('' if each['healthy'] else _RED, verdict)}")
    return "\n".join(rows) + "\n"


def pod(view: View, *, colors: bool = False) -> str:
    """Return everything about one pod."""
    paint, now = Paint(colors), float(view["at"])
    tint = _GREEN if view["healthy"] else _RED
    parts = [
        f"{paint(_BOLD, pod_name(view))}: "
        f"{paint(tint, texts.one_line(view['verdict'], MAX_VERDICT))}",
        _facts(view, now),
        eviction(view["eviction"], now) if view.get("eviction") else "",
        by_limit(view["by_limit"], now) if view.get("by_limit") else "",
        render_waits(view["waits"], now),
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
    state = f"{worker['state']} {_lasts(worker['since'], now)}".rstrip()
    if worker["stage"]:
        state += ", a sync runs"
    ending = worker["state"] in (WorkerState.TERMINATING, WorkerState.TERMINATED)
    if ending and worker["grace"] is not None:
        state += f", grace period {worker['grace']}s"
    first, due = view["first_seen"], worker["next_sync_at"]
    final = "this pod is not tried again: what owns it, or you, make another"
    rows = {
        "Since": "" if first is None else texts.since(first, now),
        "To do": view["hint"],
        "Final": final if view["final"] else "",
        "Worker": state,
        "Next sync": "" if due is None else f"{texts.until(due, now)}, or on the next event",
        "Status": f"{view['phase']}, {'' if view['ready'] else 'not '}Ready",
        "Address": ", ".join(view["pod_ips"]),
        "UID": view["uid"] + (" (static pod)" if view["static"] else ""),
    }
    return "\n".join(
        f"  {name:<10} {texts.one_line(text, MAX_VERDICT)}" for name, text in rows.items() if text
    )


def _lasts(since: float | None, now: float) -> str:
    return "" if since is None else f"for {texts.duration(now - since)}"


def render_waits(found: Sequence[View], now: float) -> str:
    """Return a table of what a pod waits for, and until when, or "" if it waits for nothing."""
    rows = []
    for wait in found:
        end = wait["until"]
        ends = "" if end is None else _until(end, now)
        when = ", ".join(filter(None, (_lasts(wait["since"], now), ends)))
        rows.append((wait["kind"], wait["subject"], when, wait["why"]))
    return _table("Waits for", rows)


def _until(end: float, now: float) -> str:
    return f"until {texts.clock_time(end, now)} ({texts.until(end, now)})"


def _actions(actions: Sequence[View], now: float) -> str:
    rows = []
    for action in actions:
        end = action["until"]
        most = "" if end is None else f"at most until {texts.clock_time(end, now)}"
        rows.append((action["what"], action["subject"], _lasts(action["since"], now), most))
    return _table("Is doing", rows)


def _containers(containers: Sequence[View], now: float) -> str:
    rows = []
    for view in containers:
        lasts = _lasts(view["since"], now) if view["state"] == ContainerStateKey.RUNNING else ""
        state = f"{view['state']} {view['reason']} {lasts}"  # gaps are closed in the table
        ready = "ready" if view["ready"] else "not ready"
        often = texts.restarts(view["restarts"])
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
        found = f"last {probe['last']}" if probe["last"] else "not run yet"
        if probe["last"] and probe["last"] != probe["settled"]:
            found += f", {probe['streak']} of {probe['threshold']}"
        when = "" if probe["at"] is None else texts.ago(probe["at"], now)
        due = "" if probe["next_at"] is None else f"next {texts.until(probe['next_at'], now)}"
        settled = f"counts as {probe['settled']}" if probe["settled"] else ""
        rows.append((probe["container"], probe["kind"], settled, found, when, due, probe["words"]))
    return _table("Probes", rows)


def _exits(exits: Sequence[View], now: float) -> str:
    rows = []
    for one in exits[:MAX_EXITS]:
        started, finished = one["started_at"], one["finished_at"]
        when = "" if finished is None else texts.ago(finished, now)
        known = started is not None and finished is not None
        ran = f"after {texts.duration(finished - started)}" if known else ""
        attempt = "" if one["attempt"] is None else f"run {one['attempt'] + 1}"
        how = f"exit code {one['exit_code']} {one['reason']}"
        cause = death(one.get("cause"))  # an earlier version of the agent sends none
        rows.append((one["container"], attempt, how, when, ran, cause, one["message"]))
    return _table("Ended runs", rows)


def death(cause: View | None) -> str:
    """Return why a run ended, unless its exit code has all that there is."""
    if cause is None or (cause["kind"] == DeathKind.EXITED and len(cause["evidence"]) < 2):
        return ""
    try:
        return convert(cause, DeathCause).text
    except ValidationError:  # a later version has more kinds
        return str(cause["kind"])


def _history(title: str, entries: Sequence[View], limit: int, now: float) -> str:
    timed = [(one["last_at"] or one["at"], one) for one in entries]
    rows = []
    for at, one in sorted(timed, key=lambda each: each[0], reverse=True)[:limit]:
        times = f"{one['count']} times" if one["count"] > 1 else ""
        rows.append((texts.ago(at, now), times, one["what"], one["why"]))
    return _table(title, rows)


def section(title: str, lines: Iterable[str]) -> str:
    """Return a title with a line below it for each text, or "" if there is none."""
    body = "".join(f"\n  {line}" for line in lines)
    return f"{title}{body}" if body else ""


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table: columns are as wide as they need to be, and empty ones are left out."""
    if not rows:
        return ""
    clean = [[texts.one_line(cell, MAX_CELL) for cell in row] for row in rows]
    columns = [column for column in zip(*clean, strict=True) if any(column)]
    widths = [max(map(len, column)) for column in columns]
    lines = [
        "  " + "  ".join(f"{cell:<{wide}}" for cell, wide in zip(row, widths, strict=True)).rstrip()
        for row in zip(*columns, strict=True)
    ]
    return "\n".join([title, *lines])


def pod_name(place: View) -> str:
    """Return the namespace and name of a pod, on one line."""
    return texts.one_line(f"{place['namespace']}/{place['name']}")


def eviction(row: View, now: float) -> str:
    """Return why a pod was evicted."""
    pod = row["pod"]
    lines = [f"{texts.ago(row['at'], now)}: {_crossing(row)}", _place(pod, row["signal"])]
    if row["ranking"]:
        lines.append("the order then:")
        lines += _numbered(row["ranking"], lambda each: _place(each, row["signal"]))
    if row["next"] is not None:
        lines.append(f"next would have been {pod_name(row['next'])}")
    return section("Evicted because the node ran short", lines)


def _numbered(ranking: Sequence[View], described: Callable[[View], str]) -> list[str]:
    return [
        f"  {number}. {pod_name(each)}: {described(each)}" for number, each in enumerate(ranking, 1)
    ]


def by_limit(row: View, now: float) -> str:
    """Return why a pod was evicted for exceeding its own limit."""
    lines = [f"{texts.ago(row['at'], now)}: {_share(row['pod']['share'])}"]
    if row["ranking"]:
        lines.append("the nearest to a limit then, which would be next:")
        lines += _numbered(row["ranking"], lambda each: _share(each["share"]))
    return section("Evicted because it exceeded a limit of its local storage", lines)


def _share(share: View) -> str:
    if share["used"] >= UNCOUNTABLE:
        (limit,) = texts.sizes(share["limit"])
        return texts.one_line(f"{share['of']} used more than can be counted of {limit}")
    used, limit = texts.sizes(share["used"], share["limit"])
    return texts.one_line(f"{share['of']} used {used} of {limit}")


# A node: its pressure, connections, troubles, settings without effect, and version.

MAX_EVICTIONS = 10
UNCOUNTABLE = 1 << 64
"""Bytes, as in :mod:`kubeletpy.node.stats.disk_plan`."""

_REMEDIES = {
    "free memory": "{amount} of memory have to be free more: end or move pods, or raise the "
    "requests of those that use most, so that the scheduler leaves room",
    "free space": "{amount} of space have to be free more: remove files that no pod owns, or move "
    "pods that write much; unused images and dead containers are removed by the agent",
    "remove files": "{amount} inodes have to be free more: remove small files that no pod owns, or "
    "move pods that make many",
    "end processes": "{amount} process numbers have to be free more: end processes, or set "
    "podPidsLimit",
    "wait": "nothing: there is enough again, and the conditions end when they have been held for "
    "evictionPressureTransitionPeriod",
}
_COUNTED = ("remove files", "end processes")
MAX_TROUBLE = 1000


def node(view: View | None) -> str:
    """Return the pressure on a node: its levels, evictions and remedies."""
    if view is None:
        return "this node is not watched: no eviction thresholds are set\n"
    now = float(view["at"])
    newest = reversed(view["evictions"][-MAX_EVICTIONS:])
    parts = [
        _conditions(view["conditions"], now),
        section("Thresholds", (_level(each, now) for each in view["levels"])),
        section("Implausible numbers, ignored", (": ".join(each) for each in view["doubts"])),
        section("Actions taken, newest first", (_eviction_line(each, now) for each in newest)),
        section("Remedies", map(_help, view["helps"])),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _conditions(held: Sequence[View], now: float) -> str:
    if not held:
        return "The node is under no pressure."
    lines = []
    for each in held:
        ends = each["ends_at"]
        over = "" if ends is None else f"; enough again, ends {texts.until(ends, now)}"
        lasts = _lasts(each["since"], now)
        lines.append(f"The node has been under {each['condition']} {lasts}{over}.")
    return "\n".join(lines)


def _level(level: View, now: float) -> str:
    crossed = ""
    if level["crossed_since"] is not None:
        crossed = f", crossed {_lasts(level['crossed_since'], now)}"
    grace = f" for {texts.duration(level['grace'])}" if level["grace"] else ""
    available, capacity, threshold = texts.amounts(
        level["signal"], level["available"], level["capacity"], level["threshold"]
    )
    below = f"acted on below {threshold}{grace}{crossed}"
    return f"{level['field']}: {available} left of {capacity}, {below}"


def _eviction_line(row: View, now: float) -> str:
    when = texts.ago(row["at"], now)
    what = " and ".join(row["reclaimed"])
    match row["outcome"]:
        case "evicted":
            done = f"evicted {pod_name(row['pod'])} ({_place(row['pod'], row['signal'])})"
        case "reclaimed":
            done = f"removed unused {what}, which was enough"
        case _:
            done = f"removed unused {what}, which was not enough"
    return f"{when}: {done}: {_crossing(row)}"


def _crossing(row: View) -> str:
    grace = f" for more than {texts.duration(row['grace'])}" if row["grace"] else ""
    available, threshold = texts.amounts(row["signal"], row["available"], row["threshold"])
    return f"{row['signal']} was {available}, below {threshold}{grace}"


def _place(place: View, signal: str) -> str:
    if place["critical"]:
        return "critical or static: stays"
    if place["used"] is None:
        return f"nothing of it ran, priority {place['priority']}"
    used, requested = texts.amounts(signal, place["used"], place["request"])
    if signal == "pid.available":
        return f"{used} tasks, priority {place['priority']}"
    over = "more than" if place["over"] else "within"
    return f"used {used}, {over} its request of {requested}, priority {place['priority']}"


def _help(each: View) -> str:
    (amount,) = [str(each["amount"])] if each["remedy"] in _COUNTED else texts.sizes(each["amount"])
    remedy = _REMEDIES[each["remedy"]].format(amount=amount)
    return remedy if each["signal"] is None else f"{each['signal']}: {remedy}"


def notices(found: Sequence[View]) -> str:
    """Return a paragraph on the settings without effect, or "" if all take effect."""
    lines = (f"{texts.one_line(n['name'] + '=' + n['value'])}: {n['consequence']}" for n in found)
    return _paragraph("Set without effect", lines)


def _paragraph(title: str, lines: Iterable[str]) -> str:
    text = section(title, lines)
    return f"\n{text}\n" if text else ""


def first(node: str, found: Sequence[str]) -> str:
    """Return failures of the node as shown before a list of pods: any pod may suffer from them."""
    return "".join(
        f"node {texts.one_line(node)}: {texts.one_line(each, MAX_TROUBLE)}\n" for each in found
    )


def troubles(found: Sequence[str]) -> str:
    """Return a paragraph on the parts that do not work, or "" if all work."""
    return _paragraph("Does not work", map(texts.one_line, found))


def connections(found: View | None, now: float) -> str:
    """Return a paragraph on the connections to the API server, or "" without one.

    ``now``: Unix seconds.
    """
    if found is None:
        return ""
    kinds = [f"{count} over {name}" for name, count in sorted(found["protocols"].items())]
    begun = f" since {texts.since(found['since'], now)}" if found["since"] else ""
    text = f"connections: {', '.join(kinds)}{begun}" if kinds else "no connection"
    text += f", in {found['content_type']}" if found.get("content_type") else ""
    text += f"; {found['watches']} watches, {found['streams'] - found['watches']} requests"
    if found["lost"]:
        text += f"; {found['lost']} lost, the last at {texts.since(found['lost_at'], now)}"
        text += f": {texts.one_line(found['lost_why'])}"
    return _paragraph("API server", [text])


def version(found: View | None) -> str:
    """Return a paragraph on the Kubernetes version, or "" if the agent does not report it."""
    if found is None:
        return ""
    server = texts.one_line(found["server"]) if found["server"] else "unknown"
    lines = [f"runs as {texts.one_line(found['running'])}: {texts.one_line(found['why'])}"]
    if found["source"] != "standalone":
        lines.append(f"API server: {server}")
    if found["restart"]:
        lines.append(texts.one_line(found["restart"]))
    return _paragraph("Kubernetes version", lines)


# The order in which pods would be evicted.

_PIDS = "pid.available"


def orders(view: Sequence[View]) -> str:
    """Return all orders without a line break at the end, or "" if there is none."""
    return section("Eviction order", (line for each in view for line in _order(each)))


def _order(order: View) -> list[str]:
    state = "short of it now" if order["crossed"] else "enough now"
    lines = [f"{', '.join(order['signals'])} ({state})"]
    if order["reclaims"]:
        what = " and ".join(f"unused {each}" for each in order["reclaims"])
        lines.append(f"  nobody, if removing {what} is enough")
    last = 0
    for each in order["pods"]:
        if each["number"] > last + 1:
            lines.append("  …")
        last = each["number"]
        name = pod_name(each["place"])
        lines.append(f"  {last}. {name}: {_why(each, order['signals'])}")
    if not order["pods"] and not order["asked_stays"]:
        lines.append("  no pod can be evicted")
    if order["count"] > last:
        lines.append(f"  … of {order['count']}")
    if order["beyond"] is not None:
        lines.append(f"  once it uses more than it requests, this pod is number {order['beyond']}")
    if order["asked_stays"]:
        lines.append("  this pod is critical or static: it stays")
    if order["stay"]:
        pods = "pod stays" if order["stay"] == 1 else "pods stay"
        lines.append(f"  {order['stay']} critical or static {pods}")
    return lines


def _why(each: View, signals: Sequence[str]) -> str:
    place = each["place"]
    whose = f"this pod, priority {place['priority']}" if each["asked"] else ""
    priority = whose or f"priority {place['priority']}"
    if each["assumed"]:
        if _PIDS in signals:
            return f"{priority}, with one task"
        if place["over"]:
            return f"{priority}; it requests none, so all usage counts as excess"
        (requested,) = texts.amounts(signals[0], place["request"])
        return f"{priority}, if it uses the {requested} that it requests"
    if place["used"] is None:
        return f"{priority}; what it uses is not known"
    if _PIDS in signals:
        return f"{priority}, {place['used']} tasks"
    over = "more than" if place["over"] else "within"
    used, requested = texts.amounts(signals[0], place["used"], place["request"])
    return f"{priority}, uses {used}, {over} its request of {requested}"


# Timelines. :mod:`kubeletpy.observe.view.drawing` draws them as SVG and HTML.

_FULL, _LEFT = "█", " ▏▎▍▌▋▊▉"


def text(line: Timeline, width: int = 100) -> str:
    """Return a timeline for a terminal of ``width`` columns."""
    head = texts.one_line(f"{line.namespace}/{line.name}")
    parts = [_chapter(head, each, line.at, width) for each in line.chapters]
    if line.verdict and (line.waits or line.start.total is None):
        parts.append(f"now: {texts.one_line(line.verdict, MAX_VERDICT)}")
    waits = render_waits([to_builtins(each) for each in line.waits], line.at)
    return "\n\n".join([*parts, *([waits] if waits else [])]) + "\n"


def summary(chapter: TimelineChapter, now: float) -> str:
    """Return how long a chapter took, from what to what, or how far it is."""
    if chapter.title == Chapter.LIFE:
        count = len(chapter.spans)
        return f"its last {count} steps since it was Ready, from {texts.since(chapter.began, now)}"
    if chapter.title == Chapter.START:
        done, going = "from first sight to the Ready status being written", "not ready yet"
        if chapter.over:
            done = "from first sight to its end being written; it was never Ready"
            going = "it was never Ready"
    else:
        done, going = "from the first stop to the pod being done with", "still ending"
    total = going if chapter.total is None else f"{texts.milliseconds(chapter.total)} {done}"
    return total + (f" ({chapter.note})" if chapter.note else "")


def _chapter(head: str, chapter: TimelineChapter, now: float, width: int) -> str:
    lines = [f"{head}  {chapter.title}: {summary(chapter, now)}"]
    whole = scale(chapter)
    labels = [_label(bar) for bar in chapter.spans]
    room = min(len(max(labels, key=len, default="")), max(width // 2 - 10, 20))
    bars = max(width - room - 26, 10)
    for bar in chapter.spans:
        took = f"{texts.milliseconds(bar.end - bar.start)}{'…' if bar.going_on else ''}"
        lines.append(
            f"  {_cut(_label(bar), room):<{room}} "
            f"{'+' + texts.milliseconds(bar.start):>10} {took:>9}"
            f" │{_bar(bar.start, bar.end, whole, bars)}│"
        )
        if bar.error:
            lines.append(f"  {'  ' * bar.depth}  failed: {texts.cause(bar.error)}")
    return "\n".join(lines)


def scale(chapter: TimelineChapter) -> float:
    """Return the seconds that the complete width stands for."""
    ends = [bar.end for bar in chapter.spans]
    return max([0.001, *ends, *filter(None, [chapter.total])])


def _label(bar: Bar) -> str:
    return "  " * bar.depth + texts.one_line(f"{bar.name} {bar.detail}")


def _cut(label: str, room: int) -> str:
    return label if len(label) <= room else label[: room - 1] + "…"


def _bar(start: float, end: float, whole: float, width: int) -> str:
    """Return a bar with a resolution of an eighth of a column."""
    first, last = round(start / whole * width * 8), round(end / whole * width * 8)
    last = max(last, first + 1)
    column = min(first // 8, width - 1)
    eighths = last - column * 8
    full, rest = divmod(eighths, 8)
    bar = _FULL * full + _LEFT[rest]
    return (" " * column + bar)[:width].ljust(width)
