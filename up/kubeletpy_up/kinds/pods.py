"""Rules of the API for pods beyond storing them: admission, binding, their subresources.

Pure: other objects come through a lookup. Never changes its arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kubeletpy.base.api import quantity
from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy.pods.resources import COMPUTE
from kubeletpy_up.auth.node_restriction import MIRROR_ANNOTATION
from kubeletpy_up.errors import bad_request, conflict, forbidden
from kubeletpy_up.schema import formats

# Admission: service account volume, pull secrets, QoS class. Nothing here refuses a pod.

TOKEN_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS = 3607
_MIRROR = "kubernetes.io/config.mirror"


def with_service_account(pod: JSON, account: JSON | None, suffix: str) -> JSON:
    """Mount the account's token, the cluster's CA and the namespace into every container.

    Args:
        pod: a defaulted pod; a mirror pod is returned unchanged.
        account: the ServiceAccount object, None if there is none.
        suffix: five random characters for the volume's name.
    """
    if _MIRROR in ((pod.get("metadata") or {}).get("annotations") or {}):
        return pod
    spec = dict(pod["spec"])
    automount = spec.get("automountServiceAccountToken")
    if automount is None:
        automount = (account or {}).get("automountServiceAccountToken", True)
    secrets = (account or {}).get("imagePullSecrets")
    if secrets and not spec.get("imagePullSecrets"):
        spec["imagePullSecrets"] = secrets
    if automount:
        existing = next((v["name"] for v in spec.get("volumes") or () if _is_token_volume(v)), None)
        name = existing or f"kube-api-access-{suffix}"
        mounted = False
        for key in ("initContainers", "containers"):
            if spec.get(key):
                spec[key] = [_mount(container, name) for container in spec[key]]
                mounted = mounted or any(m["name"] == name for c in spec[key] for m in _mounts(c))
        if mounted and existing is None:
            spec["volumes"] = [*(spec.get("volumes") or []), _token_volume(name)]
    return {**pod, "spec": spec}


def _mounts(container: JSON) -> list[JSON]:
    return container.get("volumeMounts") or []


def _mount(container: JSON, volume: str) -> JSON:
    mounts = _mounts(container)
    if any(mount.get("mountPath") == TOKEN_MOUNT_PATH for mount in mounts):
        return container
    mount = {"name": volume, "readOnly": True, "mountPath": TOKEN_MOUNT_PATH}
    return {**container, "volumeMounts": [*mounts, mount]}


def _is_token_volume(volume: JSON) -> bool:
    return str(volume.get("name", "")).startswith("kube-api-access-") and "projected" in volume


def _token_volume(name: str) -> JSON:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    authority = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {"configMap": authority},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}


def qos_class(spec: JSON) -> str:
    """Guaranteed, Burstable or BestEffort, by cpu and memory of pod or containers."""
    own = spec.get("resources") or {}
    if own.get("requests") or own.get("limits"):
        parts = [own]
    else:
        listed = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        parts = [container.get("resources") or {} for container in listed]
    guaranteed, anything = True, False
    for part in parts:
        requests, limits = _positive(part.get("requests")), _positive(part.get("limits"))
        anything = anything or bool(requests or limits)
        guaranteed = guaranteed and len(limits) == len(COMPUTE) and requests == limits
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(amounts: JSON | None) -> dict[str, int]:
    found = {n: formats.milli(amounts[n]) for n in COMPUTE if amounts and n in amounts}
    return {name: amount for name, amount in found.items() if amount > 0}


Find = Callable[[str, str, str], JSON | None]
"""(resource key, namespace, name) -> object or None."""

_RUNTIME_CLASSES = "runtimeclasses.node.k8s.io"
_PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
_CLAIM_STATUSES = (
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
)


def is_mirror(pod: JSON) -> bool:
    """Whether this is a mirror pod, created by a node for a static pod."""
    return MIRROR_ANNOTATION in (pod["metadata"].get("annotations") or {})


def admit(pod: JSON, find: Find, *, mount_tokens: bool, suffix: str, now: float) -> JSON:
    """A new, defaulted pod with what admission adds.

    Args:
        pod: with defaults.
        find: reads other objects.
        mount_tokens: whether the service account's volume is added.
        suffix: random characters for that volume's name.
        now: Unix seconds.

    Raises:
        ApiError: 403, it names a service account, RuntimeClass or priority class that isn't there.
    """
    pod = _service_account(pod, find, mount_tokens, suffix)
    pod = _priority(pod, find)
    pod = _runtime_class(pod, find)
    status: JSON = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": format_time(now),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    return {**pod, "status": status}


def _service_account(pod: JSON, find: Find, mount_tokens: bool, suffix: str) -> JSON:
    if is_mirror(pod):
        return pod
    namespace, name = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
    account = find("serviceaccounts", namespace, name)
    if account is None:
        why = (
            f'error looking up service account {namespace}/{name}: serviceaccount "{name}" '
            "not found"
        )
        raise forbidden("pods", pod["metadata"]["name"], why)
    if mount_tokens:
        return with_service_account(pod, account, suffix)
    secrets = account.get("imagePullSecrets")
    if secrets and not pod["spec"].get("imagePullSecrets"):
        return {**pod, "spec": {**pod["spec"], "imagePullSecrets": secrets}}
    return pod


def _priority(pod: JSON, find: Find) -> JSON:
    spec = dict(pod["spec"])
    name = spec.get("priorityClassName")
    if not name:
        requested = spec.get("priority") or 0
        if requested and not is_mirror(pod):
            why = (
                f"the integer value of priority ({requested}) must not be provided in pod spec; "
                "priority admission controller computed 0 from the given PriorityClass name"
            )
            raise forbidden("pods", pod["metadata"]["name"], why)
        supplied = {"priority": requested}
        return {**pod, "spec": {"preemptionPolicy": "PreemptLowerPriority", **spec, **supplied}}
    found = find(_PRIORITY_CLASSES, "", name)
    if found is None:
        raise forbidden(
            "pods", pod["metadata"]["name"], f"no PriorityClass with name {name} was found"
        )
    spec["priority"] = found.get("value") or 0
    spec["preemptionPolicy"] = found.get("preemptionPolicy") or "PreemptLowerPriority"
    return {**pod, "spec": spec}


def _runtime_class(pod: JSON, find: Find) -> JSON:
    name = pod["spec"].get("runtimeClassName")
    if not name:
        if pod["spec"].get("overhead"):
            why = (
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            )
            raise forbidden("pods", pod["metadata"]["name"], why)
        return pod
    found = find(_RUNTIME_CLASSES, "", name)
    if found is None:
        why = f'pod rejected: RuntimeClass "{name}" not found'
        raise forbidden("pods", pod["metadata"]["name"], why)
    spec = dict(pod["spec"])
    overhead = (found.get("overhead") or {}).get("podFixed")
    if overhead and not spec.get("overhead"):
        spec["overhead"] = overhead
    scheduling = found.get("scheduling") or {}
    if scheduling.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **scheduling["nodeSelector"]}
    if scheduling.get("tolerations"):
        spec["tolerations"] = [*(spec.get("tolerations") or []), *scheduling["tolerations"]]
    return {**pod, "spec": spec}


def set_condition(pod: JSON, condition: JSON, now: float) -> JSON:
    """A copy of the pod with one condition set; its transition time is kept if unchanged."""
    status: JSON = pod.get("status") or {}
    conditions = list(status.get("conditions") or [])
    changed = {"lastProbeTime": None, "lastTransitionTime": format_time(now), **condition}
    for index, existing in enumerate(conditions):
        if existing["type"] == condition["type"]:
            if existing["status"] == condition["status"]:
                changed["lastTransitionTime"] = existing.get("lastTransitionTime")
            conditions[index] = changed
            break
    else:
        conditions.append(changed)
    return {**pod, "status": {**status, "conditions": conditions}}


def with_kept_status(status: JSON, old: JSON) -> JSON:
    """A written status, with the fields kept that a status can't remove by omission.

    Those of resource claims are kept since 1.37, for clients that lack these fields. podIP and
    podIPs are filled in from each other; podIP decides.
    """
    known = old.get("status") or {}
    kept = {key: known[key] for key in ("qosClass", "observedGeneration") if known.get(key)}
    claims = {key: known[key] for key in _CLAIM_STATUSES if known.get(key)}
    supplied = {key: value for key, value in status.items() if value or key not in kept}
    return _with_both_addresses({**kept, **claims, **supplied})


def _with_both_addresses(status: JSON) -> JSON:
    first, entries = status.get("podIP") or "", status.get("podIPs") or []
    if not first and entries and entries[0].get("ip"):
        return {**status, "podIP": entries[0]["ip"]}
    if first and (not entries or entries[0].get("ip") != first):
        return {**status, "podIPs": [{"ip": first}]}
    return status


def disrupted(pod: JSON, now: float) -> JSON:
    """A copy of an evicted pod, marked as such; the same pod if nothing waits for its end."""
    spec, status = pod["spec"], pod.get("status") or {}
    ended = status.get("phase") in TERMINAL_PHASES
    if pod["metadata"].get("deletionTimestamp") or ended or not spec.get("nodeName"):
        return pod
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return set_condition(pod, condition, now)


def bind(pod: JSON, binding: JSON, now: float) -> JSON:
    """A copy of the pod bound to the binding's node.

    Raises:
        ApiError: 400 for another kind of target, 409 for a pod that is bound or being deleted.
    """
    target: JSON = binding.get("target") or {}
    name = pod["metadata"]["name"]
    if target.get("kind") not in (None, "", "Node"):
        kind = f'"{target["kind"]}": supported values: "Node", "<empty>"'
        raise bad_request(f"target.kind: Unsupported value: {kind}")
    if not target.get("name"):
        raise bad_request("target.name: Required value")
    if details := formats.dns_subdomain(target["name"]):
        raise bad_request(f'target.name: Invalid value: "{target["name"]}": {"; ".join(details)}')
    if pod["metadata"].get("deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
        raise conflict("pods/binding", name, why)
    if pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise conflict("pods/binding", name, why)
    if pod["spec"].get("schedulingGates"):
        raise conflict("pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
    metadata = pod["metadata"]
    for key in ("annotations", "labels"):
        supplied = (binding.get("metadata") or {}).get(key)
        if supplied:
            metadata = {**metadata, key: {**(metadata.get(key) or {}), **supplied}}
    spec = {**pod["spec"], "nodeName": target["name"]}
    bound = {**pod, "metadata": metadata, "spec": spec}
    return set_condition(bound, {"type": "PodScheduled", "status": "True"}, now)


def only_ephemeral_containers(new: JSON, old: JSON) -> JSON:
    """The old pod with the new one's ephemeral containers: all that this subresource changes."""
    spec = dict(old["spec"])
    desired = (new.get("spec") or {}).get("ephemeralContainers")
    if desired:
        spec["ephemeralContainers"] = desired
    else:
        spec.pop("ephemeralContainers", None)
    return {**old, "spec": spec}


