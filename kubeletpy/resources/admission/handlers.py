"""The kubelet's admission handlers, in its order, for one pod and for all pods of a node. Pure.

The first rejection counts. The handlers never reject a pod for something that another part of the
cluster is responsible for, such as scheduling preferences and taints that only repel new pods.
Source: docs/reference/behaviour.md, l.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import QoSClass, is_critical, qos_class
from kubeletpy.resources.admission import checks
from kubeletpy.resources.admission.declared_features import lacking

OS = "linux"
OS_LABEL = "kubernetes.io/os"
AFFINITY_MISMATCH = checks.predicate(
    AdmissionReason.NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector"
)
MEMORY_PRESSURE_TAINT = {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}
LEGACY_APPARMOR = "container.apparmor.security.beta.kubernetes.io/"


def judge(
    pod: Pod,
    others: Sequence[Pod],
    node: api.Node | None,
    state: checks.NodeState,
    *,
    node_is_newest: bool = False,
    needs_of: checks.NeedsOf = checks.pod_needs,
    held: Mapping[str, int] = checks.NOTHING,
) -> checks.Verdict:
    """Judge a pod beside the other pods that use the node.

    ``node`` is its object as last seen in the API, None if there is none; ``node_is_newest``:
    it was fetched for this check. ``held``: how many devices are in use, if the pod has some
    of them; for this pod the node has at least as many. Raises ValueError for an invalid quantity.
    """
    if rejection := before_placement(pod, state) or _basics(pod, node):
        return checks.Refused(rejection)
    assert node is not None, "a node that is not known was refused"
    allocatable = checks.no_fewer((node.get("status") or {}).get("allocatable") or {}, held)
    shortages = checks.shortages(pod, others, allocatable, needs_of)
    mismatches = _mismatches(pod, others, node)
    only_affinity = not shortages and mismatches == [AFFINITY_MISMATCH]
    if only_affinity and not node_is_newest:
        return checks.AskForNode(AFFINITY_MISMATCH)
    if is_critical(pod):
        if mismatches:
            return checks.Refused(mismatches[0])
    elif shortages or mismatches:
        return checks.Refused(shortages[0].rejection() if shortages else mismatches[0])
    for late in (_apparmor, _features, _declared):
        if rejection := late(pod, state):
            return checks.Refused(rejection)
    return checks.Preempt(tuple(shortages)) if shortages else checks.Admitted()


def before_placement(pod: Pod, state: checks.NodeState) -> checks.Rejection | None:
    """The checks that come before a pod is assigned any of the machine's resources."""
    return (
        _pressure(pod, state)
        or checks.forbidden_sysctl(pod, state.allowed_unsafe_sysctls, state.kernel_version)
        or state.lacks_rights(pod)
    )


def _pressure(pod: Pod, state: checks.NodeState) -> checks.Rejection | None:
    """Rejects new pods under pressure; one that this node admitted before is left to eviction.

    The API may not show that yet: the agent may have died before it wrote the status.
    """
    conditions = list(state.pressures)
    if not conditions or is_critical(pod):
        return None
    if pod.status.get("startTime") or pod.uid in state.in_runtime:
        return None
    if conditions == ["MemoryPressure"] and (
        qos_class(pod) is not QoSClass.BEST_EFFORT or checks.tolerates(pod, MEMORY_PRESSURE_TAINT)
    ):
        return None
    return checks.Rejection(
        AdmissionReason.EVICTED,
        f"The node had condition: [{' '.join(conditions)}]. ",
        Cause(CauseKind.NODE_PRESSURE),
    )


def _basics(pod: Pod, node: api.Node | None) -> checks.Rejection | None:
    """The checks that don't depend on other pods."""
    if node is None:
        return checks.Rejection(AdmissionReason.INVALID_NODE_INFO, "Kubelet cannot get node info.")
    if pod.labels.get(OS_LABEL, OS) != OS:
        return checks.Rejection(
            AdmissionReason.POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH,
            f"Failed to admit pod as the `{OS_LABEL}` label doesn't match node label",
        )
    desired_os = pod.spec.get("os")
    if desired_os and desired_os.get("name") != OS:
        return checks.Rejection(
            AdmissionReason.POD_OS_NOT_SUPPORTED,
            "Failed to admit pod as the OS field doesn't match node OS",
        )
    context = pod.spec.get("securityContext") or {}
    features = (node.get("status") or {}).get("features") or {}
    strict = context.get("supplementalGroupsPolicy") == "Strict"
    if strict and not features.get("supplementalGroupsPolicy"):
        return checks.Rejection(
            AdmissionReason.SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED,
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        )
    return None


def _mismatches(pod: Pod, others: Sequence[Pod], node: api.Node) -> list[checks.Rejection]:
    found = []
    if not checks.selects(pod, node):
        found.append(AFFINITY_MISMATCH)
    name = pod.spec.get("nodeName")
    if name and name != node["metadata"].get("name"):
        text = "node(s) didn't match the requested node name"
        found.append(checks.predicate(AdmissionReason.NODE_NAME, text))
    if checks.clash(pod, others):
        text = "node(s) didn't have free ports for the requested pod ports"
        found.append(checks.predicate(AdmissionReason.NODE_PORTS, text))
    taints = (node.get("spec") or {}).get("taints") or ()
    if not pod.is_static and checks.untolerated(pod, taints, "NoExecute"):
        text = "node(s) had taints that the pod didn't tolerate"
        found.append(checks.predicate(AdmissionReason.TAINT_TOLERATION, text))
    return found


