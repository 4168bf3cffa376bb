"""The difference between a node's status and the status in the API. Pure.

The fields of others (other conditions, ``volumesAttached``, ``config``) are neither compared nor
sent. A field of the node's own that has no content any more is removed. Source:
docs/reference/behaviour.md, o1, o2.
"""

from __future__ import annotations

from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON

_MAPS = ("capacity", "allocatable")
"""Maps of a status: a patch removes only the keys that it names."""
_OPTIONAL = ("runtimeHandlers", "features", "declaredFeatures", "daemonEndpoints")
"""Fields of the node's own that a status has only with content."""
_OPTIONAL_INFO = ("swap",)
_LISTS = ("images", "runtimeHandlers", "declaredFeatures")
"""The API leaves these out when they are empty."""
_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


def is_news(shown: api.NodeStatus, status: api.NodeStatus) -> bool:
    """Whether a status is worth a write of its own: more than the heartbeat times has changed.

    Args:
        shown: what the API has.
        status: what the node would write.
    """
    return _comparable(shown, status) != _comparable(status, status)


def status_patch(shown: api.NodeStatus, status: api.NodeStatus, *, unsure: bool) -> JSON:
    """The strategic merge patch from one to the other; lists that would be merged are replaced.

    Args:
        shown: what the API has.
        status: what the node writes.
        unsure: ``shown`` may be outdated: all fields are sent, except lists that others write too.
    """
    always = set(status) - {"addresses", "volumesInUse"} if unsure else set[str]()
    before, new = _with_content(shown), cast(JSON, status)
    changed = {
        name: value
        for name, value in new.items()
        if name != "conditions" and (name in always or value != before.get(name))
    }
    changed.update({name: None for name in _OPTIONAL if name not in new and before.get(name)})
    for name in _MAPS:
        if name in changed:
            changed[name] = {**dict.fromkeys(before.get(name) or {}), **changed[name]}
    if "nodeInfo" in changed:
        info = before.get("nodeInfo") or {}
        gone = {name: None for name in _OPTIONAL_INFO if name in info}
        changed["nodeInfo"] = {**gone, **changed["nodeInfo"]}
    if "addresses" in changed:
        changed["addresses"] = [*changed["addresses"], {"$patch": "replace"}]
    changed["conditions"] = [
        condition for condition in status["conditions"] if condition["type"] in _CONDITIONS
    ]
    return changed


def _with_content(status: api.NodeStatus) -> JSON:
    """A status without ``daemonEndpoints`` of port 0: that is how the API shows no port at all."""
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    plain = cast(JSON, status)
    if endpoint.get("Port"):
        return plain
    return {name: value for name, value in plain.items() if name != "daemonEndpoints"}


def _comparable(status: api.NodeStatus, own: api.NodeStatus) -> dict[str, Any]:
    """The fields that the node writes, as far as ``status`` has them, in a form to compare."""
    plain = _with_content(status)
    found = {name: plain[name] for name in (*own, *_OPTIONAL) if name in plain}
    found = {name: value for name, value in found.items() if value or name not in _LISTS}
    known = {*(own.get("nodeInfo") or {}), *_OPTIONAL_INFO}
    info = found.get("nodeInfo") or {}
    found["nodeInfo"] = {name: value for name, value in info.items() if name in known}
    found["conditions"] = {
        condition.get("type"): {k: v for k, v in condition.items() if k != "lastHeartbeatTime"}
        for condition in plain.get("conditions") or ()
    }
    return found
