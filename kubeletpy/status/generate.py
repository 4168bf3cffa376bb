"""Computes the complete API status of a pod from what the runtime and other components report.

Pure. Everything it needs is in :class:`StatusInputs`; :mod:`.status_manager` stores and sends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import Quantity
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import Struct, field
from kubeletpy.pods.pod import (
    DISRUPTION_TARGET,
    TERMINAL_PHASES,
    ContainerKind,
    Pod,
    is_sidecar,
    pod_addresses,
    replaced_containers,
)
from kubeletpy.pods.resources import COMPUTE, QoSClass, claims, limited, pod_quantities, qos_class
from kubeletpy.pods.runtime_status import (
    NOT_READY,
    PodRuntimeStatus,
    ProbeOutcome,
    ProbeResults,
    StartError,
    could_restart_all,
)
from kubeletpy.status import conditions
from kubeletpy.status.conditions import compute_phase
from kubeletpy.status.container_status import ContainerStatusInputs, container_statuses

NOTHING: Mapping[str, api.ResourceRequirements] = {}


def pod_level_resources(
    pod: Pod,
    containers: Mapping[str, api.ContainerStatus],
    applied: api.ResourceRequirements | None,
    phase: str,
    actuated: Mapping[str, api.ResourceRequirements] = NOTHING,
) -> api.PodStatus:
    """The fields ``allocatedResources`` and ``resources``, as far as they have content.

    The pod's ``resources`` are the sum of its containers', as the pod's own cgroup is computed from
    them. Amounts are exact and in the format of the spec: 10m bytes of memory stay ``10m``. Source:
    docs/reference/behaviour.md, e4; KEP-5419.

    Args:
        pod: the pod as allocated.
        containers: the new statuses, by name.
        applied: the pod-level resources last applied to the pod, if it has any.
        actuated: the resources last applied to containers, by name. Used for pods with claims, as
            the limits in their containers' statuses contain what the claims add.

    Raises:
        ValueError: a request or limit is not a quantity.
    """
    made: api.PodStatus = {}
    allocated = pod_quantities(pod, "requests", with_claims=True)
    own: dict[str, Any] = {**(pod.spec.get("resources") or {})}
    limits = pod_quantities(pod, "limits", with_claims=True)
    if not allocated and not limits:
        return made
    if allocated:
        made["allocatedResources"] = _format_amounts(allocated)
    if phase != "Running":
        own |= {"requests": _format_amounts(allocated), "limits": _format_amounts(limits)}
    else:
        if claims(pod):
            containers = _without_claims(containers, actuated)
        requested, limiting = allocated, limits
        actual = _as_it_is(pod, containers, applied)
        if actual is not pod:
            own |= actual.spec.get("resources") or {}
            requested = pod_quantities(actual, "requests", with_claims=True)
            limiting = pod_quantities(actual, "limits", with_claims=True)
        requests = _compute(requested)
        if qos_class(pod) is QoSClass.BEST_EFFORT:
            requests.pop("cpu", None)  # its cgroup has the minimum, whatever its claims add
        own["requests"] = {**(own.get("requests") or {}), **requests}
        kept = {name: amount for name, amount in limiting.items() if limited(pod, name)}
        own["limits"] = {**(own.get("limits") or {}), **_compute(kept)}
    made["resources"] = {key: value for key, value in own.items() if value}  # type: ignore[typeddict-item]
    return made


def _format_amounts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    """Amounts as the API formats them."""
    return {name: str(amount) for name, amount in sorted(amounts.items())}


def _compute(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return _format_amounts({name: amounts[name] for name in COMPUTE if name in amounts})


def _without_claims(
    containers: Mapping[str, api.ContainerStatus], actuated: Mapping[str, api.ResourceRequirements]
) -> Mapping[str, api.ContainerStatus]:
    return {
        name: {**containers[name], "resources": applied}
        for name, applied in actuated.items()
        if "running" in (containers.get(name, {}).get("state") or {})
    }


def _as_it_is(
    pod: Pod,
    containers: Mapping[str, api.ContainerStatus],
    applied: api.ResourceRequirements | None,
) -> Pod:
    """The pod with the resources that its statuses show; the same object if it has them."""
    changed = replaced_containers(
        pod, lambda container, init: _reported(container, containers.get(container["name"]))
    )
    if applied is not None and pod.spec.get("resources"):
        changed["resources"] = applied
    if all(pod.spec.get(field) == value for field, value in changed.items()):
        return pod
    return Pod({**pod.object, "spec": {**pod.spec, **changed}})  # type: ignore[typeddict-item]


def _reported(container: api.Container, status: api.ContainerStatus | None) -> api.Container:
    resources = (status or {}).get("resources")
    if resources is None or resources == container.get("resources"):
        return container
    return {**container, "resources": resources}


def reported_volume_health(
    old: Sequence[api.PodVolumeHealth], reported: Sequence[api.PodVolumeHealth]
) -> list[api.PodVolumeHealth]:
    """``status.volumeHealth``: what the status has, with what differs from it in the reports.

    A report counts only if its set of (status, reason) is another one: messages alone change
    nothing, and the time of the last transition is kept. Without a report an entry stays. Source:
    docs/reference/behaviour-storage.md, sr1.
    """
    by_name = {entry.get("name") or "": entry for entry in old}
    for entry in reported:
        name = entry.get("name") or ""
        known = by_name.get(name, {"healthConditions": []})
        if _identities(known) != _identities(entry):
            by_name[name] = entry
    return list(by_name.values())


def _identities(entry: api.PodVolumeHealth) -> set[tuple[str, str]]:
    return {
        (each.get("status") or "", each.get("reason") or "")
        for each in entry.get("healthConditions") or ()
    }


DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"
HOST_ADDRESSES = ("hostIP", "hostIPs")
ADDRESSES = (*HOST_ADDRESSES, "podIP", "podIPs")


class StatusInputs(Struct, frozen=True):
    """Everything that a pod's API status is computed from."""

    pod: Pod
    runtime: PodRuntimeStatus
    runtime_name: str
    old: api.PodStatus
    """The newest status kept for the pod; without one, the API's."""
    now: float
    """Unix seconds."""
    sandbox_usable: bool
    """No new sandbox is needed before containers can start."""
    sandbox_message: str = ""
    """Why a new sandbox is needed; empty in recordings of earlier versions."""
    host_ips: Sequence[str] = ()
    """The node's addresses, preferred family first; at most two count."""
    start_errors: Mapping[str, StartError] = field(default_factory=dict)
    probes: ProbeResults = field(default_factory=ProbeResults)
    terminated: bool = False
    """The worker has stopped everything of the pod."""
    restarting_all: bool = False
    recursive_read_only: bool = False
    shutting_down: bool = False
    """The node is about to go down: the pod is not Ready."""
    resize_conditions: Sequence[api.PodCondition] = ()
    """Those that report an in-place resize, with their times."""
    actuated: Mapping[str, api.ResourceRequirements] = field(default_factory=dict)
    """The resources last applied to containers, by name."""
    actuated_pod: api.ResourceRequirements | None = None
    """The pod-level resources last applied to the pod."""
    device_health: Mapping[str, list[api.ResourceStatus]] = field(default_factory=dict)
    """For its containers' resources, by container name."""
    volume_health: Sequence[api.PodVolumeHealth] = ()
    """The drivers' last reports on its volumes."""

    def is_like(self, before: StatusInputs) -> bool:
        """Whether the status is bound to be the same as with earlier inputs: nothing but the time
        differs, and no deadline can have passed."""
        if "activeDeadlineSeconds" in self.pod.spec:
            return False
        # Large objects are replaced when they change, and need not be compared.
        if not (
            self.pod is before.pod and self.runtime is before.runtime and self.old is before.old
        ):
            return False
        return all(getattr(self, name) == getattr(before, name) for name in _COMPARED)


