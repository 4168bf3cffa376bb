"""A null field is an absent field: Kubernetes' JSON decodes both to the zero value.

The API server writes null where a type has no ``omitempty``: each pod condition comes with
``"lastProbeTime": null``. Code that decodes an object removes the nulls at once, so that every key
has a value.

Objects are kept for as long as their pods run, and repeat the same strings: the decoder
makes a new string of each, this module one for all. A pod takes half of the memory so.
"""

from __future__ import annotations

import json
from typing import Any

MOST_SHARED = 2048
"""Strings that are known to be repeated; with more of them all are learned anew."""
LONGEST_SHARED = 64
"""Characters of a value; the API bounds those of keys."""
MOST_TEXT = 128 << 10
"""Bytes; longer text is decoded faster instead, as others wait for it."""
_REPEATED = frozenset(
    [
        "apiVersion",
        "creationTimestamp",
        "dnsPolicy",
        "hostIP",
        "image",
        "imageID",
        "imagePullPolicy",
        "ip",
        "kind",
        "lastTransitionTime",
        "mountPath",
        "namespace",
        "nodeName",
        "phase",
        "qosClass",
        "reason",
        "restartPolicy",
        "schedulerName",
        "serviceAccount",
        "serviceAccountName",
        "startTime",
        "startedAt",
        "status",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "type",
    ]
)
"""Fields with few different values. Others are not shared: what a secret holds must not be known
for longer than the secret."""
_shared: dict[str, str] = {}


def loads(text: bytes) -> Any:
    """Decode JSON text without keys whose value is null, at any depth; list items stay.

    Raises ValueError for what is no JSON and RecursionError for what is nested too deeply.
    """
    # an object's keys go as soon as it is decoded: a walk afterwards takes five times as long
    if len(text) > MOST_TEXT:
        # also without nulls: with a hook the interpreter lets other threads run in between
        return json.loads(text, object_hook=_without_nulls)
    try:
        return json.loads(text, object_hook=_in_shared_words)
    finally:
        if len(_shared) > MOST_SHARED:
            _shared.clear()


def _without_nulls(decoded: dict[str, Any]) -> dict[str, Any]:
    if None in decoded.values():
        return {key: value for key, value in decoded.items() if value is not None}
    return decoded


def _in_shared_words(decoded: dict[str, Any]) -> dict[str, Any]:
    share = _shared.setdefault
    return {
        share(key, key): share(value, value)
        if key in _REPEATED and type(value) is str and len(value) <= LONGEST_SHARED
        else value
        for key, value in decoded.items()
        if value is not None
    }
