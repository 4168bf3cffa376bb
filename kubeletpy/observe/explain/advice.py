"""Hints by what exactly is missing: machine faults, claims of devices, hooks, resizes, env files.

Pure. They are more exact than the hints by cause alone (:mod:`kubeletpy.observe.explain.hints`) and
take precedence over them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kubeletpy.base.host.errors import Cause, CauseKind, FaultKind, MachineFault
from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.observe.explain import handlers
from kubeletpy.observe.explain.containers import containers, ephemeral
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.hints import STUCK_CALL
from kubeletpy.observe.explain.model import Wait, WaitKind
from kubeletpy.observe.explain.phrases import LATE_S
from kubeletpy.observe.explain.texts import one_line
from kubeletpy.observe.explain.verdict import cause_behind

MOSTLY_FULL = 90
"""Percent in use from which a lack of space is the likely reason of a failed write."""
_RUNTIME_IS_FULL = re.compile("no space left on device", re.I)
"""The kernel's message as runtimes quote it; errors of this agent carry a fault."""
_BY_CAUSE: Mapping[CauseKind, str] = {
    CauseKind.OBJECT_MISSING: "create {within} {name} in namespace {namespace} or mark it "
    "optional; the agent then retries",
    CauseKind.VOLUME_SECRET: "create secret {name} in namespace {within}",
    CauseKind.ENV_FILE: "have an init container write file {name} into volume {within}, or mark "
    "the fileKeyRef optional",
    CauseKind.ENV_FILE_KEY: "add key {name} to file {within}, or mark the fileKeyRef optional",
    CauseKind.USER_NAMESPACE: "use a node whose runtime supports user namespaces (containerd 2.0 "
    "or CRI-O 1.25, with runc 1.2 or crun 1.9), or remove hostUsers: false from the pod",
    CauseKind.TRUST_BUNDLE: "create the ClusterTrustBundle, which belongs to no namespace, or mark "
    "the source optional",
    CauseKind.TRUST_BUNDLE_GATE: "enable the feature gate ClusterTrustBundleProjection on this "
    "node",
    CauseKind.HOST_PATH: "create {name} on this node as the hostPath's type requires, or change "
    "the type",
    CauseKind.CLAIM_DRIVER_MISSING: "install the node plugin of DRA driver {name} (a DaemonSet as "
    "a rule): it has to run on this node and register with it",
    CauseKind.CLAIM_DRIVER: "see the log of the node plugin of DRA driver {name} on this node",
    CauseKind.CLAIM_MISSING: "create ResourceClaim {name} in namespace {namespace}",
    CauseKind.CLAIM_NOT_RESERVED: "see why the scheduler has not allocated it for this pod: "
    "kubectl describe resourceclaim -n {namespace} {name}",
    CauseKind.DEVICES_TAKEN: "request less of {name}, or use a node that has more devices",
    CauseKind.DEVICES_UNHEALTHY: "see the log of the device plugin of {name}, or use a node with "
    "healthy devices",
    CauseKind.NODE_PRESSURE: "kubeletpy explain --node shows what would help the node; use another "
    "one until then",
}
_BY_FAULT: Mapping[FaultKind, str] = {
    FaultKind.SPACE: "free space on {disk}{usage}: du -xh --max-depth=2 {below} | sort -h | tail",
    FaultKind.INODES: "remove files from {disk}{usage}: du -x --inodes --max-depth=2 {below} | "
    "sort -n | tail",
    FaultKind.QUOTA: "raise the quota of {path}, or remove files that count for it",
    FaultKind.READ_ONLY: "see why {disk} is read-only (dmesg), and make it writable: "
    "mount -o remount,rw {below}",
    FaultKind.IO: "see the kernel's log (dmesg): the device of {disk} fails",
    FaultKind.DENIED: "let the agent use {path}: see its owner and mode, its attributes (lsattr), "
    "and the log of the security module (dmesg)",
    FaultKind.DESCRIPTORS: "raise the agent's limit of open files (LimitNOFILE in its unit), or "
    "the machine's (sysctl fs.file-max)",
    FaultKind.MEMORY: "free memory on this node: kubeletpy explain --node shows who uses it",
    FaultKind.THREADS: "end processes of this node, or raise TasksMax of the agent's unit or "
    "kernel.threads-max (sysctl)",
}
_HAS_SPACE = (
    "free space on {disk}{usage}; if it has enough, a quota of the directory, or "
    "fs.inotify.max_user_watches (sysctl), is used up"
)
_RESIZES = {
    "deferred": "end other pods of this node, or request less: it is retried automatically",
    "infeasible": "request what the node can give, or create a new pod with these resources",
    "failing": "see the log of the container runtime, or request the previous size",
}


