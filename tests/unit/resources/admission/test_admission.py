"""Pods that a node rejects, with the kubelet's reason and message, and which are preempted."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.api.names import normalize
from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.resources.admission.checks import (
    Admitted,
    AskForNode,
    NodeState,
    NoVictims,
    Preempt,
    Refused,
    Rejection,
    Shortage,
    is_extended,
    may_be_preempted,
    no_fewer,
    pod_needs,
    preempted,
    safe_sysctls,
    selects,
    shortages,
    victims,
)
from kubeletpy.resources.admission.handlers import judge
from tests.kit.cgroups import container, fixed, pod

STATE = NodeState(kernel_version="6.1.0-13-amd64")
NODE: Any = {
    "metadata": {
        "name": "n1",
        "labels": {"disk": "ssd", "cores": "16", "kubernetes.io/os": "linux"},
    },
    "spec": {},
    "status": {
        "allocatable": {
            "cpu": "2",
            "memory": "1Gi",
            "ephemeral-storage": "10Gi",
            "pods": "3",
            "hugepages-2Mi": "4Mi",
            "example.com/gpu": "1",
        }
    },
}
CRITICAL: dict[str, Any] = {"priority": 2_000_000_000}


def node(**changes: Any) -> api.Node:
    merged = {key: {**NODE[key], **changes.get(key, {})} for key in NODE}
    return cast("api.Node", merged)


def requests(**amounts: str) -> dict[str, Any]:
    names = {name.replace("_", "-"): amount for name, amount in amounts.items()}
    return {"name": "c", "resources": {"requests": names}}


def ports(*desired: tuple[str, str, int]) -> dict[str, Any]:
    return {
        "name": "c",
        "ports": [
            {"hostIP": address, "protocol": protocol, "hostPort": number, "containerPort": 80}
            for address, protocol, number in desired
        ],
    }


def sysctl(*names: str, **spec: Any) -> Any:
    return pod(securityContext={"sysctls": [{"name": n, "value": "1"} for n in names]}, **spec)


OTHERS = [
    pod(fixed("1", "512Mi"), uid="o1"),
    pod(ports(("", "TCP", 80), ("10.0.0.1", "UDP", 53)), uid="o2"),
]
AFFINITY = Rejection(
    AdmissionReason("NodeAffinity"),
    "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
)
GPU = requests()
GPU["resources"]["requests"]["example.com/gpu"] = "2"
UNKNOWN = requests()
UNKNOWN["resources"]["requests"]["other.example/fpga"] = "2"
TAINTED = node(spec={"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]})
NO_SCHEDULE = node(spec={"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]})
STATIC: dict[str, Any] = {"annotations": {"kubernetes.io/config.source": "file"}}
NOT_TOLERATED = Rejection(
    AdmissionReason("TaintToleration"),
    "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
)


def out_of(resource: str, requested: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        AdmissionReason(f"OutOf{resource}"),
        f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, "
        f"capacity: {capacity}",
    )


REJECTED: list[tuple[str, Any, Any, Rejection]] = [
    (
        "no node",
        pod(),
        None,
        Rejection(AdmissionReason("InvalidNodeInfo"), "Kubelet cannot get node info."),
    ),
    (
        "label of another OS",
        pod(labels={"kubernetes.io/os": "windows"}),
        NODE,
        Rejection(
            AdmissionReason("PodOSSelectorNodeLabelDoesNotMatch"),
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ),
    ),
    (
        "another OS",
        pod(os={"name": "windows"}),
        NODE,
        Rejection(
            AdmissionReason("PodOSNotSupported"),
            "Failed to admit pod as the OS field doesn't match node OS",
        ),
    ),
    (
        "strict groups",
        pod(securityContext={"supplementalGroupsPolicy": "Strict"}),
        NODE,
        Rejection(
            AdmissionReason("SupplementalGroupsPolicyNotSupported"),
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        ),
    ),
    ("cpu", pod(requests(cpu="1500m")), NODE, out_of("cpu", 1500, 1000, 2000)),
    ("memory", pod(requests(memory="1Gi")), NODE, out_of("memory", 2**30, 2**29, 2**30)),
    (
        "storage",
        pod(requests(ephemeral_storage="11Gi")),
        NODE,
        out_of("ephemeral-storage", 11 * 2**30, 0, 10 * 2**30),
    ),
    (
        "hugepages",
        pod(requests(hugepages_2Mi="8Mi")),
        NODE,
        out_of("hugepages-2Mi", 2**23, 0, 2**22),
    ),
    ("gpu", pod(GPU), NODE, out_of("example.com/gpu", 2, 0, 1)),
    ("overhead", pod(overhead={"cpu": "1500m"}), NODE, out_of("cpu", 1500, 1000, 2000)),
    (
        "an init container",
        pod(container(), initContainers=[container("1500m")]),
        NODE,
        out_of("cpu", 1500, 1000, 2000),
    ),
    (
        "a sidecar",
        pod(container("600m"), initContainers=[container("600m", restartPolicy="Always")]),
        NODE,
        out_of("cpu", 1200, 1000, 2000),
    ),
    (
        "pod-level requests",
        pod(resources={"requests": {"cpu": "3"}}),
        NODE,
        out_of("cpu", 3000, 1000, 2000),
    ),
    (
        "another node",
        pod(nodeName="n2"),
        NODE,
        Rejection(
            AdmissionReason("NodeName"),
            "Predicate NodeName failed: node(s) didn't match the requested node name",
        ),
    ),
    (
        "a port",
        pod(ports(("", "TCP", 80))),
        NODE,
        Rejection(
            AdmissionReason("NodePorts"),
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod "
            "ports",
        ),
    ),
    ("a taint", pod(), TAINTED, NOT_TOLERATED),
    (
        "a toleration of another value",
        pod(tolerations=[{"key": "k", "value": "w", "effect": "NoExecute"}]),
        TAINTED,
        NOT_TOLERATED,
    ),
    ("affinity and a taint", pod(nodeSelector={"disk": "hdd"}), TAINTED, AFFINITY),
    (
        "resources come first",
        pod(requests(cpu="9"), nodeSelector={"disk": "hdd"}),
        NODE,
        out_of("cpu", 9000, 1000, 2000),
    ),
    (
        "a critical pod is not refused for resources but for the rest",
        pod(requests(cpu="9"), nodeSelector={"disk": "hdd"}, **CRITICAL),
        NODE,
        AFFINITY,
    ),
    (
        "an unknown sysctl",
        sysctl("net.ipv4.ip_forward"),
        NODE,
        Rejection(
            AdmissionReason("SysctlForbidden"),
            'forbidden sysctl: "net.ipv4.ip_forward" not allowlisted',
        ),
    ),
    (
        "a sysctl of the host's network",
        sysctl("net.ipv4.tcp_syncookies", hostNetwork=True),
        NODE,
        Rejection(
            AdmissionReason("SysctlForbidden"),
            'forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled',
        ),
    ),
    (
        "a sysctl of the host's IPC",
        sysctl("kernel/shm_rmid_forced", hostIPC=True),
        NODE,
        Rejection(
            AdmissionReason("SysctlForbidden"),
            'forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled',
        ),
    ),
]


@pytest.mark.parametrize(("what", "of", "on", "why"), REJECTED, ids=[row[0] for row in REJECTED])
def test_refused(what: str, of: Any, on: Any, why: Rejection) -> None:
    assert judge(of, OTHERS, on, STATE, node_is_newest=True) == Refused(why)


ADMITTED: list[tuple[str, Any, Any]] = [
    ("a plain pod", pod(), NODE),
    ("what is left", pod(requests(cpu="1", memory="512Mi", hugepages_2Mi="4Mi")), NODE),
    ("an extended resource the node does not have", pod(UNKNOWN), NODE),
    ("its own node", pod(nodeName="n1"), NODE),
    ("its OS", pod(os={"name": "linux"}, labels={"kubernetes.io/os": "linux"}), NODE),
    (
        "strict groups where the runtime has them",
        pod(securityContext={"supplementalGroupsPolicy": "Strict"}),
        node(status={"features": {"supplementalGroupsPolicy": True}, **NODE["status"]}),
    ),
    ("a static pod on a tainted node", pod(**STATIC), TAINTED),
    ("a taint that keeps only new pods away", pod(), NO_SCHEDULE),
    (
        "a toleration for a while",
        pod(tolerations=[{"operator": "Exists", "tolerationSeconds": 1}]),
        TAINTED,
    ),
    ("a toleration of the key", pod(tolerations=[{"key": "k", "operator": "Exists"}]), TAINTED),
    ("a toleration of the value", pod(tolerations=[{"key": "k", "value": "v"}]), TAINTED),
    ("the port of another protocol", pod(ports(("", "UDP", 80))), NODE),
    ("the port of another address", pod(ports(("10.0.0.2", "UDP", 53))), NODE),
    ("safe sysctls", sysctl("net.ipv4.tcp_rmem", "kernel/shm_rmid_forced"), NODE),
]


@pytest.mark.parametrize(("what", "of", "on"), ADMITTED, ids=[row[0] for row in ADMITTED])
def test_admitted(what: str, of: Any, on: Any) -> None:
    assert judge(of, OTHERS, on, STATE) == Admitted()


def test_the_number_of_pods() -> None:
    full = [*OTHERS, pod(uid="o3")]
    assert judge(pod(), full, NODE, STATE) == Refused(out_of("pods", 1, 3, 3))
    both = judge(pod(requests(cpu="9")), full, NODE, STATE)
    assert both == Refused(out_of("pods", 1, 3, 3))


def test_an_affinity_mismatch_alone_requests_a_newer_node_object() -> None:
    wants = pod(nodeSelector={"disk": "hdd"})
    assert judge(wants, [], NODE, STATE) == AskForNode(AFFINITY)
    assert judge(wants, [], NODE, STATE, node_is_newest=True) == Refused(AFFINITY)
    assert judge(wants, [], TAINTED, STATE) == Refused(AFFINITY)
    large = pod(requests(cpu="9"), nodeSelector={"disk": "hdd"})
    assert judge(large, [], NODE, STATE) == Refused(out_of("cpu", 9000, 0, 2000))
    critical = pod(nodeSelector={"disk": "hdd"}, **CRITICAL)
    assert judge(critical, [], TAINTED, STATE) == Refused(AFFINITY)


@pytest.mark.parametrize(
    ("desired", "taken", "refused"),
    [
        (("", "TCP", 80), ("", "TCP", 80), True),
        (("", "TCP", 80), ("1.1.1.1", "TCP", 80), True),
        (("1.1.1.1", "TCP", 80), ("0.0.0.0", "TCP", 80), True),
        (("1.1.1.1", "TCP", 80), ("1.1.1.1", "TCP", 80), True),
        (("1.1.1.1", "TCP", 80), ("1.1.1.2", "TCP", 80), False),
        (("", "TCP", 80), ("", "SCTP", 80), False),
        (("", "TCP", 80), ("", "TCP", 81), False),
        (("", "TCP", 1), ("", "TCP", 1), True),
        (("", "TCP", 0), ("", "TCP", 0), False),
    ],
)
def test_host_ports(desired: Any, taken: Any, refused: bool) -> None:
    sidecar = {**ports(taken), "restartPolicy": "Always"}
    for other in (pod(ports(taken)), pod(initContainers=[sidecar])):
        verdict = judge(pod(ports(desired)), [other], NODE, STATE)
        assert isinstance(verdict, Refused) is refused
    init = pod(initContainers=[ports(taken)])
    assert judge(pod(ports(desired)), [init], NODE, STATE) == Admitted()


def required(*terms: dict[str, Any]) -> Any:
    needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return pod(affinity={"nodeAffinity": needed})


def term(key: str, operator: str, *values: str, field: bool = False) -> dict[str, Any]:
    name = "matchFields" if field else "matchExpressions"
    return {name: [{"key": key, "operator": operator, "values": list(values)}]}


SELECTED: list[tuple[Any, bool]] = [
    (pod(), True),
    (pod(nodeSelector={"disk": "ssd"}), True),
    (pod(nodeSelector={"disk": "ssd", "x": "y"}), False),
    (pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}), True),
    (required(), False),
    (required({}), False),
    (required({}, term("disk", "Exists")), True),
    (required(term("disk", "In", "hdd", "ssd")), True),
    (required(term("disk", "In", "hdd")), False),
    (required(term("none", "In", "hdd")), False),
    (required(term("disk", "NotIn", "hdd")), True),
    (required(term("disk", "NotIn", "ssd")), False),
    (required(term("none", "NotIn", "ssd")), True),
    (required(term("none", "Exists")), False),
    (required(term("none", "DoesNotExist")), True),
    (required(term("disk", "DoesNotExist")), False),
    (required(term("cores", "Gt", "15")), True),
    (required(term("cores", "Gt", "16")), False),
    (required(term("cores", "Lt", "17")), True),
    (required(term("disk", "Lt", "17")), False),
    (required(term("cores", "Gt", "many")), False),
    (required(term("cores", "Gt", "1", "2")), False),
    (required(term("cores", "Like", "1")), False),
    (required(term("disk", "In", "hdd"), term("disk", "In", "ssd")), True),
    (required({**term("disk", "Exists"), **term("metadata.name", "In", "n1", field=True)}), True),
    (required({**term("none", "Exists"), **term("metadata.name", "In", "n1", field=True)}), False),
    (required(term("metadata.name", "In", "n2", field=True)), False),
    (required(term("metadata.name", "NotIn", "n2", field=True)), True),
    (required(term("metadata.uid", "In", "n1", field=True)), False),
    (required(term("metadata.name", "Exists", field=True)), False),
]


@pytest.mark.parametrize(("of", "chosen"), SELECTED)
def test_node_selection(of: Any, chosen: bool) -> None:
    assert selects(of, NODE) is chosen


def test_a_selector_and_an_affinity_must_both_fit() -> None:
    both = required(term("disk", "Exists"))
    both.spec["nodeSelector"] = {"x": "y"}
    assert not selects(both, NODE)


@pytest.mark.parametrize(
    ("unsafe", "name", "allowed"),
    [
        (["kernel.msg*"], "kernel.msgmax", True),
        (["net.core.somaxconn"], "net.core.somaxconn", True),
        (["net.core.somaxconn"], "net/core/somaxconn", True),
        (["net.core.somaxconn"], "net.core.somaxconn2", False),
        (["net.*"], "net.ipv6.conf.all.forwarding", True),
        (["fs.mqueue.*"], "fs.mqueue.msg_max", True),
        (["*"], "kernel.core_pattern", False),
        (["vm.*"], "vm.swappiness", False),
        (["kernel.domainname"], "kernel.domainname", True),
        (["user.*"], "user.max_user_namespaces", False),
    ],
)
def test_unsafe_sysctls(unsafe: list[str], name: str, allowed: bool) -> None:
    state = NodeState(allowed_unsafe_sysctls=unsafe)
    assert (judge(sysctl(name), [], NODE, state) == Admitted()) is allowed


def test_safe_sysctls_by_kernel() -> None:
    assert len(list(safe_sysctls("6.1.0"))) == 14
    assert "net.ipv4.tcp_rmem" not in list(safe_sysctls("4.14.9"))
    assert "net.ipv4.tcp_fin_timeout" in list(safe_sysctls("4.14.9"))
    assert len(list(safe_sysctls(""))) == 5
    assert normalize("net/ipv4/conf/eth0.1/mtu") == "net.ipv4.conf.eth0/1.mtu"


PRESSURE: list[tuple[list[str], Any, bool]] = [
    ([], pod(), True),
    (["MemoryPressure"], pod(), False),
    (["MemoryPressure"], pod(container("1m")), True),
    (
        ["MemoryPressure"],
        pod(tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]),
        True,
    ),
    (["DiskPressure"], pod(container("1m")), False),
    (["MemoryPressure", "DiskPressure"], pod(container("1m")), False),
    (["DiskPressure"], pod(**CRITICAL), True),
    (["DiskPressure", "PIDPressure"], pod(status={"startTime": "2026-01-01T00:00:00Z"}), True),
]


@pytest.mark.parametrize(("pressures", "of", "admitted"), PRESSURE)
def test_pressure(pressures: list[str], of: Any, admitted: bool) -> None:
    verdict = judge(of, [], NODE, NodeState(pressures=pressures))
    if admitted:
        assert verdict == Admitted()
    else:
        message = f"The node had condition: [{' '.join(pressures)}]. "
        cause = Cause(CauseKind.NODE_PRESSURE)
        assert verdict == Refused(Rejection(AdmissionReason("Evicted"), message, cause))


def test_a_pod_that_the_runtime_has_is_not_refused_for_pressure() -> None:
    """The agent that admitted the pod may have exited before the API stored its startTime."""
    state = NodeState(pressures=["DiskPressure"], in_runtime=[pod().uid])
    assert judge(pod(), [], NODE, state) == Admitted()
    other = NodeState(pressures=["DiskPressure"], in_runtime=["another"])
    assert isinstance(judge(pod(), [], NODE, other), Refused)


ALL_AGAIN: dict[str, Any] = {
    "name": "c",
    "restartPolicyRules": [{"action": "RestartAllContainers"}],
}
RESTART_ALL = "RestartAllContainersOnContainerExits"

LATE: list[tuple[dict[str, Any], Any, str]] = [
    ({"apparmor": False}, pod(), ""),
    (
        {"apparmor": False},
        pod(securityContext={"appArmorProfile": {"type": "RuntimeDefault"}}),
        "AppArmor",
    ),
    ({"apparmor": False}, pod(securityContext={"appArmorProfile": {"type": "Unconfined"}}), ""),
    (
        {"apparmor": False},
        pod(annotations={"container.apparmor.security.beta.kubernetes.io/c": "runtime/default"}),
        "AppArmor",
    ),
    (
        {"apparmor": False},
        pod(
            securityContext={"appArmorProfile": {"type": "RuntimeDefault"}},
            status={"phase": "Running"},
        ),
        "",
    ),
    ({}, pod(securityContext={"appArmorProfile": {"type": "RuntimeDefault"}}), ""),
    (
        {"apparmor": False},
        pod({"name": "c", "securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}),
        "AppArmor",
    ),
    (
        {"pod_level_resources": False},
        pod(resources={"requests": {"cpu": "1"}}),
        "PodLevelResourcesNotSupported",
    ),
    ({"pod_level_resources": False}, pod(), ""),
    ({}, pod(resources={"requests": {"cpu": "1"}}), ""),
    ({"declared_features": ()}, pod(), ""),
    ({"declared_features": ()}, pod(ALL_AGAIN), "PodFeatureUnsupported"),
    ({"declared_features": (RESTART_ALL,)}, pod(ALL_AGAIN), ""),
    ({}, pod(ALL_AGAIN), ""),
    ({"declared_features": ()}, pod(hostNetwork=True), ""),
    ({"declared_features": ()}, pod(hostUsers=False), ""),
    (
        {"declared_features": (RESTART_ALL,)},
        pod(hostNetwork=True, hostUsers=False),
        "PodFeatureUnsupported",
    ),
]


@pytest.mark.parametrize(("state", "of", "reason"), LATE)
def test_checks_after_resources(state: dict[str, Any], of: Any, reason: str) -> None:
    verdict = judge(of, [], NODE, NodeState(**state))
    if not reason:
        assert verdict == Admitted()
    else:
        assert isinstance(verdict, Refused)
        assert verdict.rejection.reason == reason


def test_a_critical_pod_preempts_others() -> None:
    for critical in (pod(requests(cpu="1500m"), **CRITICAL), pod(requests(cpu="1500m"), **STATIC)):
        verdict = judge(critical, OTHERS, NODE, STATE)
        assert verdict == Preempt((Shortage("cpu", 1500, 1000, 2000),))


def test_an_invalid_quantity_is_an_error() -> None:
    with pytest.raises(ValueError, match="many"):
        judge(pod(requests(cpu="many")), [], NODE, STATE)


def test_extended_resources() -> None:
    assert is_extended("example.com/gpu")
    for name in ("cpu", "hugepages-2Mi", "kubernetes.io/x", "node.kubernetes.io/x"):
        assert not is_extended(name)
    assert shortages(pod(UNKNOWN), [], {"pods": "1"}) == []
    one = pod(requests(**{"example.com/gpu": "1"}))
    node = {"pods": "2", "example.com/gpu": "1"}
    assert shortages(one, [], node) == []
    assert shortages(one, [one], node) == [Shortage("example.com/gpu", 1, 1, 1)]
    assert pod_needs(pod(requests(cpu="1500m", memory="1Ki"))) == {"cpu": 1500, "memory": 1024}


@pytest.mark.parametrize(
    ("name", "containers", "found"),
    [
        ("deviceclass.resource.kubernetes.io/gpu", ["c"], []),
        ("deviceclass.resource.kubernetes.io/gpu", [], [2]),
        ("deviceclass.resource.kubernetes.io/gpu", ["other"], [2]),
        ("example.com/gpu", ["c"], []),
        ("example.com/gpu", ["other"], [2]),
    ],
)
def test_resources_of_a_claim_are_not_required_of_the_node(
    name: str, containers: list[str], found: list[int]
) -> None:
    one = pod(requests(**{name: "2"}))
    mappings = [{"containerName": each, "resourceName": name} for each in containers]
    one.object["status"] = cast(
        "api.PodStatus", {"extendedResourceClaimStatus": {"requestMappings": mappings}}
    )
    node = {"pods": "2", "example.com/gpu": "1"}
    assert [each.requested for each in shortages(one, [], node)] == found


@pytest.mark.parametrize(
    ("desired", "used", "found"),
    [
        ({"cpu": "1"}, {}, [Shortage("cpu", 1000, 0, 0)]),
        ({"cpu": "0"}, {"cpu": "3"}, []),
        ({"kubernetes.io/x": "2"}, {}, [Shortage("kubernetes.io/x", 2, 0, 0)]),
        ({"unheard-of": "2"}, {}, []),
    ],
)
def test_shortages_of_resources_that_count_pods_only(
    desired: dict[str, str], used: dict[str, str], found: list[Shortage]
) -> None:
    assert shortages(pod(requests(**desired)), [pod(requests(**used))], {"pods": "2"}) == found


def test_missing_amount_of_a_shortage() -> None:
    assert Shortage("cpu", 1500, 1000, 2000).missing == 500
    assert Shortage("cpu", 1500, 0, 0).missing == 1500


def test_amounts_in_use_raise_the_capacity() -> None:
    has = {"cpu": "2", "example.com/gpu": "1"}
    for held in ({}, {"example.com/gpu": 1}, {"cpu": 1, "example.com/gpu": 0}):
        assert no_fewer(has, held) is has
    raised = no_fewer(has, {"cpu": 1, "example.com/gpu": 2, "example.com/nic": 1})
    assert raised == {"cpu": "2", "example.com/gpu": "2", "example.com/nic": "1"}


# -- preemption -----------------------------------------------------------------------------------


def small(uid: str, cpu: str = "", **spec: Any) -> Any:
    return pod(container(cpu), uid=uid, **spec)


def chosen(others: list[Any], by: Any = None, **missing: int) -> list[str]:
    lacking = [Shortage(name, amount, 0, 0) for name, amount in missing.items()]
    found = victims(by or pod(**CRITICAL), others, lacking)
    return [victim.uid for victim in found]


VICTIMS: list[tuple[str, list[Any], dict[str, int], list[str]]] = [
    ("one that suffices alone", [small("a", "1"), small("b", "2")], {"cpu": 1500}, ["b"]),
    (
        "the one that leaves least of two resources together, by squares",
        [
            *(pod(fixed("350m", "35Mi"), uid=uid) for uid in "bcd"),
            pod(fixed("100m", "100Mi"), uid="a"),
        ],
        {"cpu": 1000, "memory": 100 << 20},
        ["a", "b", "c", "d"],
    ),
    ("the one that requests least", [small("a", "2"), small("b", "1")], {"cpu": 500}, ["b"]),
    ("as few as will do", [small(u, "1") for u in "abc"], {"cpu": 1500}, ["a", "b"]),
    (
        "lesser classes first",
        [pod(fixed("1", "1Mi"), uid="g"), small("b", "1")],
        {"cpu": 500},
        ["b"],
    ),
    (
        "a better class only for what the lesser can not give",
        [pod(fixed("2", "1Mi"), uid="g"), small("b", "1"), small("be")],
        {"cpu": 2500},
        ["b", "g"],
    ),
    ("the number of pods", [small("b", "1"), small("be")], {"pods": 1}, ["be"]),
    ("several pods", [small(u, "1") for u in "abc"], {"pods": 2}, ["a", "b"]),
    ("who requests nothing frees nothing", [small("be"), small("b", "1")], {"cpu": 1000}, ["b"]),
    ("nor the least", [small("be"), small("b", "1")], {"cpu": 1}, ["b"]),
    (
        "first the one that leaves less of each than one that leaves much of one",
        [
            pod(requests(cpu="1", memory="100"), uid="a"),
            pod(requests(cpu="500m", memory="500"), uid="b"),
            pod(requests(cpu="500m", memory="500"), uid="c"),
        ],
        {"cpu": 1000, "memory": 1000},
        ["b", "c"],
    ),
    (
        "by what is left of each resource's own amount",
        [pod(requests(memory="60000"), uid="q"), pod(requests(cpu="1", memory="40000"), uid="p")],
        {"cpu": 1000, "memory": 100_000},
        ["p", "q"],
    ),
    (
        "more than is missing is as good as just that",
        [pod(requests(cpu="500m", memory="1"), uid="b"), small("a", "600m")],
        {"cpu": 500},
        ["a"],
    ),
    (
        "nearly all is not all",
        [
            pod(requests(cpu="499m", memory="1000"), uid="v"),
            pod(requests(cpu="500m", memory="1000"), uid="u"),
        ],
        {"cpu": 500, "memory": 1000},
        ["u"],
    ),
    (
        "of equals, one without memory is as one with none of it",
        [small("b", "600m"), pod(requests(cpu="500m", memory="0"), uid="a")],
        {"cpu": 500},
        ["a"],
    ),
    (
        "and less than one with a byte",
        [pod(requests(cpu="500m", memory="1"), uid="d"), small("c", "600m")],
        {"cpu": 500},
        ["c"],
    ),
    (
        "one without cpu is as one with none of it",
        [pod(requests(cpu="0", memory="100"), uid="f"), pod(requests(memory="100"), uid="e")],
        {"memory": 100},
        ["f"],
    ),
    (
        "and less than one with a thousandth",
        [pod(requests(cpu="1m", memory="100"), uid="g"), pod(requests(memory="100"), uid="e")],
        {"memory": 100},
        ["e"],
    ),
    (
        "one that is also critical stays",
        [small("b", "1"), small("c", "1", **CRITICAL)],
        {"cpu": 500},
        ["b"],
    ),
    (
        "two resources count alike",
        [
            pod(requests(cpu="2", memory="1"), uid="x"),
            pod(requests(cpu="1", memory="100"), uid="y"),
        ],
        {"cpu": 1000, "memory": 100},
        ["y"],
    ),
]


@pytest.mark.parametrize(
    ("what", "others", "missing", "uids"), VICTIMS, ids=[row[0] for row in VICTIMS]
)
def test_victims(what: str, others: list[Any], missing: dict[str, int], uids: list[str]) -> None:
    assert chosen(others, **missing) == uids


def test_no_victims() -> None:
    with pytest.raises(NoVictims, match=r"\[\(res: cpu, q: 500\), \]"):
        chosen([small("a", "1"), small("c", "9", **CRITICAL)], cpu=1500)
    higher = pod(priority=2_000_000_001)
    assert chosen([small("c", "9", **CRITICAL)], by=higher, cpu=1500) == ["c"]


@pytest.mark.parametrize(
    ("theirs", "ours", "gives_way"),
    [
        ({}, {}, False),
        ({}, CRITICAL, True),
        (CRITICAL, CRITICAL, False),
        (CRITICAL, {}, False),
        ({"priority": 1}, {"priority": 2}, True),
        ({"priority": 2}, {"priority": 2}, False),
        ({"priority": 2}, {}, False),
        ({}, {"priority": 2}, False),
    ],
)
def test_which_pods_yield_to_which(
    theirs: dict[str, Any], ours: dict[str, Any], gives_way: bool
) -> None:
    assert may_be_preempted(pod(**theirs), pod(**ours)) is gives_way


def test_the_status_of_a_victim_contains_the_reason() -> None:
    old: Any = {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "False"}]}
    status = preempted(old, 0.0, 3)
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "Preempting",
        "Preempted in order to admit critical pod",
    )
    assert status["conditions"] == [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "message": "Pod was preempted by Kubelet to accommodate a critical pod.",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
            "observedGeneration": 3,
        }
    ]
    assert old["phase"] == "Running"
    assert preempted(old, 0.0) == preempted(old, 0.0, 0)