def only_resources(new: JSON, old: JSON) -> JSON:
    """The old pod with the new one's resources and resize policies, container by container.

    Pod-level resources that a client leaves out stay, since 1.37. Volumes are taken as given, too.

    Containers that are not the same ones in the same order are taken as given: validation reports
    what is wrong with that.
    """
    new_spec: JSON = new.get("spec") or {}
    lists = {key: new_spec.get(key) or [] for key in ("initContainers", "containers")}
    spec = dict(old["spec"])
    if any(len(lists[key]) != len(spec.get(key) or []) for key in lists):
        return {**old, "spec": new_spec}
    for key, desired in lists.items():
        if spec.get(key):
            spec[key] = _with_resources(spec[key], desired)
    if new_spec.get("resources") is not None:
        spec["resources"] = new_spec["resources"]
    if new_spec.get("volumes") != spec.get("volumes"):
        spec["volumes"] = new_spec.get("volumes") or []
    return {**old, "spec": spec}


def with_pod_level(new: JSON, old: JSON) -> JSON:
    """A written pod that keeps pod-level resources which its client left out (since 1.37)."""
    spec, before = new.get("spec") or {}, (old.get("spec") or {}).get("resources")
    if before is None or spec.get("resources") is not None:
        return new
    return {**new, "spec": {**spec, "resources": before}}


