"""The cells of ``kubectl get pods``.

STATUS follows the rules of docs/reference/api-server.md, ac; what a later rule finds replaces what
an earlier one found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy_up.printers.cells import human_duration, seconds_of, since

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

_NONE = "<none>"


class _Count(Struct):
    """Containers and restarts, as they add up over the statuses."""

    ready: int = 0
    restarts: int = 0
    last_restart: float | None = None

    def add_restarts(self, status: JSON) -> None:
        self.restarts += status.get("restartCount") or 0
        ended = seconds_of(_terminated(status.get("lastState")).get("finishedAt"))
        if ended is not None and (self.last_restart is None or ended > self.last_restart):
            self.last_restart = ended


def _terminated(state: JSON | None) -> JSON:
    return (state or {}).get("terminated") or {}


def _condition(status: JSON, kind: str) -> JSON:
    return next((c for c in status.get("conditions") or () if c.get("type") == kind), {})


def _exit_reason(terminated: JSON, prefix: str = "") -> str:
    if terminated.get("reason"):
        return prefix + str(terminated["reason"])
    if terminated.get("signal"):
        return f"{prefix}Signal:{terminated['signal']}"
    return f"{prefix}ExitCode:{terminated.get('exitCode', 0)}"


def _init_reason(status: JSON, index: int, total: int) -> str:
    state = status.get("state") or {}
    waiting = (state.get("waiting") or {}).get("reason")
    if state.get("terminated"):
        return _exit_reason(state["terminated"], "Init:")
    if waiting and waiting != "PodInitializing":
        return f"Init:{waiting}"
    return f"Init:{index}/{total}"


def _main_reason(pod_status: JSON, reason: str, count: _Count) -> str:
    running, failure = False, ""
    for status in reversed(pod_status.get("containerStatuses") or []):
        count.add_restarts(status)
        state = status.get("state") or {}
        waiting = (state.get("waiting") or {}).get("reason")
        terminated = state.get("terminated")
        if waiting:
            reason = waiting
        elif terminated:
            reason = _exit_reason(terminated)
            if terminated.get("exitCode"):
                failure = reason
        elif status.get("ready") and state.get("running") is not None:
            running = True
            count.ready += 1
    if reason == "Completed":
        if running and _condition(pod_status, "Ready").get("status") == "True":
            return "Running"
        if failure:
            return failure
        if running:
            return "NotReady"
    return reason


def _reason_and_count(pod: JSON) -> tuple[str, _Count]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    phase = status.get("phase") or "Unknown"
    reason = status.get("reason") or phase
    if _condition(status, "PodScheduled").get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    declared = spec.get("initContainers") or []
    sidecars = {c.get("name") for c in declared if c.get("restartPolicy") == "Always"}
    all_init, only_sidecars = _Count(), _Count()
    initializing = False
    for index, container in enumerate(status.get("initContainerStatuses") or []):
        all_init.add_restarts(container)
        if container.get("name") in sidecars:
            only_sidecars.add_restarts(container)
        ended = (container.get("state") or {}).get("terminated")
        if ended and not ended.get("exitCode"):
            continue
        if container.get("name") in sidecars and container.get("started"):
            only_sidecars.ready += bool(container.get("ready"))
            continue
        reason = _init_reason(container, index, len(declared))
        initializing = True
        break
    all_init.ready = only_sidecars.ready
    count = all_init
    if not initializing or _condition(status, "Initialized").get("status") == "True":
        count = only_sidecars
        reason = _main_reason(status, reason, count)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif phase not in TERMINAL_PHASES:
            reason = "Terminating"
    return reason, count


def _gates(spec: JSON, status: JSON) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return _NONE
    true = sum(_condition(status, g.get("conditionType")).get("status") == "True" for g in gates)
    return f"{true}/{len(gates)}"


def row(pod: JSON, now: float) -> list[Any]:
    """NAME, READY, STATUS, RESTARTS, AGE; wide: IP, NODE, NOMINATED NODE, READINESS GATES."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    status = pod.get("status") or {}
    reason, count = _reason_and_count(pod)
    total = len(spec.get("containers") or []) + sum(
        c.get("restartPolicy") == "Always" for c in spec.get("initContainers") or []
    )
    restarts = str(count.restarts)
    if count.restarts and count.last_restart is not None:
        restarts += f" ({human_duration(now - count.last_restart)} ago)"
    addresses = [entry.get("ip") for entry in status.get("podIPs") or []] or [status.get("podIP")]
    return [
        metadata.get("name", ""),
        f"{count.ready}/{total}",
        reason,
        restarts,
        since(metadata.get("creationTimestamp"), now),
        addresses[0] or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _gates(spec, status),
    ]


def conditions(pod: JSON) -> list[JSON]:
    """Row conditions: show kubectl that a pod has ended."""
    phase = (pod.get("status") or {}).get("phase")
    if phase not in TERMINAL_PHASES:
        return []
    message = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]
