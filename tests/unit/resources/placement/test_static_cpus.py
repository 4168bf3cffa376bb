"""cpuManagerPolicy static: containers with exclusive CPUs, the CPUs they get, and refusals."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.resources.placement.model import (
    NOT_PREFERRED,
    AllocationRefused,
    Cpu,
    CpuTopology,
    Hint,
    PodLevelPlacement,
    by_numa,
    by_socket,
    format_ids,
    parse_ids,
)
from kubeletpy.resources.placement.options import (
    CpuOptions,
    OptionError,
    check_sockets,
    read_cpu_options,
    reserve_cpus,
)
from kubeletpy.resources.placement.pick_cpus import PickOptions
from kubeletpy.resources.placement.state import CpuState
from kubeletpy.resources.placement.static_cpus import (
    StaticCpus,
    exclusive_cpus,
    exclusive_cpus_of_pod,
)
from tests.kit.machines import machine, one_node_of_two_sockets, pod_of, sized

ALWAYS = {"restartPolicy": "Always"}
SMT = machine(sockets=2, cores=4, threads=2)
"""16 CPUs: NUMA node 0 has 0-3 and 8-11."""


WHOLE = {"cpu": "2", "memory": "1Mi"}


def policy(topology: CpuTopology = SMT, reserved: str = "0", **options: bool) -> StaticCpus:
    return StaticCpus(topology, parse_ids(reserved), CpuOptions(**options))


def held(of: StaticCpus, entries: dict[str, dict[str, str]]) -> CpuState:
    state = of.initial()
    for uid, of_pod in entries.items():
        for name, cpus in of_pod.items():
            state = state.with_container(uid, name, parse_ids(cpus))
    return state


def allocate(of: StaticCpus, state: CpuState, pod: Pod, mask: int | None = None) -> CpuState:
    for container in (*pod.init_containers, *pod.containers):
        state = of.allocate(state, pod, container, Hint(mask, True) if mask else NOT_PREFERRED)
    return state


def reported(state: CpuState, uid: str = "uid-1") -> dict[str, str]:
    return {name: format_ids(cpus) for name, cpus in state.entries.get(uid, {}).items()}


@pytest.mark.parametrize(
    ("pod", "cpus"),
    [
        (pod_of(sized("c", "2")), 2),
        (pod_of(sized("c", "2000m")), 2),
        (pod_of(sized("c", "1500m")), 0),
        (pod_of(sized("c", "2", None)), 0),  # no limit of memory: Burstable
        (pod_of({"name": "c", "image": "i"}), 0),
        (pod_of(sized("c", "2"), resources={"requests": WHOLE, "limits": WHOLE}), 0),
        (pod_of(sized("c", "2"), resources={"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}), 0),
    ],
)
def test_containers_with_exclusive_cpus(pod: Pod, cpus: int) -> None:
    assert exclusive_cpus(pod, pod.containers[0]) == cpus


@pytest.mark.parametrize(
    ("containers", "init", "cpus"),
    [
        (["1", "2"], [], 3),
        (["1"], [("3", {})], 3),
        (["3"], [("1", {}), ("2", {})], 3),
        (["1"], [("2", ALWAYS), ("3", {})], 5),
        (["4"], [("2", ALWAYS), ("3", {})], 6),
        (["4"], [("3", {}), ("2", ALWAYS)], 6),
    ],
)
def test_the_most_exclusive_cpus_of_a_pod_at_once(
    containers: list[str], init: list[tuple[str, Any]], cpus: int
) -> None:
    pod = pod_of(
        *(sized(f"c{i}", cpu) for i, cpu in enumerate(containers)),
        initContainers=[sized(f"i{i}", cpu, **more) for i, (cpu, more) in enumerate(init)],
    )
    assert exclusive_cpus_of_pod(pod) == cpus


def test_a_container_keeps_what_it_has() -> None:
    of = policy()
    pod = pod_of(sized("c", "2"))
    state = held(of, {"uid-1": {"c": "5,7"}})
    assert allocate(of, state, pod) is state
    assert allocate(of, state, pod_of(sized("d", "500m"))) is state, "none of its own"


def test_cpus_that_init_containers_leave_for_reuse() -> None:
    of = policy()
    init = [sized("i", "1"), sized("none", "500m"), sized("j", "1"), sized("s", "1", **ALWAYS)]
    pod = pod_of(sized("c", "3"), initContainers=init)
    state = held(of, {"uid-1": {"i": "1", "j": "2", "s": "3", "c": "4"}})
    found = [of.reusable(state, pod, each) for each in (*pod.init_containers, *pod.containers)]
    assert found == [frozenset(), {1}, {1}, {1, 2}, {1, 2}]


def test_in_one_cache() -> None:
    of = policy(machine(cores=4, caches=2))
    requested = ("0-1", "3", "1-2", "")
    assert [of.in_one_cache(parse_ids(each)) for each in requested] == [True, True, False, False]


def test_containers_after_an_init_container_have_its_cpus() -> None:
    of = policy()
    init = [sized("a", "4"), sized("side", "2", **ALWAYS), sized("b", "2")]
    pod = pod_of(sized("c", "4"), sized("d", "2"), initContainers=init)
    cpus = allocate(of, of.initial(), pod).entries["uid-1"]
    assert not cpus["side"] & (cpus["b"] | cpus["c"] | cpus["d"])
    assert not cpus["c"] & cpus["d"]
    assert cpus["a"] <= cpus["side"] | cpus["c"] | cpus["d"], "used again before free ones are"


def test_near_to_the_hint_first() -> None:
    of = policy()
    assert reported(allocate(of, of.initial(), pod_of(sized("c", "2")), 0b10)) == {"c": "4,12"}
    assert reported(allocate(of, of.initial(), pod_of(sized("c", "10")), 0b10)) == {
        "c": "1,4-7,9,12-15"
    }


@pytest.mark.parametrize(
    ("of", "cpus", "reason", "message"),
    [
        (policy(), "16", "UnexpectedAdmissionError", "requested=16, available=15"),
        (policy(full_cores=True), "3", "SMTAlignmentError", "requested 3 cpus not multiple"),
        (policy(full_cores=True), "16", "SMTAlignmentError", "available physical CPUs = 14,"),
    ],
)
def test_refusals(of: StaticCpus, cpus: str, reason: str, message: str) -> None:
    with pytest.raises(AllocationRefused, match=message) as refused:
        allocate(of, of.initial(), pod_of(sized("c", cpus)))
    assert refused.value.reason == reason


def test_held_complete_cores_are_kept_when_no_others_are_free() -> None:
    of = policy(full_cores=True)
    state = held(of, {"uid-1": {"c": "1-7,9-15"}})
    assert allocate(of, state, pod_of(sized("c", "14"))) is state
    all_there_are = allocate(of, of.initial(), pod_of(sized("c", "14")))
    assert reported(all_there_are) == {"c": "1-7,9-15"}


@pytest.mark.parametrize(
    ("of", "state", "why"),
    [
        (policy(), CpuState("static"), ""),
        (policy(), CpuState("static", parse_ids(""), {"a": {"c": parse_ids("1")}}), "be empty"),
        (policy(), CpuState("static", parse_ids("0-15")), ""),
        (policy(), CpuState("static", parse_ids("0"), {"a": {"c": parse_ids("1-15")}}), ""),
        (policy(reserved="0-1"), CpuState("static", parse_ids("1-15")), "not all reserved"),
        (policy(), CpuState("static", parse_ids("0-15"), {"a": {"c": parse_ids("1")}}), "overlaps"),
        (policy(), CpuState("static", parse_ids("0-14")), "set of available CPUs 0-15"),
        (policy(), CpuState("static", parse_ids("0-16")), "doesn't match"),
        (policy(strict=True), CpuState("static", parse_ids("0-15")), "strictly reserved cpus: 0"),
        (policy(strict=True), CpuState("static", parse_ids("1-15")), ""),
    ],
)
def test_states_to_go_on_with(of: StaticCpus, state: CpuState, why: str) -> None:
    assert why in of.problem(state)
    assert bool(why) == bool(of.problem(state))


def test_the_pool_without_what_is_reserved() -> None:
    assert format_ids(policy(strict=True).initial().pool) == "1-15"
    assert format_ids(policy().initial().pool) == "0-15"


def masks(of: StaticCpus, state: CpuState, pod: Pod, whole: bool = False) -> Any:
    hints = of.hints(state, pod, None if whole else pod.containers[0])
    return [(h.mask, h.preferred) for h in hints["cpu"] or ()] if "cpu" in hints else None


def test_hints() -> None:
    of = policy()
    one = pod_of(sized("c", "2"))
    assert masks(of, of.initial(), one) == [(1, True), (2, True), (3, False)]
    assert masks(of, of.initial(), pod_of(sized("c", "8"))) == [(2, True), (3, False)]
    assert masks(of, of.initial(), pod_of(sized("c", "9"))) == [(3, True)]
    # no longer available in one node, though one node is large enough
    assert masks(of, held(of, {"x": {"c": "1,4"}}), pod_of(sized("c", "8"))) == [(3, False)]
    assert masks(of, of.initial(), pod_of(sized("c", "16"))) == []
    assert masks(of, of.initial(), pod_of(sized("c", "500m"))) is None
    # the CPUs that it holds; another number of CPUs is not available
    assert masks(of, held(of, {"uid-1": {"c": "4,12"}}), one) == [(2, True), (3, False)]
    assert masks(of, held(of, {"uid-1": {"c": "4"}}), one) == []
    assert masks(of, held(of, {"uid-1": {"c": "4-6"}}), one) == []
    # they must include those of its init container
    after = pod_of(sized("c", "2"), initContainers=[sized("i", "2")])
    assert masks(of, held(of, {"uid-1": {"i": "4,12"}}), after) == [(2, True), (3, False)]


def test_hints_at_pod_level() -> None:
    of = policy()
    pod = pod_of(sized("c", "4"), sized("d", "4"))
    assert masks(of, of.initial(), pod) == [(1, True), (2, True), (3, False)], "of its first"
    assert masks(of, of.initial(), pod_of(sized("c", "500m")), whole=True) is None
    assert masks(of, held(of, {"uid-1": {"c": "4-5"}}), pod, whole=True) == []
    assert masks(of, of.initial(), pod, whole=True) == [(2, True), (3, False)]
    assert masks(of, held(of, {"uid-1": {"c": "4-7"}}), pod, whole=True) == [(2, True), (3, False)]
    both = held(of, {"uid-1": {"c": "1-4", "d": "8-11"}})
    assert masks(of, both, pod, whole=True) == [(3, False)]


def test_hints_by_socket() -> None:
    four = machine(sockets=2, nodes=2, cores=2)
    of = policy(four, by_socket=True)
    found = dict(masks(of, of.initial(), pod_of(sized("c", "2"))))
    assert found[0b0011], "both nodes of a socket are as good as one"
    assert not found[0b0110]
    without = dict(masks(policy(four), of.initial(), pod_of(sized("c", "2"))))
    assert [mask for mask, preferred in without.items() if preferred] == [2, 4, 8]
    three = dict(masks(of, of.initial(), pod_of(sized("c", "5"))))
    assert three == dict.fromkeys((0b0111, 0b1011, 0b1101, 0b1110, 0b1111), True)
    state = allocate(of, held(of, {"x": {"c": "2,4"}}), pod_of(sized("c", "2")), 0b0010)
    assert reported(state) == {"c": "1,3"}
    # the hint's node first, then the rest of its socket, then others
    for count, cpus in ((1, "3"), (2, "1,3"), (3, "1,3-4")):
        state = allocate(of, held(of, {"x": {"c": "2"}}), pod_of(sized("c", str(count))), 0b0010)
        assert reported(state) == {"c": cpus}


HALVES = CpuTopology({i: Cpu(i, i & ~1 if i < 4 else i, 0, 0, 0) for i in range(8)})
"""Two cores of two threads, then four of one."""
EIGHT_NODES = machine(sockets=2, nodes=4, cores=32)
"""256 CPUs: a socket has four NUMA nodes of 32."""


@pytest.mark.parametrize("seed", range(100))
def test_cpus_of_the_nodes_of_a_hint_come_first(seed: int) -> None:
    """Then, with align-by-socket, those of its sockets; for any options and CPUs in use."""
    rng = random.Random(seed)
    topology = machine(sockets=2, nodes=2, cores=rng.randint(1, 3), threads=rng.choice((1, 2)))
    options = {
        name: rng.random() < 0.5 for name in ("by_socket", "across_numa", "full_cores", "strict")
    }
    options["across_cores"] = not (options["across_numa"] or options["full_cores"])
    of = policy(topology, "0", **options)
    used = rng.sample(sorted(topology.ids - {0}), rng.randint(0, len(topology.ids) - 2))
    state = held(of, {"x": {"c": format_ids(used)}} if used else {})
    per_core = topology.threads_per_core if options["full_cores"] else 1
    free = of.free(state)
    if options["full_cores"]:
        free = frozenset().union(*(c for c in topology.cores.values() if c <= free))
    count = rng.randint(1, max(len(free) // per_core, 1)) * per_core
    if count > len(free):
        return
    mask = rng.randint(1, 15)
    got = allocate(of, state, pod_of(sized("c", str(count))), mask).entries["uid-1"]["c"]
    assert len(got) == count
    near = {each for each in free if mask >> topology.cpus[each].numa & 1}
    sockets = {cpu.socket for cpu in topology.cpus.values() if mask >> cpu.numa & 1}
    wide = {each for each in free if topology.cpus[each].socket in sockets}
    assert len(got & near) == min(count, len(near))
    if options["by_socket"]:
        assert len(got & wide) == min(count, len(wide))
    if options["across_numa"]:
        nodes = topology.grouped(near, by_numa)
        chosen = topology.grouped(got & near, by_numa)
        assert len(chosen) == min(len(nodes), count // per_core)
    if options["full_cores"]:
        assert all(topology.cores[topology.cpus[each].core] <= got for each in got)


def test_a_spread_uses_all_nodes_of_the_hint() -> None:
    """Also one that has been divided, and one of which a node has less than its share."""
    large = machine(sockets=2, nodes=2, cores=32, threads=2)
    of = policy(large, across_numa=True)
    cpus = allocate(of, of.initial(), pod_of(sized("c", "176")), 0b1111).entries["uid-1"]["c"]
    assert [len(each) for each in large.grouped(cpus, by_numa).values()] == [44, 44, 44, 44]
    state = held(of, {"x": {"c": "96-127"}})
    cpus = allocate(of, state, pod_of(sized("c", "176")), 0b1111).entries["uid-1"]["c"]
    assert [len(each) for each in large.grouped(cpus, by_numa).values()] == [48, 48, 48, 32]


def test_a_spread_without_a_hint_stays_in_a_socket() -> None:
    """120 CPUs fit into either socket, though nodes of both would leave the rest more even."""
    of = policy(EIGHT_NODES, reserved="96-97,224-225", across_numa=True, by_socket=True)
    cpus = allocate(of, of.initial(), pod_of(sized("c", "120"))).entries["uid-1"]["c"]
    assert list(EIGHT_NODES.grouped(cpus, by_socket)) == [0]
    assert [len(each) for each in EIGHT_NODES.grouped(cpus, by_numa).values()] == [30] * 4


def test_parts_of_a_pool_are_spread_over_the_nodes_of_its_hint() -> None:
    of = StaticCpus(SMT, parse_ids("0"), CpuOptions(across_numa=True), PodLevelPlacement.POOL)
    amounts = {"cpu": "6", "memory": "8Mi"}
    pod = pod_of(
        sized("c", "4"), sized("d", "1"), resources={"requests": amounts, "limits": amounts}
    )
    state = of.allocate_pool(of.initial(), pod, Hint(0b11, True))
    parts = state.entries["uid-1"]
    assert [len(each) for each in SMT.grouped(state.pools["uid-1"], by_numa).values()] == [3, 3]
    assert [len(each) for each in SMT.grouped(parts["c"], by_numa).values()] == [2, 2]


@pytest.mark.parametrize(
    ("used", "cpus", "expected"),
    [
        ("", "2", "0-1"),
        ("", "5", "0-4"),
        ("", "3", "0-1,4"),
        ("", "7", "0-6"),
        ("2", "2", "0-1"),
        ("2,4-7", "2", "0-1"),
        ("2,4-7", "1", "SMT Alignment Error: requested 1 cpus are not whole cores"),
        ("2,4-7", "3", "available physical CPUs = 2, requested CPUs = 3"),
        ("4,6-7", "5", "0-3,5"),
    ],
)
def test_whole_cores_where_cores_differ(used: str, cpus: str, expected: str) -> None:
    """Full-pcpus-only counts the threads of each core, and a partly used core is not free."""
    of = StaticCpus(HALVES, frozenset(), CpuOptions(full_cores=True))
    state = held(of, {"x": {"c": used}} if used else {})
    try:
        got = reported(allocate(of, state, pod_of(sized("c", cpus))))["c"]
    except AllocationRefused as refused:
        got = str(refused)
    assert got.startswith(expected) or expected in got


def test_whole_cores_of_init_containers_can_be_used_again() -> None:
    """They are the only cores that are free."""
    of = policy(full_cores=True)
    pod = pod_of(sized("c", "14"), initContainers=[sized("i", "14")])
    state = held(of, {"uid-1": {"i": "1-7,9-15"}})
    assert masks(of, state, pod) == [(3, True)]
    after = allocate(of, state, pod)
    assert reported(after) == {"i": "1-7,9-15", "c": "1-7,9-15"}


def test_hints_with_whole_cores_leave_out_partly_used_ones() -> None:
    of = policy(full_cores=True)
    state = held(of, {"x": {"c": "1,2,3"}})
    assert masks(of, state, pod_of(sized("c", "2"))) == [(2, True), (3, False)]


@pytest.mark.parametrize(
    ("listed", "count", "options", "expected"),
    [
        ("", 1, CpuOptions(), "0"),
        ("", 2, CpuOptions(), "0,8"),
        ("3,5", 2, CpuOptions(), "3,5"),
        ("0-15", 16, CpuOptions(), "0-15"),
    ],
)
def test_reserved_cpus(listed: str, count: int, options: CpuOptions, expected: str) -> None:
    assert format_ids(reserve_cpus(SMT, parse_ids(listed), count, options)) == expected


@pytest.mark.parametrize(
    ("listed", "count", "why"),
    [("", 0, "set systemReserved.cpu"), ("", 17, "can't reserve 17"), ("3,99", 2, "online: 99")],
)
def test_reservations_that_cannot_be(listed: str, count: int, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        reserve_cpus(SMT, parse_ids(listed), count, CpuOptions())


@pytest.mark.parametrize(
    ("supplied", "gates", "why"),
    [
        ({"full-pcpus-only": "perhaps"}, (), "must be true or false"),
        ({"align-by-socket": "true"}, (), "CPUManagerPolicyAlphaOptions"),
        ({"distribute-cpus-across-numa": "true"}, (), "CPUManagerPolicyBetaOptions"),
        (
            {"full-pcpus-only": "true", "distribute-cpus-across-cores": "true"},
            ("CPUManagerPolicyAlphaOptions",),
            "can not be used together",
        ),
        (
            {"prefer-align-cpus-by-uncorecache": "1", "distribute-cpus-across-numa": "1"},
            ("CPUManagerPolicyBetaOptions",),
            "can not be used together",
        ),
    ],
)
def test_options_that_cannot_be(supplied: dict[str, str], gates: tuple[str, ...], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        read_cpu_options(supplied, gates.__contains__)


@pytest.mark.parametrize(
    ("supplied", "options"),
    [
        (
            {"full-pcpus-only": "true", "strict-cpu-reservation": "false"},
            CpuOptions(full_cores=True),
        ),
        (
            {"full-pcpus-only": "false", "distribute-cpus-across-cores": "1"},
            CpuOptions(across_cores=True),
        ),
        (
            {"distribute-cpus-across-numa": "T", "prefer-align-cpus-by-uncorecache": "f"},
            CpuOptions(across_numa=True),
        ),
        (
            {"align-by-socket": "true", "strict-cpu-reservation": "t"},
            CpuOptions(by_socket=True, strict=True),
        ),
        (
            {"full-pcpus-only": "t", "prefer-align-cpus-by-uncorecache": "TRUE"},
            CpuOptions(full_cores=True, by_uncore=True),
        ),
    ],
)
def test_options(supplied: dict[str, str], options: CpuOptions) -> None:
    assert read_cpu_options(supplied, lambda gate: True) == options


@pytest.mark.parametrize(
    ("options", "picking"),
    [
        (CpuOptions(), PickOptions(0)),
        (
            CpuOptions(full_cores=True, by_uncore=True),
            PickOptions(0, align_uncore=True, largest_cores=True),
        ),
        (CpuOptions(across_cores=True), PickOptions(0, across_cores=True)),
        (CpuOptions(across_numa=True), PickOptions(1)),
        (CpuOptions(across_numa=True, full_cores=True), PickOptions(2, largest_cores=True)),
        (CpuOptions(across_numa=True, by_socket=True), PickOptions(1, by_socket=True)),
    ],
)
def test_the_effect_of_options_on_the_pick(options: CpuOptions, picking: PickOptions) -> None:
    """Whole cores stay together when they are spread: SMT has two threads of each."""
    assert options.picking(SMT) == picking


def test_alignment_by_socket_needs_a_machine_for_it() -> None:
    options = CpuOptions(by_socket=True)
    check_sockets(options, SMT, single_node=False)
    with pytest.raises(OptionError, match="single-numa-node"):
        check_sockets(options, SMT, single_node=True)
    with pytest.raises(OptionError, match="more sockets"):
        check_sockets(options, one_node_of_two_sockets(), single_node=False)
    check_sockets(CpuOptions(), one_node_of_two_sockets(), single_node=True)


def test_cpus_come_back_when_no_sibling_has_them() -> None:
    of = policy()
    state = held(of, {"a": {"i": "1-4", "c": "1-2"}, "b": {"c": "5"}})
    assert format_ids(state.pool) == "0,6-15"
    assert format_ids(state.without_container("a", "i").pool) == "0,3-4,6-15"
    assert format_ids(state.without_all_but({"b"}).pool) == "0-4,6-15"
    assert state.without_all_but({"a", "b", "c"}) is state