def _with_resources(containers: list[JSON], desired: list[JSON]) -> list[JSON]:
    pairs = list(zip(containers, desired, strict=True))
    if any(container.get("name") != new.get("name") for container, new in pairs):
        return desired
    made = []
    for container, new in pairs:
        kept: JSON = {k: v for k, v in container.items() if k not in ("resources", "resizePolicy")}
        taken: JSON = {key: new[key] for key in ("resources", "resizePolicy") if key in new}
        made.append({**kept, **taken})
    return made


# Requests, and whether a resize exceeds the node's resources.


def requests_of(pod: JSON) -> dict[str, int]:
    """A pod's requests, in thousandths: the larger of its containers' sum and any init step.

    Restartable init containers (sidecars) count as containers, and with the init containers after
    them. The pod's overhead is added; a pod-level request overrides the containers'.
    """
    spec: JSON = pod.get("spec") or {}
    total: Counter[str] = Counter()
    sidecars: Counter[str] = Counter()
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        requested = _requested(container)
        if container.get("restartPolicy") == "Always":
            sidecars.update(requested)
            requested = {}
        for name in sidecars.keys() | requested.keys():
            peak[name] = max(peak.get(name, 0), sidecars[name] + requested.get(name, 0))
    for container in spec.get("containers") or ():
        total.update(_requested(container))
    total.update(sidecars)
    found = {n: max(total[n], peak.get(n, 0)) for n in total.keys() | peak.keys()}
    found.update(_requested(spec))
    for name, amount in amounts(spec.get("overhead")).items():
        found[name] = found.get(name, 0) + amount
    return found


