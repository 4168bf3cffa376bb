"""Hints by what exactly is missing: machine faults, claims of devices, hooks, resizes, env files.

Pure. They are more exact than the hints by cause alone (:mod:`kubeletpy.observe.explain.hints`) and
take precedence over them.
"""

from __future__ import annotations

import re

from kubeletpy.base.host.errors import FaultKind, MachineFault
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.observe.explain import handlers
from kubeletpy.observe.explain.containers import containers, ephemeral
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.hints import STUCK_CALL
from kubeletpy.observe.explain.model import Wait, WaitKind
from kubeletpy.observe.explain.phrases import LATE_S
from kubeletpy.observe.explain.texts import one_line
from kubeletpy.observe.explain.verdict import fault_of

MOSTLY_FULL = 90
"""Percent in use from which a lack of space is the likely reason of a failed write."""
_NO_OBJECT = re.compile(r'\b(configmap|secret)s? "([^"]{1,253})" not found', re.I)
"""The API server's message."""
_RUNTIME_IS_FULL = re.compile("no space left on device", re.I)
"""The kernel's message as runtimes quote it; errors of this agent carry a fault."""
_NAME = r"([\w.*/-]{1,253})"
_UNREGISTERED = re.compile(rf"DRA driver {_NAME}(?:, \S+)* is not registered")
_NO_CLAIM = re.compile(rf"ResourceClaim \S{{1,64}}/{_NAME} cannot be read: .*not found")
_NOT_RESERVED = re.compile(rf"ResourceClaim \S{{1,64}}/{_NAME} is not (?:reserved|allocated)")
_CALL = re.compile(rf"of DRA driver {_NAME}")
_NO_FILE = re.compile(r'file "([^"]{1,512})" in volume "([^"]{1,64})" cannot be read')
_NO_KEY = re.compile(r'environment variable key "([^"]{1,256})" not found in file "([^"]{1,512})"')
_TOO_MANY = re.compile(rf"number of devices unavailable for {_NAME}\. Requested: \d+")
_UNHEALTHY = re.compile(rf"no healthy devices present; cannot allocate unhealthy devices {_NAME}")
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
    if facts.phase == "Failed":
        return one_line(_refused_device(facts.status.get("message") or ""))
    if wait is None:
        return ""
    if wait.subject in ephemeral(containers(facts)):
        return (
            "the pod itself is not affected, and a debug container cannot be changed: add another "
            f"one with kubectl debug -n {facts.namespace} {facts.name} --image=IMAGE"
        )
    if (fault := fault_of(facts, wait)) is not None:
        return one_line(_fix_machine(fault), 800)
    match wait.kind:
        case WaitKind.START_ERROR | WaitKind.VOLUME if not facts.volumes and (
            found := _NO_OBJECT.search(wait.why)
        ):
            kind = "secret" if found[1].lower() == "secret" else "configMap"
            return one_line(
                f"create {kind} {found[2]} in namespace {facts.namespace} or mark it optional; the "
                "agent then retries"
            )
        case WaitKind.CLAIM:
            return one_line(_claim(facts, wait.why))
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
        case WaitKind.START_ERROR:
            return one_line(_env_file(wait.why))
        case WaitKind.RETRY if "user namespace" in wait.why:
            return (
                "use a node whose runtime supports user namespaces (containerd 2.0 or CRI-O 1.25, "
                "with runc 1.2 or crun 1.9), or remove hostUsers: false from the pod"
            )
        case _:
            return ""


def _fix_machine(fault: MachineFault) -> str:
    disk = f"the file system of {fault.path}"
    if fault.mount_point:
        disk = f"file system {fault.mount_point} of this node"
    usage = f" ({fault.usage})" if fault.usage else ""
    below = fault.mount_point or fault.path
    match fault.kind:
        case FaultKind.SPACE if fault.size and fault.used_percent < MOSTLY_FULL:
            return (
                f"free space on {disk}{usage}; if it has enough, a quota of the directory, or "
                "fs.inotify.max_user_watches (sysctl), is used up"
            )
        case FaultKind.SPACE:
            return f"free space on {disk}{usage}: du -xh --max-depth=2 {below} | sort -h | tail"
        case FaultKind.INODES:
            return (
                f"remove files from {disk}{usage}: du -x --inodes --max-depth=2 {below} | sort -n "
                "| tail"
            )
        case FaultKind.QUOTA:
            return f"raise the quota of {fault.path}, or remove files that count for it"
        case FaultKind.READ_ONLY:
            return (
                f"see why {disk} is read-only (dmesg), and make it writable: "
                f"mount -o remount,rw {below}"
            )
        case FaultKind.IO:
            return f"see the kernel's log (dmesg): the device of {disk} fails"
        case FaultKind.DENIED:
            return (
                f"let the agent use {fault.path or 'what the message names'}: see its owner and "
                "mode, its attributes (lsattr), and the log of the security module (dmesg)"
            )
        case FaultKind.DESCRIPTORS:
            return (
                "raise the agent's limit of open files (LimitNOFILE in its unit), or the "
                "machine's (sysctl fs.file-max)"
            )
        case FaultKind.MEMORY:
            return "free memory on this node: kubeletpy explain --node shows who uses it"
        case FaultKind.THREADS:
            return (
                "end processes of this node, or raise TasksMax of the agent's unit or "
                "kernel.threads-max (sysctl)"
            )


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


def _claim(facts: PodFacts, why: str) -> str:
    space = facts.namespace
    if found := _UNREGISTERED.search(why):
        return (
            f"install the node plugin of DRA driver {found[1]} (a DaemonSet as a rule): it has to "
            "run on this node and register with it"
        )
    if found := _NO_CLAIM.search(why):
        return f"create ResourceClaim {found[1]} in namespace {space}"
    if found := _NOT_RESERVED.search(why):
        return (
            "see why the scheduler has not allocated it for this pod: kubectl describe "
            f"resourceclaim -n {space} {found[1]}"
        )
    if found := _CALL.search(why):
        return f"see the log of the node plugin of DRA driver {found[1]} on this node"
    return ""


def _env_file(why: str) -> str:
    if found := _NO_FILE.search(why):
        return (
            f"have an init container write file {found[1]} into volume {found[2]}, or mark the "
            "fileKeyRef optional"
        )
    if found := _NO_KEY.search(why):
        return f"add key {found[1]} to file {found[2]}, or mark the fileKeyRef optional"
    return ""


def _refused_device(message: str) -> str:
    if found := _TOO_MANY.search(message):
        return f"request less of {found[1]}, or use a node that has more devices"
    if found := _UNHEALTHY.search(message):
        return f"see the log of the device plugin of {found[1]}, or use a node with healthy devices"
    if "The node had condition: [" in message:
        return "kubeletpy explain --node shows what would help the node; use another one until then"
    return ""