_COMPARED = tuple(
    each for each in StatusInputs.__struct_fields__ if each not in ("pod", "runtime", "old", "now")
)


def generate_api_pod_status(inputs: StatusInputs) -> api.PodStatus:
    """The status of a pod, without transition times and startTime (set when it is stored)."""
    pod, old = inputs.pod, inputs.old
    if _ended_before_it_began(inputs):
        return {**old}
    status = _with_containers(inputs)
    every = [*status.get("initContainerStatuses", ()), *status["containerStatuses"]]
    phase, reason, message = _phase(inputs, every)
    status["phase"] = phase
    if reason:
        status["reason"] = reason
    if message:
        status["message"] = message
    by_name = {entry["name"]: entry for entry in every}
    status["conditions"] = _conditions(inputs, by_name, phase)
    status.update(pod_level_resources(pod, by_name, inputs.actuated_pod, phase, inputs.actuated))
    status["qosClass"] = qos_class(pod).value
    status["observedGeneration"] = max(pod.generation, old.get("observedGeneration") or 0)
    if not status["observedGeneration"]:
        del status["observedGeneration"]
    if "startTime" in old:
        status["startTime"] = old["startTime"]
    if health := reported_volume_health(old.get("volumeHealth") or (), inputs.volume_health):
        status["volumeHealth"] = health
    return _with_addresses(inputs, status)


