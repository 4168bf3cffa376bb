"""The pressure on a node, and a pod's eviction, as text. Pure; works on the socket's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeletpy.observe.explain.amounts import amounts, sizes
from kubeletpy.observe.explain.texts import ago, duration, one_line, until

MAX_EVICTIONS = 10
UNCOUNTABLE = 1 << 64
"""Bytes, as in :mod:`kubeletpy.node.stats.disk_plan`."""
View = Mapping[str, Any]

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


def node(view: View | None) -> str:
    """Everything about a node."""
    if view is None:
        return "this node is not watched: no eviction thresholds are set\n"
    now = float(view["at"])
    parts = [_conditions(view["conditions"], now), _levels(view["levels"], now)]
    if view["doubts"]:
        lines = "\n".join(f"  {signal}: {why}" for signal, why in view["doubts"])
        parts.append(f"Implausible numbers, ignored\n{lines}")
    if view["evictions"]:
        lines = "\n".join(
            f"  {_eviction_line(each, now)}"
            for each in reversed(view["evictions"][-MAX_EVICTIONS:])
        )
        parts.append(f"Actions taken, newest first\n{lines}")
    if view["helps"]:
        lines = "\n".join(f"  {_help(each)}" for each in view["helps"])
        parts.append(f"Remedies\n{lines}")
    return "\n\n".join(part for part in parts if part) + "\n"


def eviction(row: View, now: float) -> str:
    """Why one pod was evicted."""
    pod = row["pod"]
    lines = [
        f"  {ago(row['at'], now)}: {_crossing(row)}",
        f"  {_place(pod, row['signal'])}",
    ]
    if row["ranking"]:
        lines.append("  the order then:")
        lines += [
            f"    {number}. {pod_name(each)}: {_place(each, row['signal'])}"
            for number, each in enumerate(row["ranking"], 1)
        ]
    if row["next"] is not None:
        lines.append(f"  next would have been {pod_name(row['next'])}")
    return "Evicted because the node ran short\n" + "\n".join(lines)


def by_limit(row: View, now: float) -> str:
    """Why one pod was evicted for exceeding its own limit."""
    lines = [f"  {ago(row['at'], now)}: {_share(row['pod']['share'])}"]
    if row["ranking"]:
        lines.append("  the nearest to a limit then, which would be next:")
        lines += [
            f"    {number}. {pod_name(each)}: {_share(each['share'])}"
            for number, each in enumerate(row["ranking"], 1)
        ]
    return "Evicted because it exceeded a limit of its local storage\n" + "\n".join(lines)


def _share(share: View) -> str:
    if share["used"] >= UNCOUNTABLE:
        (limit,) = sizes(share["limit"])
        return one_line(f"{share['of']} used more than can be counted of {limit}")
    used, limit = sizes(share["used"], share["limit"])
    return one_line(f"{share['of']} used {used} of {limit}")


def _conditions(held: Sequence[View], now: float) -> str:
    if not held:
        return "The node is under no pressure."
    lines = []
    for each in held:
        ends = (
            "" if each["ends_at"] is None else f"; enough again, ends {until(each['ends_at'], now)}"
        )
        lasts = duration(now - each["since"])
        lines.append(f"The node has been under {each['condition']} for {lasts}{ends}.")
    return "\n".join(lines)


def _levels(levels: Sequence[View], now: float) -> str:
    if not levels:
        return ""
    lines = []
    for each in levels:
        crossed = ""
        if each["crossed_since"] is not None:
            crossed = f", crossed for {duration(now - each['crossed_since'])}"
        grace = f" for {duration(each['grace'])}" if each["grace"] else ""
        available, capacity, threshold = amounts(
            each["signal"], each["available"], each["capacity"], each["threshold"]
        )
        below = f"acted on below {threshold}{grace}{crossed}"
        lines.append(f"  {each['field']}: {available} left of {capacity}, {below}")
    return "Thresholds\n" + "\n".join(lines)


def _eviction_line(row: View, now: float) -> str:
    when = ago(row["at"], now)
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
    grace = f" for more than {duration(row['grace'])}" if row["grace"] else ""
    available, threshold = amounts(row["signal"], row["available"], row["threshold"])
    return f"{row['signal']} was {available}, below {threshold}{grace}"


def _place(place: View, signal: str) -> str:
    if place["critical"]:
        return "critical or static: stays"
    if place["used"] is None:
        return f"nothing of it ran, priority {place['priority']}"
    used, asked = amounts(signal, place["used"], place["request"])
    if signal == "pid.available":
        return f"{used} tasks, priority {place['priority']}"
    over = "more than" if place["over"] else "within"
    return f"used {used}, {over} its request of {asked}, priority {place['priority']}"


def _help(each: View) -> str:
    (amount,) = [str(each["amount"])] if each["remedy"] in _COUNTED else sizes(each["amount"])
    words = _REMEDIES[each["remedy"]].format(amount=amount)
    return words if each["signal"] is None else f"{each['signal']}: {words}"


def pod_name(place: View) -> str:
    """Namespace and name, on one line."""
    return one_line(f"{place['namespace']}/{place['name']}")