def advice(facts: PodFacts, wait: Wait | None) -> str:
    """Return the next step on one line, or "" if only the hint by cause applies.

    Args:
        facts: of a pod that is not as it should be.
        wait: what it waits for first; None for a pod that has ended or was refused.
    """
    if facts.phase == "Failed":  # an agent that has restarted has only the text of the refusal
        refusals = (entry.decision.cause for entry in reversed(facts.history))
        return _by_cause(facts, next(filter(None, refusals), None))
    if wait is None:
        return ""
    if wait.subject in ephemeral(containers(facts)):
        return (
            "the pod itself is not affected, and a debug container cannot be changed: add another "
            f"one with kubectl debug -n {facts.namespace} {facts.name} --image=IMAGE"
        )
    if found := _by_cause(facts, cause_behind(facts, wait)):
        return found
    match wait.kind:
        case WaitKind.CLAIM if wait.call:
            drivers = (each.driver for each in facts.claims if each.claims == wait.subject)
            under_way = Cause(CauseKind.CLAIM_DRIVER, next(drivers, ""))
            return _by_cause(facts, under_way)
        case WaitKind.RESIZE:
            return _RESIZES.get(wait.subject, "")
        case WaitKind.HOOK:
            return _hook(facts, wait)
        case WaitKind.GRACE_PERIOD if wait.until is not None and facts.now - wait.until > LATE_S:
            return STUCK_CALL
        case WaitKind.START_ERROR | WaitKind.RETRY if _RUNTIME_IS_FULL.search(wait.why):
            return (
                "free space or inodes on the file system that the message names, or on that of "
                "the container runtime: df -h, df -i"
            )
        case _:
            return ""


def _by_cause(facts: PodFacts, cause: Cause | None) -> str:
    """Return the step for a cause, or "" if only that for its kind of wait applies."""
    if cause is None:
        return ""
    if cause.fault is not None:
        return one_line(_fix_machine(cause.fault), 800)
    names = {"name": cause.name, "within": cause.within, "namespace": facts.namespace}
    return one_line(_BY_CAUSE.get(cause.kind, "").format(**names))


def _fix_machine(fault: MachineFault) -> str:
    disk = f"the file system of {fault.path}"
    if fault.mount_point:
        disk = f"file system {fault.mount_point} of this node"
    step = _BY_FAULT[fault.kind]
    if fault.kind is FaultKind.SPACE and fault.size and fault.used_percent < MOSTLY_FULL:
        step = _HAS_SPACE
    if fault.kind is FaultKind.DENIED and not fault.path:
        fault = replace(fault, path="what the message names")
    usage, below = f" ({fault.usage})" if fault.usage else "", fault.mount_point or fault.path
    return step.format(disk=disk, usage=usage, below=below, path=fault.path)


def _hook(facts: PodFacts, wait: Wait) -> str:
    handler = handlers.hook(facts, wait.subject, wait.call)
    check = f"see why the {wait.call}{f' ({handler})' if handler else ''} does not end"
    delete = f"kubectl delete pod -n {facts.namespace} {facts.name}"
    if wait.call is TraceCall.PRE_STOP:
        if facts.ending and not facts.static:
            return f"{check}; {delete} --now gives it up sooner"
        return f"{check}; it is given up when the grace period is over"
    if wait.until is not None:
        return "nothing: the hook ends by itself"
    ends = "the end of the pod" if facts.static else delete
    return (
        f"{check}, and give it a time limit of its own: "
        "nothing else limits it, and no container "
        f"after it starts before; {ends} does not wait for it"
    )
