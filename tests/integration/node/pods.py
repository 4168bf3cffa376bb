"""Pods for tests: busybox shells that do what a test needs."""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api.types import JSON
from tools.env.images import BUSYBOX

FOREVER = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"
"""Runs until SIGTERM, and then stops at once."""
DEAF = "trap '' TERM; while :; do sleep 1; done"
"""Runs until it is killed."""


def serving(text: str) -> str:
    """A script whose server has /ok at port 8080, and which stops at once on SIGTERM."""
    serve = "httpd -f -v -p 8080 -h /tmp/www & trap 'exit 0' TERM; wait"
    return f"mkdir -p /tmp/www; echo {text} > /tmp/www/ok; {serve}"


def container(name: str = "main", script: str = FOREVER, **more: Any) -> JSON:
    """A busybox container that runs a shell script."""
    return {"name": name, "image": BUSYBOX, "command": ["sh", "-c", script], **more}


def pod(name: str, *containers: JSON, **more: Any) -> JSON:
    """A pod; keywords are fields of its spec, but for `labels` and `annotations`."""
    about: JSON = {"name": name}
    for field in ("labels", "annotations", "generateName"):
        if field in more:
            about[field] = more.pop(field)
    spec = {"terminationGracePeriodSeconds": 5, "containers": list(containers) or [container()]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": {**spec, **more}}
