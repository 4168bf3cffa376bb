"""What of a pod's object is not recorded: values of variables and headers. Pure.

They are replaced by a keyed hash, so that equal values stay equal within a recording and nobody can
try out what they were. Secrets' contents are in no decision's input. Commands, names and messages
stay: whoever may read the pod sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation with the whole object in it, as it was given to kubectl apply."""
_LISTS = ("containers", "initContainers", "ephemeralContainers")
_ACTIONS = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS = ("postStart", "preStop")

Hash = Callable[[str], str]


def redacted(obj: Mapping[str, Any], hashed: Hash) -> dict[str, Any]:
    """The object of a pod without secret values; the given one stays as it is."""
    metadata, spec = obj["metadata"], obj["spec"]
    kept = {key: value for key, value in metadata.items() if key != "managedFields"}
    annotations = metadata.get("annotations") or {}
    if LAST_APPLIED in annotations:
        kept["annotations"] = {**annotations, LAST_APPLIED: hashed(annotations[LAST_APPLIED])}
    lists = {
        key: [_container(each, hashed) for each in spec[key]] for key in _LISTS if spec.get(key)
    }
    return {**obj, "metadata": kept, "spec": {**spec, **lists}}


def _container(container: Mapping[str, Any], hashed: Hash) -> dict[str, Any]:
    found = dict(container)
    if container.get("env"):
        found["env"] = [_valued(each, hashed) for each in container["env"]]
    for key in _ACTIONS:
        if container.get(key):
            found[key] = _action(container[key], hashed)
    lifecycle = container.get("lifecycle")
    if lifecycle:
        hooks = {key: _action(lifecycle[key], hashed) for key in _HOOKS if lifecycle.get(key)}
        found["lifecycle"] = {**lifecycle, **hooks}
    return found


def _action(action: Mapping[str, Any], hashed: Hash) -> dict[str, Any]:
    get = action.get("httpGet")
    if not get or not get.get("httpHeaders"):
        return dict(action)
    headers = [_valued(each, hashed) for each in get["httpHeaders"]]
    return {**action, "httpGet": {**get, "httpHeaders": headers}}


def _valued(entry: Mapping[str, Any], hashed: Hash) -> dict[str, Any]:
    """A named value with the value hashed; one that comes from elsewhere stays as it is."""
    if not entry.get("value"):
        return dict(entry)
    return {**entry, "value": hashed(str(entry["value"]))}
