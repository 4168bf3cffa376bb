"""State found by a preflight, and state that cannot be read."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kubeletpy.agent.takeover.preflight.findings import Severity
from kubeletpy.agent.takeover.preflight.settings import read_state
from kubeletpy.config import NodeFlags, default_settings
from kubeletpy.images.records.model import PulledRecord, file_name, write_intent, write_record
from kubeletpy.resources.allocation import checkpoint_file
from kubeletpy.resources.allocation.resources import PodResources
from kubeletpy.resources.devices import checkpoint as device_checkpoint
from kubeletpy.resources.dra import checkpoint as claim_checkpoint
from kubeletpy.resources.placement.state import (
    CpuState,
    MemoryState,
    write_cpu_state,
    write_memory_state,
)

CPUS = write_cpu_state(CpuState("static", frozenset({0, 1}), {"u": {"c": frozenset({2})}}))
RECORD = write_record(PulledRecord("sha256:abc", 1.0, {}))


def found(root: Path, **settings: object) -> list[tuple[Severity, str]]:
    flags = NodeFlags(root_dir=str(root), device_plugins_dir=str(root / "device-plugins"))
    read = read_state(default_settings(**settings), flags)
    return [(each.severity, each.text.replace(f"{root}/", "")) for each in read]


@pytest.mark.parametrize(
    ("name", "text", "severity", "stated"),
    [
        ("memory_manager_state", write_memory_state(MemoryState("None")), "taken", "policy None"),
        ("cpu_manager_state", "", "taken", "empty"),
        ("cpu_manager_state", '{"policyName":"no', "blocks", "it is not JSON"),
        ("cpu_manager_state", CPUS, "blocks", "it was written by policy static"),
        ("memory_manager_state", "[]", "blocks", "it is not a JSON object"),
        ("dra_manager_state", claim_checkpoint.render(()), "taken", "0 claims"),
        ("dra_manager_state", '{"Data": "{', "blocks", ""),
        ("dra_health_state", "{}", "taken", "devices of 0 drivers"),
        ("dra_health_state", '{"a', "unclear", ""),
        (
            "allocated_pods_state",
            checkpoint_file.snapshot({"u": PodResources({"c": {}})}),
            "taken",
            "resources of 1 pod",
        ),
        ("allocated_pods_state", '{"data":"{}","checksum":1}', "unclear", "its checksum is not"),
        ("actuated_pods_state", '{"data":"', "unclear", "it is not a state file"),
        (
            "device-plugins/kubelet_internal_checkpoint",
            device_checkpoint.render({}, {"example.com/a": ["1"]}),
            "taken",
            "devices of 0 containers, 1 resource with a plugin",
        ),
        ("device-plugins/kubelet_internal_checkpoint", "{", "unclear", ""),
        ("graceful_node_shutdown_state", "{}", "taken", "times of the last shutdown"),
        ("graceful_node_shutdown_state", "[]", "unclear", "it is no object"),
        ("pods/u/userns", "{", "unclear", "the record of its user namespace can't be used"),
    ],
)
def test_a_file(tmp_path: Path, name: str, text: str, severity: str, stated: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (mine,) = [each for each in found(tmp_path) if each[1].startswith(f"{name}: ")]
    assert mine[0] == severity
    assert mine[1].startswith(f"{name}: {stated}")


def test_ids_for_user_namespaces_that_no_kernel_maps(tmp_path: Path) -> None:
    (mine,) = [each for each in found(tmp_path, maxPods=65535) if each[0] is Severity.BLOCKS]
    assert mine[1].startswith("userNamespaces.idsPerPod 65536 with maxPods 65535: ")


def test_exclusive_cpus_are_counted(tmp_path: Path) -> None:
    (tmp_path / "cpu_manager_state").write_text(CPUS)
    settings = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    assert found(tmp_path, **settings) == [
        (Severity.TAKEN, "cpu_manager_state: policy static, exclusive CPUs of 1 pod")
    ]


def test_image_records_are_counted_and_bad_ones_named(tmp_path: Path) -> None:
    directory = tmp_path / "image_manager" / "pulled"
    pulling = tmp_path / "image_manager" / "pulling"
    directory.mkdir(parents=True)
    pulling.mkdir()
    (directory / file_name("sha256:abc")).write_bytes(RECORD)
    (directory / file_name("b")).write_bytes(RECORD[:20])
    (pulling / file_name("c")).write_bytes(write_intent("c"))
    assert found(tmp_path) == [
        (Severity.TAKEN, "image_manager/pulling: 1 pull in progress"),
        (
            Severity.UNCLEAR,
            f"image_manager/pulled/{file_name('b')}: not JSON: the agent checks the credentials of "
            "pods with this image again",
        ),
        (Severity.TAKEN, "image_manager/pulled: 1 image pull record"),
    ]


def test_pods_volumes_and_plugins(tmp_path: Path) -> None:
    volume = tmp_path / "pods" / "u" / "volumes" / "kubernetes.io~csi" / "pv"
    volume.mkdir(parents=True)
    (volume / "vol_data.json").write_text('{"driver')
    (tmp_path / "plugins_registry").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "plugins_registry" / "a.sock"))
        texts = found(tmp_path)
    assert (Severity.TAKEN, "pods: 1 pod directory") in texts
    assert (Severity.TAKEN, "pods: 1 CSI volume") in texts
    assert (
        Severity.TAKEN,
        "plugins_registry: a.sock: the agent registers these plugins again",
    ) in texts
    (damaged,) = [text for severity, text in texts if severity is Severity.UNCLEAR]
    assert damaged.startswith("pods/u/volumes/kubernetes.io~csi/pv/mount: vol_data.json")


def test_a_directory_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "allocated_pods_state").mkdir()
    ((severity, text),) = found(tmp_path)
    assert severity is Severity.UNCLEAR
    assert text.startswith("allocated_pods_state: it can't be read: Is a directory")


def test_a_missing_root_directory_is_named(tmp_path: Path) -> None:
    ((severity, text),) = found(tmp_path / "none")
    assert severity is Severity.UNCLEAR
    assert text.endswith("nothing can be taken over: check --root-dir")


def test_an_empty_root_directory_has_nothing(tmp_path: Path) -> None:
    assert found(tmp_path) == []
