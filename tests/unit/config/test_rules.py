"""What single settings may hold, at the edges of each rule; empty: it is fine."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.config import rules
from kubeletpy.config.decoders import boolean
from kubeletpy.config.problems import Report
from kubeletpy.config.settings import MemoryReservation, Taint

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
    (rules.sysctls, ("kernel.semaphore",), "not a namespaced sysctl"),
    (rules.sysctls, ("vm.swappiness",), "not a namespaced sysctl"),
    (rules.sysctls, ("net.*.x",), "not a sysctl name"),
    (rules.sysctls, ("net.**",), "not a sysctl name"),
    (rules.sysctls, ("net.-a",), "not a sysctl name"),
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
def test_a_boolean_is_no_number(value: object, fine: bool) -> None:
    report = Report()
    assert boolean(value, "x", report) is (value if fine else None)
    assert bool(report.problems) is not fine
