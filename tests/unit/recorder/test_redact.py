"""Values of variables and headers are not recorded."""

from __future__ import annotations

import copy
from typing import Any

from kubeletpy.recorder.redact import LAST_APPLIED, redacted

ACTION: dict[str, Any] = {
    "httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": "SECRET"}]}
}
CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "i",
    "command": ["run"],
    "env": [
        {"name": "A", "value": "SECRET"},
        {"name": "B", "value": ""},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ],
    "livenessProbe": {**ACTION, "periodSeconds": 3},
    "readinessProbe": ACTION,
    "startupProbe": {"exec": {"command": ["true"]}},
    "lifecycle": {"preStop": ACTION, "postStart": ACTION, "stopSignal": "SIGINT"},
}


def pod() -> dict[str, Any]:
    lists = ("containers", "initContainers", "ephemeralContainers")
    return {
        "metadata": {
            "name": "n",
            "managedFields": [{"manager": "m"}],
            "annotations": {LAST_APPLIED: "SECRET", "a": "b"},
        },
        "spec": {key: [copy.deepcopy(CONTAINER)] for key in lists},
        "status": {"phase": "Pending"},
    }


def test_everything_but_values_stays() -> None:
    given = pod()
    found = redacted(given, lambda value: f"<{len(value)}>")
    assert given == pod(), "the object is shared with caches"
    assert "SECRET" not in str(found)
    action = {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": "<6>"}]}}
    container = {
        **CONTAINER,
        "env": [{"name": "A", "value": "<6>"}, *CONTAINER["env"][1:]],
        "livenessProbe": {**action, "periodSeconds": 3},
        "readinessProbe": action,
        "lifecycle": {"preStop": action, "postStart": action, "stopSignal": "SIGINT"},
    }
    assert found == {
        "metadata": {"name": "n", "annotations": {LAST_APPLIED: "<6>", "a": "b"}},
        "spec": {key: [container] for key in given["spec"]},
        "status": {"phase": "Pending"},
    }


def test_a_pod_with_nothing_to_hide() -> None:
    get = {"httpGet": {"port": 80}}
    hook = {"name": "c", "lifecycle": {"preStop": get}}
    probe = {"name": "d", "livenessProbe": get}
    bare = {"metadata": {"name": "n"}, "spec": {"containers": [hook, probe, {"name": "e"}]}}
    assert redacted(bare, lambda _: "x") == bare
