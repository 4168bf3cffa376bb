"""Hints for fixing the cause of a pod's state: one line each. Pure.

Commands name the objects, in the reader's shell; names of pods and containers are DNS labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import OUT_OF, AdmissionReason
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.node.build import RuntimeStart
from kubeletpy.observe.explain import handlers
from kubeletpy.observe.explain.containers import ended_alone, exits, has_log, last_exit, never_ran
from kubeletpy.observe.explain.facts import NodeTaint, PodFacts
from kubeletpy.observe.explain.model import WaitKind
from kubeletpy.observe.explain.phrases import mounted_image
from kubeletpy.observe.explain.texts import one_line
from kubeletpy.observe.explain.verdict import CauseCode
from kubeletpy.pods.pod import DISRUPTION_TARGET
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.status.conditions import find
from kubeletpy.volumes.claims.model import WaitCause

SEE_MESSAGE = "see the message, and the agent's log on this node"
"""For what the agent makes itself, such as volumes without a claim or driver."""
_REFUSED: Mapping[str, str] = {
    AdmissionReason.NODE_PORTS: "use another hostPort, or end the pod that has it",
    AdmissionReason.NODE_AFFINITY: (
        "change the pod's nodeSelector or affinity, or the node's labels"
    ),
    AdmissionReason.OUT_OF_PODS: "the node has as many pods as it may have: use another node",
    AdmissionReason.APPARMOR: "remove the profile, or use a node with AppArmor",
    AdmissionReason.SYSCTL_FORBIDDEN: (
        "remove the sysctl, or allow it with the node's allowedUnsafeSysctls"
    ),
    AdmissionReason.NEEDS_ROOT: "see the message, and `kubeletpy explain --node`",
    AdmissionReason.POD_OS_NOT_SUPPORTED: (
        "the pod is for another operating system: use a node of that system"
    ),
    AdmissionReason.TAINT_TOLERATION: "the taint was removed; create a new pod",
    AdmissionReason.TOPOLOGY_AFFINITY_ERROR: (
        "request less, or use a node with more on one NUMA node"
    ),
}
ADMITTED_AGAIN = "it ran before: each start of an agent or kubelet admits running pods again"
_MOUNTING = "error mounting "
_MAPPING = ("MOUNT_ATTR_IDMAP", "mount_setattr")
"""In errors of runc and crun for a file system that cannot map the ids of user namespaces."""
_NO_PROGRAM = "correct the container's command, or use an image that has that program"
_NO_MOUNT = "correct the mount that is named, or see the log of the container runtime"
_NO_MAPPED_MOUNT = (
    "use a node with Linux 6.3 or later, whose file systems map the ids of user namespaces, or "
    "remove hostUsers: false from the pod"
)
STUCK_CALL = (
    "see the log of the container runtime for what is named, and whether a process of it is in "
    "state D: ps -eo pid,state,comm"
)
_NO_NETWORK = "see the network plugin (its pod, /etc/cni/net.d) and the container runtime's log"
_HINTS: Mapping[str, str] = {
    CauseCode.IMAGE_ABSENT: (
        "check the image's name and tag; it is pulled as soon as the registry has it"
    ),
    CauseCode.REGISTRY: "check the registry's name, and that it can be reached from this node",
    CauseCode.IMAGE_NAME: "correct the image's name in the pod",
    CauseCode.IMAGE_NEVER: "load the image on this node, or use imagePullPolicy IfNotPresent",
    CauseCode.IMAGE_NOT_VERIFIED: (
        "add the pull secret of the image to the pod's imagePullSecrets, or use imagePullPolicy "
        "IfNotPresent with it"
    ),
    WaitKind.IMAGE.value: "see the message of the runtime, and its log",
    CauseCode.RUNS_AS_ROOT: "set runAsUser to a user other than 0, or use an image that names one",
    CauseCode.CONFIG: "correct what the message names in the pod's spec",
    CauseCode.VOLUME_IN_USE: (
        "end the process, or have it leave the volume: unmounting is tried again"
    ),
    CauseCode.TAINT: "the node has no such taint any more: make a new pod",
    CauseCode.REMOVED: "nothing, if it was meant to end; else make another",
    CauseCode.SUBPATH: "correct subPath: it has to be below a directory of the volume",
    CauseCode.RESOLV_CONF: (
        "correct the file that is named, or resolvConf in the node's configuration; the agent then "
        "retries"
    ),
    CauseCode.NODE_ADDRESS: (
        "see the log of the cloud controller, which sets the node's addresses, or start the node's "
        "agent with --node-ip"
    ),
    "readiness-gate": "check the controller that has to set this condition",
    "finalizer": "check the controller that owns the finalizer",
    "api-write": (
        "see whether the API server can be reached from this node and takes its credentials"
    ),
    "watch": "see the API server's log; kubeletpy explain --node names all watches that fail",
    "resource-claim": "see the DRA driver that is named: its plugin must run on this node",
    "stop": STUCK_CALL,
    "runtime-call": STUCK_CALL,
    "sandbox": _NO_NETWORK,
    "network": _NO_NETWORK,
    "cgroup": SEE_MESSAGE,
    "directory": SEE_MESSAGE,
    "retry": SEE_MESSAGE,
    CauseCode.OVER_LIMIT: "have it write less, or raise the limit that is named in its manifest",
    CauseCode.EVICTED: "kubeletpy explain --node shows what would help the node",
    CauseCode.PREEMPTED: (
        "nothing, if a controller makes another; else create it again: with a higher "
        "priorityClassName it stays"
    ),
    CauseCode.SHUTDOWN: "nothing, if a controller makes another; else create it again",
    CauseCode.DEADLINE: "raise activeDeadlineSeconds in what makes the pod",
}
FINAL = (
    CauseCode.REFUSED,
    CauseCode.EVICTED,
    CauseCode.PREEMPTED,
    CauseCode.DEADLINE,
    CauseCode.SHUTDOWN,
    CauseCode.FAILED,
    CauseCode.REMOVED,
)
"""Causes after which the pod itself is never tried again, whatever changes."""


def hint(facts: PodFacts, code: str, name: str) -> str:
    """Return the next step on one line, or "" if there is nothing to do.

    Args:
        facts: of the pod.
        code: the cause (:func:`kubeletpy.observe.explain.verdict.cause_code`).
        name: the container or object that the cause is about; may be empty.
    """
    match code:
        case CauseCode.IMAGE_AUTH:
            return _pull_secret(facts)
        case CauseCode.IMAGE_ABSENT | CauseCode.REGISTRY if mounted := _mounted(facts, name):
            return f"check {mounted}: its name and tag, and that this node reaches its registry"
        case CauseCode.LIVENESS:
            return _probe(facts, name, ProbeKind.LIVENESS)
        case CauseCode.STARTUP | "startup-probe":
            return _probe(facts, name, ProbeKind.STARTUP)
        case "readiness-probe":
            return _probe(facts, name, ProbeKind.READINESS)
        case CauseCode.POST_START if hook := handlers.hook(facts, name, TraceCall.POST_START):
            return f"correct its postStart hook ({hook}), or {_see_log(facts, name)}"
        case CauseCode.CRASH | CauseCode.POST_START:
            return _see_log(facts, name)
        case CauseCode.NEVER_RAN:
            return _program_cannot_run(facts, name)
        case CauseCode.OUT_OF_MEMORY:
            return f"raise its memory limit{_memory(facts, name)}, or {_see_log(facts, name)}"
        case CauseCode.CONFIG_MISSING | CauseCode.CONFIG_KEY:
            return (
                f"create it in namespace {facts.namespace} or mark it optional; the agent then "
                "retries"
            )
        case CauseCode.TAINT if facts.deleted_for:
            return _tolerate(facts.deleted_for[0], len(facts.deleted_for) - 1)
        case "image-pull":
            return _speed_up_pull(facts, name)
        case "init-container":
            return (
                f"{_see_log(facts, name)}. Nothing limits how long an init container runs; "
                "activeDeadlineSeconds limits the whole pod"
            )
        case CauseCode.CONTAINER_ENDED:
            return _container_ended(facts)
        case "grace-period" | "stop-order":
            return _ends_sooner(facts)
        case CauseCode.RUNTIME_CLASS:
            named = facts.pod.spec.get("runtimeClassName") if facts.pod is not None else None
            return one_line(
                f"create {f'RuntimeClass {named}' if named else 'the RuntimeClass'}, or configure "
                "its handler in the container runtime"
            )
        case "runtime":
            return start_runtime(facts.runtime_start)
        case "volume":
            return volume_hint(facts, name)
        case CauseCode.REFUSED:
            return _refused(facts)
        case CauseCode.EVICTED if find(
            facts.status.get("conditions"), DISRUPTION_TARGET
        ) is None and exits(facts):
            # for a limit of its own (docs/reference/behaviour-resources.md, rd)
            return "raise the limit that is named in what makes the pod, or have it write less"
        case CauseCode.FAILED:
            return _see_failed_log(facts)
        case _:
            return _HINTS.get(code, "")


def start_runtime(known: RuntimeStart) -> str:
    """Return the next step for a runtime that does not answer, on one line."""
    socket = known.endpoint.removeprefix("unix://")
    if known.by_up:
        return (
            f"run ./up.sh again: it starts the container runtime at {socket}, beside the agent "
            f"that runs; its log is {socket.rpartition('/')[0]}/containerd.log"
        )
    runtime = f"the container runtime{f' at {socket}' if socket else ''}"
    if known.unit:
        return (
            f"see whether {runtime} runs: systemctl status {known.unit}; systemctl restart "
            f"{known.unit} starts it; its log: journalctl -u {known.unit}"
        )
    return f"see whether {runtime} runs, and its log"


def _program_cannot_run(facts: PodFacts, name: str) -> str:
    ended = last_exit(facts, name)
    message = ended.message if ended is not None else ""
    if any(call in message for call in _MAPPING):
        return _NO_MAPPED_MOUNT
    return _NO_MOUNT if _MOUNTING in message else _NO_PROGRAM


def _pull_secret(facts: PodFacts) -> str:
    spec = facts.pod.spec if facts.pod is not None else {}
    names = [
        str(each.get("name")) for each in spec.get("imagePullSecrets") or () if each.get("name")
    ]
    missing = [name for name in names if name in facts.missing_secrets]
    if missing:
        return (
            f"create pull secret {', '.join(missing)} in namespace {facts.namespace}: it is missing"
        )
    if names:
        return f"check that pull secret {', '.join(names)} has credentials for this registry"
    return (
        "the pod names no imagePullSecrets, and the registry takes no credentials of this node: "
        f"create a docker-registry secret in namespace {facts.namespace} and name it"
    )


def _speed_up_pull(facts: PodFacts, image: str) -> str:
    position = facts.pulls.get(image)
    if position is not None and position.ahead is not None:
        return "see the pulls before it; maxParallelImagePulls lets more run at once"
    registry, slash, _ = image.partition("/")
    named = slash and (set(registry) & set(".:") or registry == "localhost")
    return (
        f"if it takes too long, see the registry{f' {registry}' if named else ''}, and the "
        "runtime's log; only the runtime limits a pull"
    )


def _probe(facts: PodFacts, name: str, kind: ProbeKind) -> str:
    requests = handlers.probe(facts, name, kind)
    details = f" ({requests})" if requests else ""
    check = f"check what its {kind.value.lower()} probe requests{details}"
    return f"{check}; {_see_log(facts, name)}"


def _ends_sooner(facts: PodFacts) -> str:
    """Return the hint for a container that is being stopped, in a pod that ends or continues."""
    if not facts.ending:
        return (
            "nothing: it is killed then and started again; terminationGracePeriodSeconds limits "
            "that"
        )
    if facts.static:
        return ""
    return f"kubectl delete pod -n {facts.namespace} {facts.name} --now ends it sooner"


def _refused(facts: PodFacts) -> str:
    text = _refused_for(facts)
    ran = facts.runtime is not None and bool(facts.runtime.containers)
    return f"{text}; {ADMITTED_AGAIN}" if ran else text


def _refused_for(facts: PodFacts) -> str:
    reason = facts.status.get("reason") or ""
    if facts.port_holders:
        return f"{_REFUSED[AdmissionReason.NODE_PORTS]}: {'; '.join(facts.port_holders)}"
    if facts.taints:
        return _tolerate(facts.taints[0], len(facts.taints) - 1)
    if reason.startswith(OUT_OF) and reason not in _REFUSED:
        return f"request less {reason.removeprefix(OUT_OF)}, or use a node that has more"
    return _REFUSED.get(reason, "create a new pod once that is fixed")


def _tolerate(taint: NodeTaint, more: int) -> str:
    equal = f"operator: Equal, value: {taint.value}" if taint.value else "operator: Exists"
    others = f" (and so for {more} more)" if more else ""
    return one_line(
        f"the node has the taint {taint}: give the pod the toleration {{key: {taint.key}, {equal}, "
        f"effect: {taint.effect}}}{others}, or use another node"
    )


def _see_failed_log(facts: PodFacts) -> str:
    failed = (
        str(entry.get("name") or "")
        for entry in _statuses(facts)
        if ((entry.get("state") or {}).get("terminated") or {}).get("exitCode")
    )
    name = next(failed, "")
    ended = last_exit(facts, name)
    if ended is not None and never_ran(ended):
        return _program_cannot_run(facts, name)
    return _see_log(facts, name)


def _container_ended(facts: PodFacts) -> str:
    ended = ended_alone(facts)
    if ended is None or ended[1]:
        return ""
    if ended[0].exit_code:
        return _see_log(facts, ended[0].name)
    return (
        "nothing, if its work is done. A pod is Ready only while all its containers run; move work "
        "that ends to an init container or to a pod of its own"
    )


def _mounted(facts: PodFacts, name: str) -> str:
    error = facts.start_errors.get(name)
    return "" if error is None else mounted_image(facts, error)


def _see_log(facts: PodFacts, name: str) -> str:
    if has_log(facts, name):
        return f"see its log: {_logs(facts, name)}"
    return (
        f"it has no log; see its last state and its events: kubectl describe pod -n "
        f"{facts.namespace} {facts.name}"
    )


def _memory(facts: PodFacts, name: str) -> str:
    found = facts.pod.find_container(name) if facts.pod is not None else None
    limits = (found[1].get("resources") or {}).get("limits") or {} if found is not None else {}
    return f" of {limits['memory']}" if limits.get("memory") else ""


def _logs(facts: PodFacts, name: str) -> str:
    container = f" -c {name}" if name else ""
    again = " --previous" if _restarted(facts, name) else ""
    return f"kubectl logs -n {facts.namespace} {facts.name}{container}{again}"


def _restarted(facts: PodFacts, name: str) -> bool:
    """Whether the run in question is over and another one has begun."""
    for entry in _statuses(facts):
        if entry.get("name") == name:
            return "running" in (entry.get("state") or {}) and bool(entry.get("restartCount"))
    return False


def _statuses(facts: PodFacts) -> Iterator[api.ContainerStatus]:
    yield from facts.status.get("initContainerStatuses") or ()
    yield from facts.status.get("containerStatuses") or ()


# Volumes that are not available.

_SEE_OBJECT = "see the object or driver that is named: kubectl get pvc,pv,volumeattachment"
_VOLUME_HINTS: dict[WaitCause, str] = {
    WaitCause.UNREAD: "see whether the API server can be reached from this node; kubeletpy explain "
    "--node names all watches that fail",
    WaitCause.CLAIM_MISSING: "create {object} in namespace {namespace}",
    WaitCause.CLAIM_DELETING: "{object} is being deleted: use another claim in a new pod",
    WaitCause.CLAIM_UNBOUND: "see why it is not bound: kubectl describe pvc -n {namespace} {claim}",
    WaitCause.CLAIM_LOST: "its PersistentVolume was deleted: use another claim in a new pod",
    WaitCause.NOT_OWNED: "delete the claim of that name, or rename the pod: its owner is another",
    WaitCause.PV_MISSING: "see why {object} was removed: kubectl get pv",
    WaitCause.PV_OF_ANOTHER: "{object} is bound to another claim: use a claim that is bound to it",
    WaitCause.MODE_DIFFERS: "use the volume as its volumeMode requires: Block in volumeDevices, "
    "Filesystem in volumeMounts",
    WaitCause.NO_PLUGIN: "use a volume of a CSI driver: this node does not support this kind",
    WaitCause.INVALID: "correct what the message names in the volume of the pod or in the "
    "PersistentVolume",
    WaitCause.SELINUX_CONFLICT: "give both pods the same SELinux options, or another volume",
    WaitCause.DRIVER_MISSING: "install the node plugin of CSI driver {driver}: it must run on this "
    "node and be registered with it (a CSIDriver object alone is not enough)",
    WaitCause.NODE_AFFINITY: "use a node that the nodeAffinity of {object} names: "
    "kubectl describe pv",
    WaitCause.NOT_IN_USE_YET: "nothing: it is mounted once the API shows the node's status",
    WaitCause.NOT_ATTACHED: "see why it is not attached: kubectl describe volumeattachment, and "
    "the log of the controller of {controller}",
    WaitCause.ATTACH_FAILED: "see the log of the driver's controller (external-attacher)",
    WaitCause.ATTACH_LIMIT: "use another node, or end pods of this node that use volumes of the "
    "driver",
    WaitCause.SOLE_USER: "end the pod that uses the volume: its access mode is ReadWriteOncePod",
}


def volume_hint(facts: PodFacts, name: str) -> str:
    """Return the hint for a volume of the pod's spec; the name "" stands for the failed step."""
    found = next((each for each in facts.volumes if each.volume == name), None)
    if found is None:
        return SEE_MESSAGE
    by_cause = _VOLUME_HINTS.get(found.wait.cause)
    if by_cause is not None:
        names = {"object": found.wait.object, "namespace": facts.namespace, "driver": found.driver}
        controller = f"CSI driver {found.driver}" if found.driver else "the driver"
        claim = _claim_name(facts, name)
        return one_line(by_cause.format(claim=claim, controller=controller, **names))
    if found.export:
        server, _, path = found.export.partition(":/")
        return one_line(
            f"check that NFS server {server} exports /{path} to this node and can be reached "
            f"from it: showmount -e {server}"
        )
    if found.driver:
        return one_line(f"see the log of the node plugin of CSI driver {found.driver} on this node")
    return _SEE_OBJECT


def _claim_name(facts: PodFacts, volume: str) -> str:
    """Return the name of a volume's PersistentVolumeClaim."""
    volumes = facts.pod.spec.get("volumes") or () if facts.pod is not None else ()
    sources = (each.get("persistentVolumeClaim") for each in volumes if each.get("name") == volume)
    source = next(sources, None) or {}
    return source.get("claimName") or f"{facts.name}-{volume}"
