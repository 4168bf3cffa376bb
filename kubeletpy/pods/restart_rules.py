"""Whether a container may run again: restart policies, exit-code rules and restart-all.

Used by the runtime manager (what to start) and by status (phase and waiting reasons), so that they
always agree. Every answer comes with a human-readable reason. Must never read a clock or act.

Source: docs/reference/behaviour.md, c6, c7; KEP-5307 (container restart rules), KEP-5532
(RestartAllContainers), KEP-753 (sidecars).
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus

ACTION_RESTART = "Restart"
ACTION_RESTART_ALL = "RestartAllContainers"


def matching_rule(container: api.Container, exit_code: int) -> api.ContainerRestartRule | None:
    """The first of the container's restartPolicyRules that matches an exit code."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes")
        if not codes:
            continue
        listed = exit_code in (codes.get("values") or ())
        operator = codes.get("operator")
        if (operator == "In" and listed) or (operator == "NotIn" and not listed):
            return rule
    return None


def restart_after_exit(
    pod_policy: str, container: api.Container, exit_code: int
) -> tuple[bool, str]:
    """Whether an exit with this code is followed by a restart, regardless of the pod's fate.

    A container's own restartPolicy wins over the pod's; only then are its rules evaluated.
    """
    policy = container.get("restartPolicy")
    if policy:
        rule = matching_rule(container, exit_code)
        if rule is not None and rule.get("action") in (ACTION_RESTART, ACTION_RESTART_ALL):
            return True, f"it exited with {exit_code} and its rule is {rule.get('action')}"
        owner = "its restartPolicy"
    if policy not in ("Always", "OnFailure", "Never"):
        policy, owner = pod_policy, "the pod's restartPolicy"
    if policy == "Never":
        return False, f"it exited with {exit_code} and {owner} is Never"
    if policy == "OnFailure" and exit_code == 0:
        return False, f"it exited with 0 and {owner} is OnFailure"
    return True, f"it exited with {exit_code} and {owner} is {policy}"


def restart_allowed(pod: Pod, container: api.Container) -> bool:
    """Whether a container without an exit code (killed by a probe, state unknown) may restart.

    Only the policy counts: exit-code rules have nothing to match.
    """
    return (container.get("restartPolicy") or pod.restart_policy) != "Never"


def should_container_be_restarted(
    pod: Pod, container: api.Container, status: PodRuntimeStatus
) -> tuple[bool, str]:
    """Whether a container that is not running should be (re)started, and why or why not."""
    if pod.being_deleted:
        return False, "the pod is being deleted"
    record = status.newest(container["name"])
    if record is None:
        return True, "it has no container yet"
    if record.state is ContainerState.EXITED:
        return restart_after_exit(pod.restart_policy, container, record.exit_code)
    if record.state is ContainerState.RUNNING:
        return False, "it is running"
    return True, f"its container is in state {record.state}"


def init_container_failed(record: ContainerStatus) -> bool:
    """Whether the newest record of a regular init container counts as a failure."""
    return (
        record.reason == "OOMKilled"
        or record.state is ContainerState.UNKNOWN
        or (record.state is ContainerState.EXITED and record.exit_code != 0)
    )


def triggers_restart_all(container: api.Container, exit_code: int) -> bool:
    """Whether this exit triggers a restart of all containers of the pod."""
    rule = matching_rule(container, exit_code)
    return rule is not None and rule.get("action") == ACTION_RESTART_ALL


def could_restart_all(pod: Pod) -> bool:
    """Whether any container has a RestartAllContainers rule (only such pods show the condition)."""
    return any(map(causes_restart_all, (*pod.init_containers, *pod.containers)))


def causes_restart_all(container: api.Container) -> bool:
    """Whether the container has a RestartAllContainers rule."""
    rules = container.get("restartPolicyRules") or ()
    return any(rule.get("action") == ACTION_RESTART_ALL for rule in rules)


def restart_all_active(pod: Pod, status: PodRuntimeStatus) -> bool:
    """Whether all containers of the pod must be removed and started from scratch.

    Derived from the runtime alone: the record whose exit triggered the restart is removed last, so
    it is visible until nothing is left, even to an agent that restarted meanwhile. The pod's
    AllContainersRestarting condition follows from this; reading it back could restart everything
    again while the API still shows an older state.
    """
    return any(
        record is not None
        and record.state is ContainerState.EXITED
        and triggers_restart_all(container, record.exit_code)
        for container in (*pod.init_containers, *pod.containers)
        for record in (status.newest(container["name"]),)
    )