def _requested(holder: JSON) -> dict[str, int]:
    return amounts((holder.get("resources") or {}).get("requests"))


def amounts(supplied: JSON | None) -> dict[str, int]:
    """A resource list in thousandths."""
    return {name: quantity.milli_value(amount) for name, amount in (supplied or {}).items()}


def check_resize(pod: JSON, node: JSON | None) -> None:
    """Refuse a resized pod that requests more than its node has; an unbound pod is fine.

    Raises:
        ApiError: 403, with the cause NodeCapacity or UnsupportedPlatform.
    """
    bound_to, name = pod["spec"].get("nodeName"), pod["metadata"]["name"]
    if not bound_to:
        return
    if node is None:
        raise forbidden("pods", name, f'node "{bound_to}" not found')
    system = (node["metadata"].get("labels") or {}).get("kubernetes.io/os", "linux")
    if system != "linux":
        why = f'pod resize is only supported on linux nodes, node "{bound_to}" is "{system}"'
        _refuse(name, why, "UnsupportedPlatform")
    room = amounts((node.get("status") or {}).get("allocatable"))
    requested = requests_of(pod)
    problems = []
    for resource, unit in (("cpu", 1), ("memory", 1000)):
        desired, there = requested.get(resource, 0), room.get(resource, 0)
        if desired > there:
            problem = f"{resource}, requested: {desired // unit}, allocatable: {there // unit}"
            problems.append(problem)
    if problems:
        why = "node didn't have enough allocatable resources: " + "; ".join(problems)
        _refuse(name, why, "NodeCapacity")


def _refuse(name: str, why: str, reason: str) -> None:
    refusal = forbidden("pods", name, why)
    refusal.details["causes"] = [{"reason": reason}]
    raise refusal
