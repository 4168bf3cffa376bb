"""A prediction as readable text. Pure; works on the JSON that the socket returns.

All external text is on one line and without control characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kubeletpy.base.api.quantity import spelled
from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.texts import milliseconds, one_line
from kubeletpy.observe.foresee.model import ForeseenOutcome, NeedState
from kubeletpy.observe.foresee.start import missing

View = Mapping[str, Any]

_HEADLINES = {
    ForeseenOutcome.RUNS: "{node} would admit and start it",
    ForeseenOutcome.WAITS: "{node} would admit it; it would wait for {waits}",
    ForeseenOutcome.STUCK: "{node} would admit it, and it would not start: {why}",
    ForeseenOutcome.UNSERVED: "this API has no {kind}s: apply would be refused with 405. Apply the "
    "pod template as a Pod. {judged}",
    ForeseenOutcome.PREEMPTS: "{node} would admit it, and preempt others for it",
    ForeseenOutcome.REFUSED: "{node} would refuse it: {why}; it would be Failed for good",
    ForeseenOutcome.FORBIDDEN: "{why}",
    ForeseenOutcome.UNCHANGED: "nothing would happen on {node}",
    ForeseenOutcome.IN_PLACE: "it would be resized in place; nothing restarts",
    ForeseenOutcome.RESTARTS: "{containers} would restart; "
    "the pod, its address and its volumes stay",
    ForeseenOutcome.RECREATES: "all of its containers would restart, in a new sandbox",
    ForeseenOutcome.ENDS: "it would end",
    ForeseenOutcome.DEFERRED: "the resize would wait until there is room: {why}",
    ForeseenOutcome.INFEASIBLE: "the resize would never be done: {why}",
    ForeseenOutcome.UNKNOWN: "the outcome is not known yet: {why}",
}


def plan(view: View, *, evictions: bool = False) -> str:
    """Return a prediction as text.

    ``evictions``: include orders by which no pod is evicted now or would be with this pod.
    """
    name = one_line(f"{view['namespace']}/{view['name']}")
    parts = [
        f"{name}: {_headline(view)}",
        render.section("Does not start", map(_fault, view.get("faults") or ())),
        render.section("Preempts", map(one_line, view["victims"])),
        _acts(view),
        render.section("Images", map(_image, view["images"])),
        render.section("Volumes", map(_volume, view["volumes"])),
        render.section("Waits for", map(_need, missing(_needs(view)))),
        render.section("Eviction thresholds", map(_squeezed, view["squeezed"])),
        render.orders(view["evictions"] if evictions else _near(view)),
        render.section("How", map(one_line, view["hints"])),
        render.section(
            "Not known", (*_unchecked(view), *(one_line(each) for each in view["unsure"]))
        ),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(view: View) -> str:
    """Return the outcome; for a workload, with the number of its pods that it is about."""
    workload = view.get("workload")
    if workload is None:
        return _outcome(view)
    count, fits = workload["replicas"], view.get("fits")
    judged = f"One of {count} replicas was judged: " if count != 1 else "Its replica was judged: "
    text = _outcome({**view, "outcome": workload["outcome"]})
    if view["outcome"] == ForeseenOutcome.UNSERVED:
        return _HEADLINES[ForeseenOutcome.UNSERVED].format(
            kind=workload["kind"], judged=judged + text
        )
    if count == 1:
        return text
    fit = f", {fits} of {count} fit on this node" if fits is not None else ""
    return f"{text}; one of {count} replicas was judged{fit}"


def _outcome(view: View) -> str:
    why = ": ".join(text for text in (view["reason"], view["message"]) if text)
    outcome = ForeseenOutcome(view["outcome"])
    if outcome in (ForeseenOutcome.FORBIDDEN, ForeseenOutcome.UNKNOWN):
        why = view["message"]
    text = _HEADLINES[outcome].format(
        node=one_line(view["node"]),
        why=one_line(why, 600),
        containers=", ".join(one_line(name) for name in view["restarts"]),
        waits=_names(missing(_needs(view))),
    )
    if outcome in (ForeseenOutcome.RECREATES, ForeseenOutcome.ENDS) and why:
        text += f": {one_line(why)}"
    return text


def _acts(view: View) -> str:
    acts = view["acts"]
    if not acts:
        return ""
    names = [one_line(act["what"], 80) for act in acts]
    wide = min(max(map(len, names)), 60)
    lines = [_act(name, wide, act) for name, act in zip(names, acts, strict=True)]
    title = "Would"
    if view["seconds"] is not None:
        title += f" (about {milliseconds(view['seconds'])}, by the medians of this node)"
    return render.section(title, lines)


def _act(name: str, wide: int, act: View) -> str:
    took = ""
    if act["seconds"] is not None:
        times = "once" if act["samples"] == 1 else f"{act['samples']} times"
        took = f"about {milliseconds(act['seconds'])} ({times} before)"
    rest = "  ".join(text for text in (took, one_line(act["why"])) if text)
    return f"{name:<{wide}}  {rest}".rstrip()


def _image(image: View) -> str:
    names = ", ".join(one_line(name) for name in image["containers"])
    what = f"{one_line(image['action'])} {one_line(image['image'])}"
    return f"{what}  for {names}: {one_line(image['why'])}"


def _fault(fault: View) -> str:
    subject, reason = one_line(fault["subject"]), one_line(fault["reason"])
    return f"{subject}  {reason}: {one_line(fault['message'], 600)}"


def _volume(volume: View) -> str:
    problem = f": {one_line(volume['problem'])}" if volume["problem"] else ""
    return f"{one_line(volume['name'])}  {one_line(volume['what'])}{problem}"


def _needs(view: View) -> Sequence[View]:
    needs: Sequence[View] = view.get("needs") or ()  # an older agent has none in its answer
    return needs


def _need(need: View) -> str:
    users = ", ".join(one_line(each) for each in need["users"])
    if lacking := need.get("lacking"):
        keys = ", ".join(one_line(each) for each in lacking)
        return f"{_names([need])}, which has no key {keys}: needed by {users}"
    return f"{_names([need])}, which does not exist: needed by {users}"


def _unchecked(view: View) -> Iterator[str]:
    found = [each for each in _needs(view) if each["state"] == NeedState.NOT_CHECKED]
    if found:
        yield f"not checked: {_names(found)}; without them it would wait"
    for each in _needs(view):
        if each["state"] == NeedState.UNBOUND:
            yield f"{_names([each])} is not bound to a volume yet; until then it would wait"


def _names(needs: Iterable[View]) -> str:
    return ", ".join(f"{each['kind']} {one_line(each['name'])}" for each in needs)


def _near(view: View) -> list[View]:
    """Return the orders by which pods are evicted now, or if the pod used what it requests."""
    near = {each["signal"] for each in view["squeezed"] if each["crossed"]}
    return [each for each in view["evictions"] if each["crossed"] or near & set(each["signals"])]


def _squeezed(squeezed: View) -> str:
    verdict = "pods would be evicted" if squeezed["crossed"] else "not reached"
    return (
        f"{squeezed['signal']}  {_amount(squeezed['available'])} available, "
        f"{_amount(squeezed['requested'])} requested, threshold {_amount(squeezed['threshold'])}: "
        f"{verdict} if it uses all of that"
    )


def _amount(amount: int) -> str:
    return spelled(amount // 2**20 * 2**20, binary=True)
