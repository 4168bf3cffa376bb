"""Facts about pods with problems, and pods and intents whose outcome is foreseen."""

from __future__ import annotations

from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import Cause
from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import Name, PodTrace, Span, Step
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.pods import defaults
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.history import LastSync
from kubeletpy.podworkers.records import Stage, SyncOutcome, UpdateType, Work, WorkerRecord
from tests.kit.pods import make_pod

NOW = 1_700_000_100.0
OFFSET = 1_700_000_000.0
"""Unix seconds at event-loop second 0."""
STARTED = "2023-11-14T22:14:40Z"
"""20 s before NOW."""


def running(name: str = "main", **more: Any) -> dict[str, Any]:
    """A container status."""
    state = {"running": {"startedAt": STARTED}}
    return {"name": name, "state": state, "ready": True, "containerID": f"c://{name}", **more}


def waiting(reason: str, name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "state": {"waiting": {"reason": reason}}, "ready": False, **more}


def exited(code: int, name: str = "main", **more: Any) -> dict[str, Any]:
    ended = {"exitCode": code, "reason": "Error", "startedAt": STARTED, "finishedAt": STARTED}
    return {"name": name, "state": {"terminated": ended}, "ready": False, **more}


def record(pod: Pod, **more: Any) -> WorkerRecord:
    """A worker that has been syncing a pod for 30 s."""
    made = WorkerRecord(
        pod.uid,
        pod.full_name,
        active=Work(UpdateType.SYNC, pod),
        first_seen_at=NOW - 31,
        started_at=NOW - 30,
    )
    return replace(made, **more)


def facts(pod: Pod | None = None, **more: Any) -> PodFacts:
    """A running, Ready pod; keywords change it."""
    pod = pod or make_pod()
    status: dict[str, Any] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [running()],
        "podIPs": [{"ip": "10.0.0.1"}],
    }
    status.update(more.pop("status", {}))
    worker = record(pod, **more.pop("worker", {}))
    base = PodFacts(
        now=NOW,
        uid=pod.uid,
        namespace="default",
        name=pod.name,
        wall_offset=OFFSET,
        pod=pod,
        record=worker,
        status=status,  # type: ignore[arg-type]
        next_sync_at=NOW + 42,
    )
    return replace(base, **more)


def not_ready(*statuses: dict[str, Any], phase: str = "Pending", **more: Any) -> dict[str, Any]:
    """The status of a pod that is not Ready."""
    return {"phase": phase, "conditions": [], "containerStatuses": list(statuses), **more}


def doing(
    what: Name, subject: str = "", since: float = 5.0, limit: float | None = None
) -> PodTrace:
    """A trace with one open span."""
    trace = PodTrace("uid", "default", "web", 0.0)
    began = NOW - OFFSET - since
    until = None if limit is None else began + limit
    trace.open[1] = Span(what, subject, began, until=until)
    trace.open[0] = Span(Step.RUNTIME, "", began)
    return trace


def failed(
    step: Step | None, error: str, stage: Stage = Stage.SYNC, cause: Cause | None = None
) -> LastSync:
    """A last sync that failed."""
    return LastSync(stage, SyncOutcome(error=error, step=step, cause=cause), NOW - 3)


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": f"{name}:1", **more}


def pod(*containers: dict[str, Any], name: str = "p", **more: Any) -> Pod:
    spec = {"containers": list(containers) or [container("a")], **more}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return Pod(cast(api.Pod, {**made, "spec": defaults.pod_spec(spec)}))