def _ended_before_it_began(inputs: StatusInputs) -> bool:
    """A pod that the node rejected, as seen by an agent that has restarted since.

    Nothing is known about its containers, and nothing may be made up: a container without a record
    would be reported as lost, hiding the reason why the pod was rejected.
    """
    old, runtime = inputs.old, inputs.runtime
    return (
        inputs.pod.is_terminal_in_api
        and old.get("phase") in TERMINAL_PHASES
        and not (runtime.sandboxes or runtime.containers)
        and not (old.get("containerStatuses") or old.get("initContainerStatuses"))
    )


def deadline(pod: Pod, start_time: str | None) -> float | None:
    """Unix seconds at which activeDeadlineSeconds ends the pod; None without one."""
    seconds = pod.spec.get("activeDeadlineSeconds")
    if seconds is None or not start_time:
        return None
    return parse_time(start_time) + seconds


def _with_containers(inputs: StatusInputs) -> api.PodStatus:
    pod, old = inputs.pod, inputs.old
    # if so, a container missing in the runtime was removed by the agent for its restart
    was_restarting_all = conditions.holds(old.get("conditions"), conditions.RESTARTING_ALL)
    common = ContainerStatusInputs(
        pod=pod,
        runtime=inputs.runtime,
        runtime_name=inputs.runtime_name,
        start_errors=inputs.start_errors,
        restarting_all=inputs.restarting_all or was_restarting_all,
        recursive_read_only=inputs.recursive_read_only,
        actuated=inputs.actuated,
        now=inputs.now,
    )
    status: api.PodStatus = {
        "containerStatuses": container_statuses(
            common, ContainerKind.REGULAR, pod.containers, old.get("containerStatuses") or ()
        )
    }
    _set_device_health(inputs, status["containerStatuses"])
    if pod.init_containers:
        status["initContainerStatuses"] = container_statuses(
            common, ContainerKind.INIT, pod.init_containers, old.get("initContainerStatuses") or ()
        )
    if pod.ephemeral_containers:
        status["ephemeralContainerStatuses"] = container_statuses(
            common,
            ContainerKind.EPHEMERAL,
            pod.ephemeral_containers,
            old.get("ephemeralContainerStatuses") or (),
        )
    _set_started_and_ready(inputs, pod.containers, status["containerStatuses"])
    _set_started_and_ready(
        inputs, pod.init_containers, status.get("initContainerStatuses") or [], init=True
    )
    return status


def _set_device_health(inputs: StatusInputs, statuses: list[api.ContainerStatus]) -> None:
    """Fill in ``allocatedResourcesStatus``; a container that has ended keeps the last one.

    Others may have its devices by then, and a restarted agent has no record of them.
    """
    before = {entry.get("name"): entry for entry in inputs.old.get("containerStatuses") or ()}
    for status in statuses:
        known = before.get(status["name"]) or {}
        same = "containerID" in known and known["containerID"] == status.get("containerID")
        ended = same and "terminated" in (status.get("state") or {})
        last = known.get("allocatedResourcesStatus") if ended else None
        if health := inputs.device_health.get(status["name"]) or last:
            status["allocatedResourcesStatus"] = health


def _set_started_and_ready(
    inputs: StatusInputs,
    containers: Iterable[api.Container],
    statuses: list[api.ContainerStatus],
    *,
    init: bool = False,
) -> None:
    """Fill in ``started`` and ``ready`` of new statuses (docs/reference/behaviour.md, m4)."""
    specs = {container["name"]: container for container in containers}
    for status in statuses:
        container = specs[status["name"]]
        state = status.get("state") or {}
        container_id = status.get("containerID", "").partition("://")[2]
        running = "running" in state
        started = running and _started(inputs, container, container_id, status)
        status["started"] = started
        if init and not is_sidecar(container):
            ended = state.get("terminated")
            status["ready"] = ended is not None and ended.get("exitCode") == 0
        else:
            status["ready"] = started and _ready(inputs, container, container_id, status)


def _started(
    inputs: StatusInputs, container: api.Container, container_id: str, status: api.ContainerStatus
) -> bool:
    outcome = inputs.probes.startup.get(container_id)
    if outcome is not None:
        return outcome is ProbeOutcome.SUCCESS
    return "startupProbe" not in container or bool(status.get("started"))


def _ready(
    inputs: StatusInputs, container: api.Container, container_id: str, status: api.ContainerStatus
) -> bool:
    if "readinessProbe" not in container:
        return True
    outcome = inputs.probes.readiness.get(container_id)
    if outcome is not None:
        return outcome is ProbeOutcome.SUCCESS
    # the agent restarted under a running container: what was ready stays ready until probed
    return bool(status.get("ready")) and not conditions.revoked(inputs.pod, inputs.old)


