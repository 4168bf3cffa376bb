"""In which order pods would be evicted, as text. Pure; works on the socket's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeletpy.observe.explain.amounts import amounts
from kubeletpy.observe.explain.render_pressure import pod_name

View = Mapping[str, Any]
_PIDS = "pid.available"


def orders(view: Sequence[View]) -> str:
    """All orders, without a line break at the end; empty: there is none."""
    if not view:
        return ""
    return "\n".join(["Eviction order", *(line for each in view for line in _order(each))])


def _order(order: View) -> list[str]:
    state = "short of it now" if order["crossed"] else "enough now"
    lines = [f"  {', '.join(order['signals'])} ({state})"]
    if order["reclaims"]:
        what = " and ".join(f"unused {each}" for each in order["reclaims"])
        lines.append(f"    nobody, if removing {what} is enough")
    last = 0
    for each in order["pods"]:
        if each["number"] > last + 1:
            lines.append("    …")
        last = each["number"]
        name = pod_name(each["place"])
        lines.append(f"    {last}. {name}: {_why(each, order['signals'])}")
    if not order["pods"] and not order["asked_stays"]:
        lines.append("    no pod can be evicted")
    if order["count"] > last:
        lines.append(f"    … of {order['count']}")
    if order["beyond"] is not None:
        lines.append(
            f"    once it uses more than it requests, this pod is number {order['beyond']}"
        )
    if order["asked_stays"]:
        lines.append("    this pod is critical or static: it stays")
    if order["stay"]:
        pods = "pod stays" if order["stay"] == 1 else "pods stay"
        lines.append(f"    {order['stay']} critical or static {pods}")
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
        (asked,) = amounts(signals[0], place["request"])
        return f"{priority}, if it uses the {asked} that it requests"
    if place["used"] is None:
        return f"{priority}; what it uses is not known"
    if _PIDS in signals:
        return f"{priority}, {place['used']} tasks"
    over = "more than" if place["over"] else "within"
    used, asked = amounts(signals[0], place["used"], place["request"])
    return f"{priority}, uses {used}, {over} its request of {asked}"
