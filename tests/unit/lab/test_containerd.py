"""The configuration of a virtual node's containerd."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from tools.lab.versions import containerd_config, pod_network

IMAGE = "registry.k8s.io/pause:3.10.2"


def _found(values: dict[str, Any], desired: str) -> list[Any]:
    """Values of a key, at any depth."""
    found = [values[desired]] if desired in values else []
    for each in values.values():
        if isinstance(each, dict):
            found += _found(each, desired)
    return found


@pytest.mark.parametrize(("generation", "key"), [(2, "sandbox_image"), (3, "sandbox")])
@pytest.mark.parametrize(("driver", "systemd"), [("systemd", True), ("cgroupfs", False)])
def test_sandbox_image_and_cgroup_driver_replace_those_of_deploy(
    generation: int, key: str, driver: str, systemd: bool
) -> None:
    config = tomllib.loads(containerd_config(driver, generation, IMAGE))
    assert _found(config, key) == [IMAGE]
    assert _found(config, "SystemdCgroup") == [systemd]


@pytest.mark.parametrize("generation", [2, 3])
def test_the_program_of_another_oci_runtime_is_named(generation: int) -> None:
    assert "BinaryName" not in containerd_config("systemd", generation, IMAGE)
    config = tomllib.loads(containerd_config("systemd", generation, IMAGE, "crun"))
    assert _found(config, "BinaryName") == ["/usr/bin/crun"]
    assert _found(config, "SystemdCgroup") == [True]


def test_pods_of_a_node_have_addresses_in_its_subnet() -> None:
    bridge = json.loads(pod_network("10.88.2.0/24"))["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.88.2.0/24"}]]