def _phase(
    inputs: StatusInputs, statuses: list[api.ContainerStatus]
) -> tuple[str, str | None, str | None]:
    """Phase, reason and message, with everything that may override the containers' own states."""
    pod, old, in_api = inputs.pod, inputs.old, inputs.pod.status
    phase = compute_phase(
        pod,
        statuses,
        terminated=inputs.terminated,
        regular_container_in_sandbox=_regular_in_sandbox(inputs),
    )
    # an evicted pod has failed even if its containers exit successfully
    for known in (old.get("phase"), in_api.get("phase")):
        if known in TERMINAL_PHASES:
            phase = known
            break
    reason = message = None
    if phase == old.get("phase"):
        reason = old.get("reason") or in_api.get("reason")
        message = old.get("message") or in_api.get("message")
    due = deadline(pod, old.get("startTime"))
    if due is not None and inputs.now >= due and phase not in TERMINAL_PHASES:
        phase, reason, message = "Failed", DEADLINE_REASON, DEADLINE_MESSAGE
    if pod.is_terminal_in_api:
        phase = pod.phase
    return phase, reason, message


def _regular_in_sandbox(inputs: StatusInputs) -> bool:
    if not inputs.runtime.sandboxes:
        return False
    newest = inputs.runtime.sandboxes[0].id
    names = {container["name"] for container in inputs.pod.containers}
    return any(
        record.name in names and record.sandbox_id in (newest, "")
        for record in inputs.runtime.containers
    )


def _conditions(
    inputs: StatusInputs, statuses: Mapping[str, api.ContainerStatus], phase: str
) -> list[api.PodCondition]:
    pod, old = inputs.pod, inputs.old.get("conditions") or []
    made = [
        condition
        for condition in pod.status.get("conditions") or ()
        if condition.get("type") not in conditions.OWNED
        and condition.get("type") != DISRUPTION_TARGET
    ]
    made += inputs.resize_conditions
    disruption = conditions.find(old, DISRUPTION_TARGET) or conditions.find(
        pod.status.get("conditions"), DISRUPTION_TARGET
    )
    if disruption is not None:
        made.append(disruption)
    all_ready = conditions.containers_ready(pod, statuses, phase)
    made.append(
        conditions.condition(
            "PodReadyToStartContainers",
            inputs.sandbox_usable,
            NOT_READY if inputs.sandbox_message else "",
            inputs.sandbox_message,
            generation=pod.generation,
        )
    )
    made.append(conditions.initialized(pod, statuses, phase, old))
    made.append(
        conditions.leaving(pod, all_ready)
        if inputs.shutting_down
        else conditions.ready(pod, all_ready, made)
    )
    made.append(all_ready)
    made.append(conditions.condition("PodScheduled", True, generation=pod.generation))
    if could_restart_all(pod):
        made.append(conditions.all_containers_restarting(inputs.restarting_all, phase))
    return made


def _with_addresses(inputs: StatusInputs, status: api.PodStatus) -> api.PodStatus:
    """Add the addresses; a pod that has ended keeps those that it had.

    The runtime reports none without a sandbox, and after a restart of the agent nothing else
    records them (kubernetes/kubernetes#125370). Source: docs/reference/behaviour.md, e2, a9.
    """
    host_ips = list(inputs.host_ips[:2])
    if host_ips:
        status["hostIP"] = host_ips[0]
        status["hostIPs"] = [{"ip": ip} for ip in host_ips]
    if pod_ips := pod_addresses(inputs.pod, inputs.runtime.ips, inputs.host_ips):
        status["podIP"] = pod_ips[0]
        status["podIPs"] = [{"ip": ip} for ip in pod_ips]
    if _has_ended(inputs, status) and not inputs.runtime.ips:
        status.update(addresses_of(inputs.old))
    elif not host_ips:  # the node has no addresses yet
        kept = ADDRESSES if inputs.pod.host_network else HOST_ADDRESSES
        status.update(addresses_of(inputs.old, kept))
    return status


def _has_ended(inputs: StatusInputs, status: api.PodStatus) -> bool:
    """Whether the pod gets no sandbox any more."""
    ends = inputs.terminated or inputs.pod.being_deleted
    return ends or status.get("phase") in TERMINAL_PHASES


def addresses_of(status: api.PodStatus, fields: Collection[str] = ADDRESSES) -> api.PodStatus:
    """The part of a status that consists of addresses."""
    found: Any = {name: value for name, value in status.items() if name in fields and value}
    addresses: api.PodStatus = found
    return addresses
