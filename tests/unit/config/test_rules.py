"""Values of single settings, at the edges of each rule; an empty message: it is valid."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.config import decoders as d
from kubeletpy.config import rules
from kubeletpy.config import rules as r
from kubeletpy.config.decoders import boolean
from kubeletpy.config.fields import FIELDS
from kubeletpy.config.problems import ProblemReport
from kubeletpy.config.settings import MemoryReservation, ShutdownPriority, Taint

KEY, VALUE, EFFECT = "not a valid taint key", "not a valid taint value", "effects are"
RULES: list[tuple[Any, Any, str]] = [
    (rules.one_of("a", ""), "a", ""),
    (rules.one_of("a", ""), "b", 'must be one of a, ""'),
    (rules.between(1, 3), 1, ""),
    (rules.between(1, 3), 3, ""),
    (rules.between(1, 3), 0, "must be from 1 to 3"),
    (rules.between(1, 3), 4, "must be from 1 to 3"),
    (rules.at_least(1), 1, ""),
    (rules.at_least(1), 0, "must be at least 1"),
    (rules.above(1), 2, ""),
    (rules.above(1), 1, "must be more than 1"),
    (rules.seconds_between(1, 60), 1, ""),
    (rules.seconds_between(1, 60), 60, ""),
    (rules.seconds_between(1, 60), 0.5, "must be from 1s to 1m0s"),
    (rules.seconds_between(1, 60), 61, "must be from 1s to 1m0s"),
    (rules.seconds_at_least(1), 1, ""),
    (rules.seconds_at_least(1), 0.9, "must be at least 1s"),
    (rules.not_empty, "x", ""),
    (rules.not_empty, "", "must not be empty"),
    (rules.must_be_false, False, ""),
    (rules.must_be_false, True, "must be false"),
    (rules.ip_address, "192.0.2.1", ""),
    (rules.ip_address, "::1", ""),
    (rules.ip_address, "", "must be an IP address"),
    (rules.cidr, "", ""),
    (rules.cidr, "10.0.0.0/8, fd00::/64", ""),
    (rules.cidr, "10.0.0.1/8", ""),
    (rules.cidr, "10.0.0.0/33", "must be a network"),
    (rules.log_directory, "/", ""),
    (rules.log_directory, "/var/log", ""),
    (rules.log_directory, "var/log", "must be an absolute path"),
    (rules.log_directory, "/var/../log", "must be an absolute path"),
    (rules.log_directory, "/var/./log", "must be an absolute path"),
    (rules.log_directory, "/var/log/", "must be an absolute path"),
    (rules.log_directory, "//var/log", "must be an absolute path"),
    (rules.log_directory, "/vår", "must be an absolute path"),
    (rules.zero_or_at_least_second, 0, ""),
    (rules.zero_or_at_least_second, 1, ""),
    (rules.zero_or_at_least_second, 0.9, "must be 0s or at least 1s"),
    (rules.zero_or_at_least_second, -1, "must be 0s or at least 1s"),
    (rules.enforcement, (), ""),
    (rules.enforcement, ("none",), ""),
    (rules.enforcement, ("pods", "kube-reserved", "system-reserved-compressible"), ""),
    (rules.enforcement, ("pods", "nodes"), "must hold only"),
    (rules.enforcement, ("pods", "none"), "none must stand alone"),
    (rules.enforcement, ("pods", "pods"), "must not name anything twice"),
    (rules.enforcement, ("kube-reserved", "kube-reserved-compressible"), "exclude each other"),
    (rules.sysctls, ("kernel.sem", "kernel/shmmax", "net.*", "kernel.msg*"), ""),
    (rules.sysctls, ("user.*", "user.max_user_namespaces", "kernel.domainname"), ""),
    (rules.sysctls, ("net/ipv4/conf/eth0.1/mtu",), ""),
    (rules.sysctls, ("kernel.semaphore",), "not a namespaced sysctl"),
    (rules.default_sysctls, {}, ""),
    (
        rules.default_sysctls,
        {"net.core.somaxconn": "9", "kernel/shmall": "x", "user.max_mnt_namespaces": ""},
        "",
    ),
    (rules.default_sysctls, {"fs.mqueue.msg_max": "1", "kernel.domainname": "a"}, ""),
    (rules.default_sysctls, {"net.*": "1"}, "'net.*' is not a sysctl name"),
    (rules.default_sysctls, {"a" * 10_000: "1"}, f"'{'a' * 253}' is not a sysctl name"),
    (rules.default_sysctls, {"": "1"}, "'' is not a sysctl name"),
    (rules.default_sysctls, {"kernel.hostname": "x"}, "not a namespaced sysctl"),
    (rules.default_sysctls, {"kernel.shm": "1"}, "not a namespaced sysctl"),
    (rules.default_sysctls, {"vm.swappiness": "1"}, "not a namespaced sysctl"),
    (
        rules.default_sysctls,
        {"net/core/somaxconn": "1", "net.core.somaxconn": "2"},
        "'net.core.somaxconn' is there twice",
    ),
    (rules.sysctls, ("vm.swappiness",), "not a namespaced sysctl"),
    (rules.sysctls, ("net.*.x",), "not a sysctl name"),
    (rules.sysctls, ("net.**",), "not a sysctl name"),
    (rules.sysctls, ("net.-a",), "not a sysctl name"),
    (rules.sysctls, ("net.a.",), "not a sysctl name"),
    (rules.taints, (Taint("a.b/c", "v", "NoSchedule"), Taint("a.b/c", "v", "NoExecute")), ""),
    (rules.taints, (Taint("k", "", "PreferNoSchedule"),), ""),
    (rules.taints, (Taint("-k", "v", "NoExecute"),), KEY),
    (rules.taints, (Taint("A/k", "v", "NoExecute"),), KEY),
    (rules.taints, (Taint("/k", "v", "NoExecute"),), KEY),
    (rules.taints, (Taint("k" * 64, "v", "NoExecute"),), KEY),
    (rules.taints, (Taint("k" * 63, "v", "NoExecute"),), ""),
    (rules.taints, (Taint("k", "v_", "NoExecute"),), VALUE),
    (rules.taints, (Taint("k", "v", "NoWay"),), EFFECT),
    (rules.taints, (Taint("k", "v", "NoExecute"), Taint("k", "w", "NoExecute")), "twice"),
    (rules.image_patterns, ("a/b", "a:5000/b/*", "docker.io/*"), ""),
    (rules.image_patterns, ("a/b:1",), "is not an image without tag"),
    (rules.image_patterns, ("a@sha256",), "is not an image without tag"),
    (rules.image_patterns, ("",), "is not an image without tag"),
    (rules.image_patterns, ("a//b",), "is not an image without tag"),
    (rules.image_patterns, ("a/b/",), "is not an image without tag"),
    (rules.memory_reservations, (MemoryReservation(0, {"memory": "1"}),), ""),
    (
        rules.memory_reservations,
        (MemoryReservation(0, {"memory": "1"}), MemoryReservation(1, {"memory": "1"})),
        "",
    ),
    (
        rules.memory_reservations,
        (MemoryReservation(0, {"memory": "1"}), MemoryReservation(0, {"memory": "1"})),
        "memory of NUMA node 0 is given twice",
    ),
    (
        rules.memory_reservations,
        (MemoryReservation(0, {"hugepages-2Mi": "0"}),),
        "must not be zero",
    ),
    (
        rules.memory_reservations,
        (MemoryReservation(0, {"cpu": "1"}),),
        "is not memory or hugepages",
    ),
    (rules.cpuset, "", ""),
    (rules.cpuset, "0-1, 4", ""),
    (rules.cpuset, "4-4", ""),
    (rules.cpuset, "4-3", "must be a list of CPUs"),
    (rules.cpuset, "0,", "must be a list of CPUs"),
    (rules.tracing_endpoint, "localhost:4317", ""),
    (rules.tracing_endpoint, "dns://localhost:4317", ""),
    (rules.tracing_endpoint, "unix:///run/otel", ""),
    (rules.tracing_endpoint, "unix-abstract://otel", ""),
    (rules.tracing_endpoint, "http://localhost", "scheme must be dns, unix or unix-abstract"),
    (rules.option_names("a", "b"), {}, ""),
    (rules.option_names("a", "b"), {"a": "1", "b": "2"}, ""),
    (rules.option_names("a", "b"), {"a": "1", "c": "2"}, "known options: a, b"),
]


@pytest.mark.parametrize(("rule", "value", "allowed"), RULES)
def test_rules(rule: Any, value: Any, allowed: str) -> None:
    found = rule(value)
    assert (allowed in found) if allowed else found == ""


def test_the_cpus_of_a_list() -> None:
    assert rules.parse_cpuset("0-2,4") == frozenset({0, 1, 2, 4})
    assert rules.parse_cpuset("") == frozenset()


@pytest.mark.parametrize(("length", "fits"), [(253, True), (254, False)])
def test_the_length_of_a_name(length: int, fits: bool) -> None:
    assert rules.dns_subdomain("a" * length) is fits


@pytest.mark.parametrize(
    ("value", "fine"), [(True, True), (False, True), (1, False), ("true", False)]
)
def test_a_number_is_not_a_boolean(value: object, fine: bool) -> None:
    report = ProblemReport()
    assert boolean(value, "x", report) is (value if fine else None)
    assert bool(report.problems) is not fine


S = 0.0001
"""A step of durations, in seconds."""
BOUNDS: dict[str, tuple[float | None, float | None, float]] = {
    "syncFrequency": (0.001, None, S),
    "port": (1, 65535, 1),
    "readOnlyPort": (0, 65535, 1),
    "healthzPort": (0, 65535, 1),
    "tracing.samplingRatePerMillion": (0, 1000000, 1),
    "runtimeRequestTimeout": (0, None, S),
    "registryPullQPS": (0, None, 1),
    "registryBurst": (0, None, 1),
    "maxParallelImagePulls": (1, None, 1),
    "imageMinimumGCAge": (0, None, S),
    "imageMaximumGCAge": (0, None, S),
    "imageGCHighThresholdPercent": (0, 100, 1),
    "imageGCLowThresholdPercent": (0, 100, 1),
    "crashLoopBackOff.maxContainerRestartPeriod": (1, 300, S),
    "containerLogMaxFiles": (2, None, 1),
    "containerLogMaxWorkers": (1, None, 1),
    "containerLogMonitorInterval": (3, None, S),
    "userNamespaces.idsPerPod": (65536, 4294967295, 1),
    "eventRecordQPS": (0, None, 1),
    "eventBurst": (0, None, 1),
    "kubeAPIQPS": (0, None, 1),
    "kubeAPIBurst": (0, None, 1),
    "nodeStatusUpdateFrequency": (0.001, None, S),
    "nodeStatusReportFrequency": (0, None, S),
    "nodeLeaseDurationSeconds": (1, None, 1),
    "nodeStatusMaxImages": (-1, None, 1),
    "maxPods": (0, None, 1),
    "podsPerCore": (0, None, 1),
    "maxOpenFiles": (0, None, 1),
    "shutdownGracePeriod": (0, None, S),
    "shutdownGracePeriodCriticalPods": (0, None, S),
    "iptablesMasqueradeBit": (0, 31, 1),
    "iptablesDropBit": (0, 31, 1),
    "logging.flushFrequency": (1e-9, None, 1e-9),
    "logging.verbosity": (0, 2147483647, 1),
    "oomScoreAdj": (-1000, 1000, 1),
    "cpuManagerReconcilePeriod": (0, None, S),
    "cpuCFSQuotaPeriod": (0.001, 1, S),
    "evictionPressureTransitionPeriod": (0, None, S),
    "memoryThrottlingFactor": (1e-9, 1, 1e-9),
}
"""Least value, greatest value and a step, for each field with a rule."""


@pytest.mark.parametrize(("path", "bounds"), BOUNDS.items())
def test_bounds(path: str, bounds: tuple[float | None, float | None, float]) -> None:
    least, most, step = bounds
    rule = FIELDS[path].rule
    assert rule is not None
    for bound, beyond in ((least, -step), (most, step)):
        if bound is not None:
            assert rule(bound) == ""
            assert rule(bound + beyond) != ""
    if most is None:
        assert rule(2**62) == ""


@pytest.mark.parametrize(
    ("path", "supplied", "found"),
    [
        ("reservedMemory", [{"limits": {}}], (MemoryReservation(0, {}),)),
        ("shutdownGracePeriodByPodPriority", [{}], (ShutdownPriority(0, 0),)),
        ("registerWithTaints", [{"key": "k", "effect": "e"}], (Taint("k", "", "e"),)),
    ],
)
def test_fields_left_out_of_an_entry(path: str, supplied: Any, found: Any) -> None:
    report = ProblemReport()
    assert FIELDS[path].decode(supplied, path, report) == found
    assert not report.problems


# Values that configuration fields accept: types, bounds, and what is refused.

BAD = object()
"""The value is refused."""
STRINGS = d.map_of(d.string)
KEYED = d.map_of(d.string, ("a", "b"))
STRUCT = d.struct_of(lambda **supplied: supplied, {"one": (d.int32, ...), "two": (d.string, "z")})
ROWS: list[tuple[d.Decoder, object, object]] = [
    (d.int32, 2**31 - 1, 2**31 - 1),
    (d.int32, 2**31, BAD),
    (d.int32, -(2**31), -(2**31)),
    (d.int32, -(2**31) - 1, BAD),
    (d.int32, True, BAD),
    (d.int32, 1.0, BAD),
    (d.int32, "1", BAD),
    (d.int64, 2**63 - 1, 2**63 - 1),
    (d.int64, 2**63, BAD),
    (d.int64, -(2**63), -(2**63)),
    (d.int64, -(2**63) - 1, BAD),
    (d.uint32, 0, 0),
    (d.uint32, -1, BAD),
    (d.uint32, 2**31 - 1, 2**31 - 1),
    (d.uint32, 2**31, BAD),
    (d.number, 1, 1.0),
    (d.number, 0.5, 0.5),
    (d.number, True, BAD),
    (d.number, "1", BAD),
    (d.string, "", ""),
    (d.string, 1, BAD),
    (d.duration, "1m", 60.0),
    (d.duration, "1x", BAD),
    (d.duration, 60, BAD),
    (d.duration_or_nanoseconds, 1500000000, 1.5),
    (d.duration_or_nanoseconds, "2s", 2.0),
    (d.duration_or_nanoseconds, True, BAD),
    (d.duration_or_nanoseconds, 1.5, BAD),
    (d.size, 5, 5),
    (d.size, "1Ki", 1024),
    (d.size, True, BAD),
    (d.size, "x", BAD),
    (d.size, 1.5, BAD),
    (d.list_of(d.int32), [1, 2], (1, 2)),
    (d.list_of(d.int32), [1, "2"], BAD),
    (d.list_of(d.int32), "12", BAD),
    (STRINGS, {"x": "y"}, {"x": "y"}),
    (STRINGS, {"x": 1}, BAD),
    (STRINGS, {1: "x"}, BAD),
    (STRINGS, ["x"], BAD),
    (KEYED, {"a": "y"}, {"a": "y"}),
    (KEYED, {"c": "y"}, BAD),
    (KEYED, {1: "y"}, BAD),
    (STRUCT, {"one": 1}, {"one": 1, "two": "z"}),
    (STRUCT, {"one": 1, "two": "x"}, {"one": 1, "two": "x"}),
    (STRUCT, {"one": 1, "two": None}, {"one": 1, "two": "z"}),
    (STRUCT, {"two": "x"}, BAD),
    (STRUCT, {"one": "x"}, BAD),
    (STRUCT, {"one": 1, "three": 3}, {"one": 1, "two": "z"}),
    (STRUCT, [], BAD),
    (d.quantity_text, "1Gi", "1Gi"),
    (d.quantity_text, "0", "0"),
    (d.quantity_text, "-1", BAD),
    (d.quantity_text, "x", BAD),
    (d.quantity_text, 1, BAD),
    (d.threshold, "1Gi", "1Gi"),
    (d.threshold, "0.5", "0.5"),
    (d.threshold, "0", BAD),
    (d.threshold, "0%", "0%"),
    (d.threshold, "100%", "100%"),
    (d.threshold, "100.5%", BAD),
    (d.threshold, "-0.5%", BAD),
    (d.threshold, "x%", BAD),
    (d.threshold, "x", BAD),
    (d.threshold, 5, BAD),
    (d.reclaim, "0", "0"),
    (d.reclaim, "-1", BAD),
    (d.reclaim, "0.5%", "0.5%"),
    (d.reclaim, "500%", "500%"),
    (d.reclaim, "0%", BAD),
    (d.reclaim, "-1%", BAD),
    (d.reclaim, "inf%", BAD),
    (d.reclaim, "nan%", BAD),
    (d.reclaim, 0, BAD),
    (d.grace, "0s", 0.0),
    (d.grace, "500ms", 0.5),
    (d.grace, "-1ms", BAD),
    (d.grace, "x", BAD),
    (d.percent, "0%", "0%"),
    (d.percent, "100%", "100%"),
    (d.percent, "0.5%", BAD),
    (d.percent, "101%", BAD),
    (d.percent, "-0.5%", BAD),
    (d.percent, "50", BAD),
    (d.percent, "x%", BAD),
    (d.percent, 50, BAD),
]


@pytest.mark.parametrize(("decode", "value", "expected"), ROWS)
def test_values_that_a_field_accepts(decode: d.Decoder, value: object, expected: object) -> None:
    report = ProblemReport()
    found = decode(value, "x", report)
    assert bool(report.problems) is (expected is BAD)
    if expected is not BAD:
        assert found == expected


def test_a_problem_names_its_field_once() -> None:
    report = ProblemReport()
    d.grace("x", "g", report)
    d.list_of(d.string)(["a", 1], "l", report)
    KEYED({"c": 1}, "m", report)
    STRUCT({"on": 1, "one": 1}, "s", report)
    assert [problem.field for problem in report.problems] == ["g", "l[1]", "m.c"]
    assert "allowed: a, b" in str(report.problems[2])
    assert [problem.field for problem in report.lenient] == ["s.on"]
    assert "did you mean one?" in str(report.lenient[0])
    STRINGS({1: "x"}, "k", report)
    assert "allowed: strings" in str(report.problems[-1])


@pytest.mark.parametrize(
    ("rule", "fine", "bad"),
    [
        (r.between(1, 3), (1, 2, 3), (0, 4)),
        (r.at_least(2), (2, 3), (1,)),
        (r.above(2), (3,), (1, 2)),
        (r.seconds_between(1, 3), (1, 2, 3), (0.5, 3.5)),
        (r.seconds_at_least(2), (2, 3), (1,)),
        (r.one_of("", "a"), ("", "a"), ("b",)),
        (r.ip_address, ("::1", "10.0.0.1"), ("x", "10.0.0.256")),
        (r.not_empty, ("a",), ("",)),
        (r.must_be_false, (False,), (True,)),
    ],
)
def test_a_rule_holds_up_to_its_bounds(rule: Any, fine: Any, bad: Any) -> None:
    assert [rule(value) for value in fine] == [""] * len(fine)
    assert all(rule(value) for value in bad)