def _apparmor(pod: Pod, state: checks.NodeState) -> checks.Rejection | None:
    if state.apparmor or pod.phase not in ("", "Pending") or not _requests_apparmor(pod):
        return None
    message = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
    return checks.Rejection(AdmissionReason.APPARMOR, message)


def _requests_apparmor(pod: Pod) -> bool:
    of_pod = (pod.spec.get("securityContext") or {}).get("appArmorProfile")
    for _, container in pod.all_containers():
        own = (container.get("securityContext") or {}).get("appArmorProfile") or of_pod
        kind = (own or {}).get("type")
        if kind is None:
            legacy = pod.annotations.get(LEGACY_APPARMOR + container["name"])
            kind = "Unconfined" if legacy in (None, "", "unconfined") else legacy
        if kind != "Unconfined":
            return True
    return False


def _features(pod: Pod, state: checks.NodeState) -> checks.Rejection | None:
    if state.pod_level_resources or not pod.spec.get("resources"):
        return None
    return checks.Rejection(
        AdmissionReason.POD_LEVEL_RESOURCES_NOT_SUPPORTED,
        "PodLevelResources feature gate is disabled",
    )


def _declared(pod: Pod, state: checks.NodeState) -> checks.Rejection | None:
    if state.declared_features is None:
        return None
    missing = lacking(pod, state.declared_features, state.version)
    if not missing:
        return None
    return checks.Rejection(AdmissionReason.POD_FEATURE_UNSUPPORTED, missing_features(missing))


def missing_features(names: Sequence[str]) -> str:
    """The message about features that the node lacks."""
    return f"Pod requires node features that are not available: {', '.join(names)}"


# The admission of all pods of a node together, as at the start of its agent.


class Refusal(Struct, frozen=True):
    """Why a pod would end: the reason that its status would get, and a message."""

    reason: str
    message: str

    @property
    def text(self) -> str:
        """The reason and the message, as one line."""
        return f"{self.reason}: {self.message}"


def seniority(pod: Pod) -> tuple[bool, str]:
    """The sort key by which pods are admitted: accepted ones first, and of these the oldest."""
    return not pod.status.get("startTime"), pod.metadata.get("creationTimestamp") or ""


def judge_any(
    pod: Pod,
    others: Sequence[Pod],
    node: api.Node | None,
    state: checks.NodeState,
    *,
    node_is_newest: bool,
    needs_of: checks.NeedsOf,
    held: Mapping[str, int],
) -> checks.Verdict:
    """Judge a pod, and refuse it for an invalid quantity, which ``judge`` raises.

    ``needs_of`` is for the others; the pod itself takes what it requests.
    """
    try:
        return judge(
            pod,
            others,
            node,
            state,
            node_is_newest=node_is_newest,
            needs_of=lambda each: checks.pod_needs(pod) if each is pod else needs_of(each),
            held=held,
        )
    except ValueError as error:
        return checks.Refused(checks.Rejection(checks.UNEXPECTED, f"{error}, which is unexpected."))


def refused_at_start(
    pods: Iterable[Pod],
    node: api.Node | None,
    state: checks.NodeState,
    *,
    held: Callable[[str], Mapping[str, int]] = lambda uid: checks.NOTHING,
    needs_of: checks.NeedsOf = checks.needs_in_force,
    place: Callable[[Pod], checks.Rejection | None] = lambda pod: None,
) -> dict[str, Refusal]:
    """Return the pods that would not be admitted at the agent's next start, by uid.

    A start admits each pod anew, whether or not it runs, in the order of :func:`seniority`. A
    running pod that no longer fits ends, and so does a preempted one: its node's labels or taints
    have changed, or the node offers less. The kubelet does the same.

    Args:
        pods: all of the node without mirrors, as they are allocated. Static pods come first: their
            manifests are read before the API answers.
        node: the Node object, with the amounts that the agent would write.
        held: how many devices are in use, by resource, if the pod with this uid has some.
        needs_of: the resources that a pod on the node takes.
        place: assigns a pod its position on the machine, in this order, or refuses it.
    """
    admitted: list[Pod] = []
    waiting: list[Pod] = []
    refused: dict[str, Refusal] = {}

    def verdict(pod: Pod, *, last: bool) -> checks.Verdict:
        return judge_any(
            pod, admitted, node, state, node_is_newest=last, needs_of=needs_of, held=held(pod.uid)
        )

    def settle(pod: Pod, found: checks.Verdict) -> None:
        match found:
            case checks.Admitted():
                admitted.append(pod)
            case checks.Refused(rejection) | checks.AskForNode(rejection):
                refused[pod.uid] = Refusal(rejection.reason, rejection.message)
            case checks.Preempt(shortages):
                chosen = checks.victims_or_refusal(pod, admitted, shortages, needs_of)
                if isinstance(chosen, checks.Rejection):
                    refused[pod.uid] = Refusal(chosen.reason, chosen.message)
                    return
                for victim in chosen:
                    admitted.remove(victim)
                    refused[victim.uid] = Refusal(
                        checks.PREEMPTED_REASON, f"{checks.PREEMPTED_MESSAGE} {pod.key}"
                    )
                admitted.append(pod)

    for pod in sorted(pods, key=lambda each: (not each.is_static, *seniority(each))):
        if pod.is_terminal_in_api:
            continue
        rejection = before_placement(pod, state) or place(pod)
        found = checks.Refused(rejection) if rejection else verdict(pod, last=False)
        if isinstance(found, checks.Preempt | checks.AskForNode):
            waiting.append(pod)  # it is settled once all others are known
        else:
            settle(pod, found)
    for pod in waiting:
        settle(pod, verdict(pod, last=True))
    return refused
