"""Node options read from settings and flags."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy import config
from kubeletpy.base.api import types as api
from kubeletpy.base.kubernetes_version import NEWEST, SUPPORTED, KubernetesVersion, supported
from kubeletpy.config.flags import NodeFlags
from kubeletpy.node.facts import NodeAddresses, NodeOptions, host_addresses

FLAGS = NodeFlags()


def node_options(flags: NodeFlags = FLAGS, **document: Any) -> NodeOptions:
    return NodeOptions.from_settings(
        config.default_settings(**document), flags, hostname="H", port=7
    )


def test_options_by_default() -> None:
    found = node_options()
    assert (found.name, found.kubelet_port, found.version) == ("h", 7, NEWEST.kubelet)
    assert (found.register, found.controller_attach_detach, found.local_storage) == (True,) * 3
    assert (found.labels, found.taints, found.node_ips) == ({}, [], [])
    assert (found.provider_id, found.external_cloud_provider) == ("", False)
    assert (found.max_pods, found.pods_per_core, found.max_images) == (110, 0, 50)
    assert (found.lease_duration_s, found.status_update_s, found.status_report_s) == (40, 10, 300)
    assert found.reserved_cpus == 0


@pytest.mark.parametrize("version", SUPPORTED, ids=str)
def test_the_node_reports_the_version_of_its_settings(version: KubernetesVersion) -> None:
    found = NodeOptions.from_settings(config.default_settings(version), FLAGS)
    assert found.version == version.kubelet
    assert found.version.startswith(f"v{version}.0+kubeletpy.")


@pytest.mark.parametrize(
    ("version", "gates", "reported"),
    [
        ("1.37", {}, True),
        ("1.37", {"KubeletInUserNamespace": False}, False),
        ("1.36", {}, False),
        ("1.36", {"KubeletInUserNamespace": True}, False),
        ("1.35", {"KubeletInUserNamespace": True}, False),
    ],
)
def test_user_namespace_is_reported_since_1_37(
    version: str, gates: dict[str, bool], reported: bool
) -> None:
    of_version = supported(version)
    assert of_version is not None
    settings = config.default_settings(of_version, featureGates=gates)
    assert NodeOptions.from_settings(settings, FLAGS).report_user_namespace is reported


def test_a_node_without_a_server_has_no_port() -> None:
    assert node_options(enableServer=False).kubelet_port == 0


@pytest.mark.parametrize(
    ("document", "field", "value"),
    [
        ({"registerNode": False}, "register", False),
        ({"maxPods": 5}, "max_pods", 5),
        ({"podsPerCore": 3}, "pods_per_core", 3),
        ({"kubeReserved": {"cpu": "1"}}, "kube_reserved", {"cpu": "1"}),
        ({"systemReserved": {"cpu": "2"}}, "system_reserved", {"cpu": "2"}),
        ({"evictionHard": {"pid.available": "9"}}, "eviction_hard", {"pid.available": "9"}),
        ({"reservedSystemCPUs": "0-1,4"}, "reserved_cpus", 3),
        ({"localStorageCapacityIsolation": False}, "local_storage", False),
        ({"providerID": "aws://1"}, "provider_id", "aws://1"),
        ({"enableControllerAttachDetach": False}, "controller_attach_detach", False),
        ({"nodeLeaseDurationSeconds": 9}, "lease_duration_s", 9),
        ({"nodeStatusUpdateFrequency": "9s"}, "status_update_s", 9.0),
        ({"nodeStatusReportFrequency": "8s"}, "status_report_s", 8.0),
        ({"nodeStatusMaxImages": -1}, "max_images", -1),
        (
            {
                "registerWithTaints": [
                    {"key": "a", "value": "b", "effect": "NoSchedule"},
                    {"key": "a", "effect": "NoExecute"},
                ]
            },
            "taints",
            [
                {"key": "a", "value": "b", "effect": "NoSchedule"},
                {"key": "a", "effect": "NoExecute"},
            ],
        ),
    ],
)
def test_options_from_settings(document: dict[str, Any], field: str, value: object) -> None:
    found = getattr(node_options(**document), field)
    assert (dict(found) if isinstance(value, dict) else found) == value


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        (NodeFlags(cloud_provider="external"), "external_cloud_provider", True),
        (NodeFlags(cloud_provider="aws"), "external_cloud_provider", False),
        (NodeFlags(node_labels={"a": "b"}), "labels", {"a": "b"}),
        (NodeFlags(node_ip="192.0.2.1, ::1"), "node_ips", ["192.0.2.1", "::1"]),
        (NodeFlags(node_ip="::ffff:192.0.2.1, FD00:0::1"), "node_ips", ["192.0.2.1", "fd00::1"]),
        (NodeFlags(hostname_override="Other"), "name", "other"),
    ],
)
def test_options_from_flags(flags: NodeFlags, field: str, value: object) -> None:
    assert getattr(node_options(flags), field) == value


# The addresses of a node: those of its machine, and those of its object.


def test_all_readers_see_the_addresses_of_now() -> None:
    addresses = NodeAddresses(["192.0.2.1"])
    reader = addresses
    assert not addresses.replace(["192.0.2.1"])
    assert addresses.replace(["192.0.2.2", "2001:db8::1"])
    assert (list(reader), len(reader), reader[1:]) == (
        ["192.0.2.2", "2001:db8::1"],
        2,
        ("2001:db8::1",),
    )


IN, OUT = "InternalIP", "ExternalIP"


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ([], ()),
        ([("Hostname", "10.0.0.1"), ("InternalDNS", "10.0.0.2")], ()),
        ([(IN, "10.0.0.1")], ("10.0.0.1",)),
        ([(IN, "10.0.0.1"), (IN, "10.0.0.2")], ("10.0.0.1",)),
        ([(IN, "10.0.0.1"), (IN, "fd00::1"), (IN, "fd00::2")], ("10.0.0.1", "fd00::1")),
        ([(IN, "fd00::1"), (IN, "10.0.0.1")], ("fd00::1", "10.0.0.1")),
        ([(OUT, "203.0.113.1"), (IN, "10.0.0.1")], ("10.0.0.1",)),
        ([(OUT, "2001:db8::1"), (IN, "10.0.0.1")], ("10.0.0.1", "2001:db8::1")),
        ([(OUT, "203.0.113.1"), ("Hostname", "n")], ("203.0.113.1",)),
        ([(IN, "FD00:0::1")], ("fd00::1",)),
        ([(IN, "::ffff:10.0.0.1"), (IN, "fd00::1")], ("10.0.0.1", "fd00::1")),
        ([(IN, "fe80::1%eth0"), (IN, ""), (IN, "n"), (IN, "10.0.0.1")], ("10.0.0.1",)),
    ],
)
def test_the_addresses_that_pods_report(
    reported: list[tuple[str, str]], expected: tuple[str, ...]
) -> None:
    listed: list[api.NodeAddress] = [{"type": kind, "address": text} for kind, text in reported]
    assert host_addresses(listed) == expected
