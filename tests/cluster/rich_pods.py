"""Pods with everything that a new agent has to take over, and what of them must not change."""

from __future__ import annotations

import json
from typing import Any

from kubeletpy.base.api.types import JSON
from tools.env.images import BUSYBOX

CONFIG, SECRET = "rich-config", "rich-secret"


def rich_pod(node_name: str, name: str) -> JSON:
    """A pod with an init container, a sidecar, two containers, all kinds of volumes and probes."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    label = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    sources = [{"configMap": {"name": CONFIG}}, {"downwardAPI": {"items": [label]}}, token]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"kind": "rich"}},
        "spec": {
            "nodeName": node_name,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "initContainers": [
                _container("init", "cp /all/name /data/name"),
                _serving("side", 8082, startupProbe=_http(8082), restartPolicy="Always"),
            ],
            "containers": [
                _serving("main", 8080, livenessProbe=_http(8080)),
                _serving("second", 8081, readinessProbe=_probe(tcpSocket={"port": 8081})),
            ],
            "volumes": [
                {"name": "data", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {"name": "config", "configMap": {"name": CONFIG}},
                {"name": "secret", "secret": {"secretName": SECRET}},
                {"name": "all", "projected": {"sources": sources}},
                {"name": "labels", "downwardAPI": {"items": [label]}},
                {"name": "host", "hostPath": {"path": "/usr", "type": "Directory"}},
            ],
        },
    }


def _container(name: str, script: str, **more: Any) -> JSON:
    mounts = [
        {"name": each, "mountPath": f"/{each}"}
        for each in ("data", "memory", "config", "secret", "all", "labels", "host")
    ]
    resources = {"requests": {"cpu": "5m", "memory": "4Mi"}, "limits": {"memory": "64Mi"}}
    return {
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "volumeMounts": mounts,
        "resources": resources,
        **more,
    }


def _serving(name: str, port: int, **more: Any) -> JSON:
    script = f"mkdir -p /www && echo ok >/www/ok && exec httpd -f -p {port} -h /www"
    return _container(name, script, **{"readinessProbe": _http(port), **more})


def _http(port: int) -> JSON:
    return _probe(httpGet={"path": "/ok", "port": port})


def _probe(**handler: JSON) -> JSON:
    return {"periodSeconds": 1, "timeoutSeconds": 5, **handler}


def lasting(pod: JSON) -> JSON:
    """Fields that an upgrade of the agent must not change: conditions, containers and times."""
    status = pod["status"]
    statuses = [
        each
        for kind in ("initContainerStatuses", "containerStatuses")
        for each in status.get(kind) or ()
    ]
    return {
        "phase": status.get("phase"),
        "startTime": status.get("startTime"),
        "podIP": status.get("podIP"),
        "qosClass": status.get("qosClass"),
        "conditions": {
            each["type"]: [each["status"], each.get("lastTransitionTime")]
            for each in status.get("conditions") or ()
        },
        "containers": {
            each["name"]: {
                key: each.get(key)
                for key in ("containerID", "restartCount", "ready", "started", "state", "lastState")
            }
            for each in statuses
        },
    }


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """The fields of two JSON values that differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            found
            for key in sorted({*old, *new})
            for found in differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        ]
    return [] if old == new else [f"{path}: {json.dumps(old)} -> {json.dumps(new)}"]
