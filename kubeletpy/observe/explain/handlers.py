"""Describes the commands and addresses that probes and hooks use. Pure.

The texts come from the pod's spec, which readers of an explanation may read as well. They never
have the value of a variable (a command has ``$(NAME)``), nor a header of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.observe.explain.containers import find_report, last_message
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.texts import duration, one_line
from kubeletpy.probes.handlers.outcome import HandlerError, host_port, resolve_port
from kubeletpy.probes.schedule import FIELDS, ProbeKind, ProbeSpec

MAX_REPORTED = 200
"""Characters of a command or an address."""
_HOOKS: dict[str | None, str] = {TraceCall.POST_START: "postStart", TraceCall.PRE_STOP: "preStop"}


def hook(facts: PodFacts, container: str, call: str | None) -> str:
    """Return the command or address of a hook, such as ``command 'sh -c drain'``; "" if unknown."""
    return _described(facts, container, _hook_handler(facts, container, call))


def pause(facts: PodFacts, container: str, call: str | None) -> int | None:
    """Return the seconds that a hook pauses, or None for another kind of hook."""
    seconds = (_hook_handler(facts, container, call).get("sleep") or {}).get("seconds")
    return seconds if isinstance(seconds, int) else None


def probe(facts: PodFacts, container: str, kind: ProbeKind) -> str:
    """Describe a probe: its command or address, its failures, and when they have an effect.

    Example: ``GET http://10.0.0.1:80/live, which kills the container after 3 failures in a row``.
    """
    field = _container(facts, container).get(FIELDS[kind])
    if not isinstance(field, Mapping):
        return ""
    spec, found = ProbeSpec.from_probe(kind, field), find_report(facts, container, kind)
    parts = [_described(facts, container, field)]
    if kind is not ProbeKind.READINESS:
        parts.append(f"which kills the container after {spec.failure_threshold} failures in a row")
    if kind is ProbeKind.STARTUP and found is not None and found.last is None:
        parts.append(f"no run has ended yet, and each may take {duration(spec.timeout)}")
    elif kind is ProbeKind.STARTUP and found is not None and found.streak:
        left = (spec.failure_threshold - found.streak) * spec.period
        parts.append(f"{found.streak} so far and the others within {duration(left)}")
    if last := last_message(facts, container, kind):
        parts.append(f'last output "{last}"')
    return ", ".join(part for part in parts if part)


def _container(facts: PodFacts, name: str) -> Mapping[str, Any]:
    found = facts.pod.find_container(name) if facts.pod is not None else None
    return {} if found is None else found[1]


def _hook_handler(facts: PodFacts, container: str, call: str | None) -> Mapping[str, Any]:
    lifecycle = _container(facts, container).get("lifecycle") or {}
    return lifecycle.get(_HOOKS.get(call)) or {}


def _described(facts: PodFacts, container: str, handler: Mapping[str, Any]) -> str:
    if command := (handler.get("exec") or {}).get("command"):
        return one_line(f"command '{' '.join(map(str, command))}'", MAX_REPORTED)
    if get := handler.get("httpGet"):
        scheme = str(get.get("scheme") or "http").lower()
        path = str(get.get("path") or "").removeprefix("/")
        where = _address(facts, container, get)
        return one_line(f"GET {scheme}://{where}/{path}", MAX_REPORTED)
    if socket := handler.get("tcpSocket"):
        return one_line(f"TCP {_address(facts, container, socket)}", MAX_REPORTED)
    if grpc := handler.get("grpc"):
        service = f", service {grpc['service']}" if grpc.get("service") else ""
        return one_line(f"gRPC {_address(facts, container, grpc)}{service}", MAX_REPORTED)
    if (sleep := handler.get("sleep")) is not None:
        return one_line(f"a pause of {sleep.get('seconds')} seconds", MAX_REPORTED)
    return ""


def _address(facts: PodFacts, container: str, action: Mapping[str, Any]) -> str:
    ips = (ip for each in facts.status.get("podIPs") or () if (ip := each.get("ip")))
    host = str(action.get("host") or "") or next(ips, "POD_IP")
    try:
        port = resolve_port(action.get("port"), _container(facts, container).get("ports") or ())
    except HandlerError:
        return host_port(host, str(action.get("port")))
    return host_port(host, port)
