"""Conversations with an API server: requests as data, sent in order, and their answers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.contract import signing_requests
from tests.contract.client import JSON, Answer
from tests.contract.server import Server

PATCHES = {
    "strategic": "application/strategic-merge-patch+json",
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
RETRY_S = 20.0
"""A cluster's volume controller tries again what it could not bind every 15 s."""
WATCH = "WATCH"
WATCH_S = 10.0
"""Seconds after which a watch is ended if neither its events nor the server end it."""
_HOLE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Step:
    """One request. ``{ns}``, ``{node}`` and kept values are filled in, in paths and bodies.

    Attributes:
        by: the client: admin, node, other (another node), account (a service account), nobody.
        keep: name -> where the answer's body has the value, for later steps.
        until: repeat the request until this code is answered, when it takes a while.
        ready: the nodes report again that they are: one that is silent for 40 s gets no pods.
        events: of a watch: how many end it; None: the server ends it, by its timeoutSeconds.
        managers: the answer is compared with its ``managedFields``: who owns what.
        meanwhile: requests to send as soon as the watch is accepted; these are steps, too.
    """

    name: str
    method: str
    path: str
    body: Any = None
    by: str = "admin"
    query: Mapping[str, object] = field(default_factory=dict)
    content_type: str = "application/json"
    accept: str = "application/json"
    keep: Mapping[str, str] = field(default_factory=dict)
    until: int | None = None
    ready: bool = False
    events: int | None = None
    managers: bool = False
    meanwhile: Sequence[Step] = ()


def get(name: str, path: str, **more: Any) -> Step:
    """A GET."""
    return Step(name, "GET", path, **more)


def post(name: str, path: str, body: Any, **more: Any) -> Step:
    """A POST."""
    return Step(name, "POST", path, body, **more)


def put(name: str, path: str, body: Any, **more: Any) -> Step:
    """A PUT."""
    return Step(name, "PUT", path, body, **more)


def patch(name: str, path: str, body: Any, kind: str = "strategic", **more: Any) -> Step:
    """A PATCH of a kind: strategic, merge, json or apply."""
    return Step(name, "PATCH", path, body, content_type=PATCHES[kind], **more)


def once(name: str, path: str, pointer: str, value: Any, **more: Any) -> Step:
    """The object as soon as a controller has given a field that value; nothing is changed."""
    test = [{"op": "test", "path": pointer, "value": value}]
    return patch(name, path, test, "json", until=200, **more)


def delete(name: str, path: str, body: Any = None, **more: Any) -> Step:
    """A DELETE."""
    return Step(name, "DELETE", path, body, **more)


def watch(name: str, path: str, *meanwhile: Step, events: int | None = None, **query: Any) -> Step:
    """A watch by the administrator, or by the client ``by``; ``accept`` as in a step."""
    by, accept = query.pop("by", "admin"), query.pop("accept", "application/json")
    return Step(
        name, WATCH, path, by=by, query=query, accept=accept, events=events, meanwhile=meanwhile
    )


def every(steps: Sequence[Step]) -> list[Step]:
    """All steps, in the order in which they are sent."""
    return [each for step in steps for each in (step, *step.meanwhile)]


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """A path or body with its placeholders filled; unknown names in braces are kept."""
    if isinstance(value, dict):
        return {filled(k, known): filled(v, known) for k, v in value.items()}
    if isinstance(value, list):
        return [filled(each, known) for each in value]
    if isinstance(value, str):
        whole = _HOLE.fullmatch(value)
        if whole and whole[1] in known:
            return known[whole[1]]
        return _HOLE.sub(lambda m: str(known.get(m[1], m[0])), value)
    return value


def found(body: Any, where: str) -> Any:
    """The value at a dotted path; numbers are places in lists."""
    for part in where.split("."):
        body = body[int(part)] if isinstance(body, list) else body[part]
    return body


def hold(server: Server, steps: Sequence[Step], namespace: str) -> dict[str, JSON]:
    """Send the requests in order; gives each answer, made comparable, by the step's name."""
    known: dict[str, Any] = {
        "ns": namespace,
        "node": server.node_name,
        "other": server.other_name,
        "account_ns": server.account_namespace,
        **signing_requests.requests(server.node_name, server.other_name),
    }
    answers: dict[str, JSON] = {}

    def send_all(meanwhile: Sequence[Step]) -> None:
        for each in meanwhile:
            send(each)

    def send(step: Step) -> None:
        assert step.name not in answers, step.name
        if step.ready:
            server.heartbeat()
        if step.method == WATCH:
            answers[step.name] = {}  # its position, before those of the steps meanwhile
            answer = _follow(server, step, known, partial(send_all, step.meanwhile))
        else:
            answer = _send(server, step, known)
        for name, where in step.keep.items():
            try:
                known[name] = found(answer.body, where)
            except (KeyError, IndexError, TypeError):
                known[name] = f"missing {name}"
        reported = {"code": answer.code, "body": comparable(answer.body, known)}
        if step.method == WATCH and isinstance(reported["body"], list):
            reported["body"] = _without_repeated_bookmarks(reported["body"])
        if step.managers and isinstance(answer.body, dict) and "metadata" in answer.body:
            owners = answer.body["metadata"].get("managedFields") or []
            # the server orders them by seconds
            owners.sort(
                key=lambda one: (one["operation"], one["manager"], one.get("subresource") or "")
            )
            reported["body"]["metadata"]["managedFields"] = comparable(owners, known)
        if warning := answer.headers.get("warning"):
            reported["warning"] = comparable(warning, known)
        answers[step.name] = reported

    send_all(steps)
    return answers


