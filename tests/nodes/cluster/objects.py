"""Objects that the tests of a cluster create."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeletpy.base.api.types import JSON
from tests.nodes.cluster.cluster import WITHIN_S
from tests.nodes.node import SLEEPS, container, pod

PORT = 8080
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "nodeTaintsPolicy": "Honor",
}


def spec_of(*containers: JSON, **fields: Any) -> JSON:
    """The spec of a pod; its default container runs until it is stopped."""
    spec: JSON = pod("", *containers, **fields)["spec"]
    return spec


def web(version: str = "1", **more: Any) -> JSON:
    """A web server; / has its version, /name the pod's name, and it is Ready while /ready exists.

    ``more``: further fields of the container.
    """
    script = (
        f"trap 'exit 0' TERM; mkdir /www; echo {version} >/www/index.html; hostname >/www/name;"
        f" touch /www/ready; httpd -p {PORT} -h /www; {SLEEPS}"
    )
    probe = {"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 2, "timeoutSeconds": 5}
    return container(script=script, readinessProbe={**probe, "failureThreshold": 1}, **more)


def workload(kind: str, name: str, spec: JSON, **fields: Any) -> JSON:
    """A Deployment, DaemonSet or StatefulSet of pods with the label app=name.

    ``spec``: of its pods; ``fields``: of its own spec.
    """
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": spec}
    own = {"selector": {"matchLabels": labels}, "template": template, **fields}
    if kind == "Deployment":  # as long as the tests wait
        own["progressDeadlineSeconds"] = WITHIN_S
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": own}


def spread(app: str, *same: str) -> Sequence[JSON]:
    """Spread pods with the label app=app over nodes; only those with ``same`` labels count."""
    return [{**SPREAD, "labelSelector": {"matchLabels": {"app": app}}, "matchLabelKeys": same}]


def evenly_spread(app: str) -> Sequence[JSON]:
    """Spread the pods of each revision of a Deployment over nodes."""
    return spread(app, "pod-template-hash")