def _follow(
    server: Server, step: Step, known: Mapping[str, Any], begun: Callable[[], object]
) -> Answer:
    code, events = server.client(step.by).follow(
        filled(step.path, known),
        lambda events: step.events is not None and len(events) >= step.events,
        seconds=WATCH_S,
        query=filled(dict(step.query), known),
        accept=step.accept,
        begun=begun,
    )
    return Answer(code, {}, events)


def _without_repeated_bookmarks(events: list[JSON]) -> list[JSON]:
    """Events of a watch; how many bookmarks follow one another is a matter of time.

    A server that is slow adds a plain one to that which ends the initial events.
    """
    pairs = zip(events, [{}, *events], strict=False)
    return [one for one, last in pairs if not one.get("type") == last.get("type") == "BOOKMARK"]


def _send(server: Server, step: Step, known: Mapping[str, Any]) -> Answer:
    deadline = time.monotonic() + RETRY_S
    while True:
        answer = server.client(step.by).send(
            step.method,
            filled(step.path, known),
            filled(step.body, known),
            query=filled(dict(step.query), known),
            content_type=step.content_type,
            accept=step.accept,
        )
        if step.until in (None, answer.code) or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)


_VOLATILE = {"uid", "resourceVersion", "token", "request", "continue", "selfLink"}
_MADE_UP = "00000000-0000-0000-0000-000000000000"
"""A uid of our own that no object has."""
_OTHERS = {
    "managedFields",  # who wrote what: the appliers' business, with times
    "node.alpha.kubernetes.io/ttl",  # the rest is what a cluster's controllers add to nodes
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "timeAdded",
    "authentication.kubernetes.io/credential-id",  # which certificate or token its user had
}
_ADDRESSES = {"clusterIP", "clusterIPs"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_SUFFIX = re.compile(r"\b(kube-api-access|gen)-[a-z0-9]{5}\b")
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ROLE = re.compile(r"RBAC: allowed by .*")
_AGE = re.compile(r"\d{1,2}s")
_OLD = re.compile(r"\d+d|\d+y(\d+d)?")
"""The age of what a conversation dates back."""
_SHOWN_VERSION = re.compile(r'("resourceVersion":")\d+')
_SHOWN_MANAGERS = re.compile(r'("managedFields":)\[.*?\](?=\},"spec")')
"""Their order is that of seconds."""
_VERSIONS = re.compile(
    r"((?:in record|in the precondition|too old resource version: 1) \(|, current: )\d+(\)|$)"
)


def _comes_later(condition: Any) -> bool:
    """Whether a controller adds this condition of a claim at no known moment (from 1.37 on)."""
    return isinstance(condition, dict) and condition.get("type") == "Unused"


def comparable(value: Any, known: Mapping[str, Any], key: str = "") -> Any:
    """An answer with everything that differs from run to run replaced by a word for it."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in _OTHERS}
        if isinstance(listed := kept.get("conditions"), list):
            kept["conditions"] = [each for each in listed if not _comes_later(each)]
            if listed and not kept["conditions"]:
                del kept["conditions"]
        if key == "columnDefinitions":
            kept.pop("description", None)  # complete paragraphs, which no client shows
        kept = {
            k: v for k, v in kept.items() if not (v and isinstance(v, dict) and {*v} <= _OTHERS)
        }
        return {comparable(k, known): comparable(v, known, k) for k, v in kept.items()}
    if isinstance(value, list):
        each = [comparable(item, known, key) for item in value]
        # a rule that one server checks twice adds no information
        return [c for i, c in enumerate(each) if c not in each[:i]] if key == "causes" else each
    if not isinstance(value, str):
        return value
    if key == "certificate" and value:
        return comparable(signing_requests.described(value), known)
    if key in _VOLATILE and value:
        return f"<{key}>"
    if key in _ADDRESSES and value not in ("", "None"):
        return "<address>"
    if key == "cells" and _AGE.fullmatch(value):
        return "<age>"
    if key == "cells" and _OLD.fullmatch(value):
        return "<old>"
    if key == "message":
        value = value.partition("\n")[0]  # what follows is a dump of the server's own types
    for name, text in known.items():
        if isinstance(text, str) and text and not text.isdecimal():
            value = value.replace(text, f"<{name}>")
    value = _ROLE.sub("RBAC: allowed by a role", _TIME.sub("<time>", value))
    value = value if _MADE_UP in value else _UID.sub("<uid>", value)
    value = _SHOWN_VERSION.sub(r"\1<version>", value.replace('\\"', '"'))
    value = _SHOWN_MANAGERS.sub(r"\1[]", value)
    value = _VERSIONS.sub(r"\1<version>\2", value)
    return _SUFFIX.sub(r"\1-<suffix>", value)


def differences(expected: Any, got: Any, where: str = "") -> list[str]:
    """Differences between two documents, a line for each position."""
    if isinstance(expected, dict) and isinstance(got, dict):
        lines = []
        for key in sorted({*expected, *got}):
            place = f"{where}.{key}" if where else key
            if key not in got:
                lines.append(f"{place}: missing, expected {expected[key]!r}")
            elif key not in expected:
                lines.append(f"{place}: unexpected {got[key]!r}")
            else:
                lines += differences(expected[key], got[key], place)
        return lines
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        return [
            line
            for index, (a, b) in enumerate(zip(expected, got, strict=True))
            for line in differences(a, b, f"{where}[{index}]")
        ]
    same = expected == got and type(expected) is type(got)
    return [] if same else [f"{where}: expected {expected!r}, got {got!r}"]
