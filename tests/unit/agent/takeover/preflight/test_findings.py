"""The kubelet found in the units and processes of a simulated machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from dbus_fast import Message, Variant

from kubeletpy.agent.takeover.preflight.checks import KubeletChoice, version_findings
from kubeletpy.agent.takeover.preflight.findings import Severity
from kubeletpy.agent.takeover.preflight.gather import Options, find_kubelet
from kubeletpy.agent.takeover.preflight.kubelets import UnitMissing
from kubeletpy.agent.takeover.preflight.settings import read_state
from kubeletpy.base.host.dbus import Bus
from kubeletpy.base.kubernetes_version import KubernetesVersion
from kubeletpy.config import NodeFlags, default_settings
from kubeletpy.config.version_choice import NoVersion, ServerVersion, decide
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

FILES = ("/usr/lib/systemd/system/kubelet.service", "/etc/systemd/system/kubelet.service.d/a.conf")
WORDS = ("$KUBELET_KUBECONFIG_ARGS", "$KUBELET_CONFIG_ARGS", "$KUBELET_KUBEADM_ARGS", "$NONE")
ENVIRONMENT = (
    "KUBELET_KUBECONFIG_ARGS=--kubeconfig=/etc/kubernetes/kubelet.conf",
    "KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml",
)
FLAGS = (
    'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/x.sock --node-ip=10.0.0.1"\n'
)
COMMAND = (
    "/usr/bin/kubelet",
    "--kubeconfig=/etc/kubernetes/kubelet.conf",
    "--config=/var/lib/kubelet/config.yaml",
    "--container-runtime-endpoint=unix:///run/x.sock",
    "--node-ip=10.0.0.1",
)


class Systemd:
    """Answers as systemd 252 does; its answers were recorded."""

    def __init__(self) -> None:
        self.units: dict[str, dict[str, Variant]] = {}
        self.directories: list[str] = []

    def unit(self, name: str, *words: str, state: str = "loaded", **more: Variant) -> None:
        error = (f"org.freedesktop.systemd1.{state}", f"Unit {name} is {state}.")
        counts = (0,) * 7
        self.units[name.replace(".", "_2e")] = {
            "LoadState": Variant("s", state),
            "LoadError": Variant("(ss)", error),
            "FragmentPath": Variant("s", FILES[0]),
            "DropInPaths": Variant("as", [FILES[1]]),
            "ExecStart": Variant("a(sasbttttuii)", [(words[0], [*words], False, *counts)]),
            "ExecStartEx": Variant("a(sasasttttuii)", [(words[0], [*words], [], *counts)]),
            "Environment": Variant("as", [*ENVIRONMENT]),
            "EnvironmentFiles": Variant(
                "a(sb)", [("/var/lib/kubelet/kubeadm-flags.env", True), ("/etc/default/k", True)]
            ),
            "UnsetEnvironment": Variant("as", []),
            "WorkingDirectory": Variant("s", "!/srv"),
            **more,
        }

    async def call(self, _to: str, path: str, _interface: str, member: str, *_more: str) -> Message:
        if member == "Get":
            body: object = Variant("as", self.directories)
        else:
            missing = {"LoadState": Variant("s", "not-found")}
            for key, signature in (("LoadError", "(ss)"), ("FragmentPath", "s")):
                missing[key] = Variant(signature, ("", "") if signature == "(ss)" else "")
            missing["DropInPaths"] = Variant("as", [])
            body = self.units.get(path.rpartition("/")[2], missing)
        return Message(member="reply", path="/", body=[body])


class Machine:
    """A root directory, a /proc directory and a systemd."""

    def __init__(self, path: Path) -> None:
        self.root, self.proc = path / "root", path / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "root").symlink_to(self.root)
        self.root.mkdir()
        self.systemd: Systemd | UnitMissing = Systemd()

    def file(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def unit(self, name: str, *words: str, **more: Any) -> None:
        assert isinstance(self.systemd, Systemd)
        self.systemd.unit(name, *words, **more)
        path = self.file(f"etc/systemd/system/{name}", "kubelet")
        self.systemd.directories = [str(path.parent)]

    def kubeadm(self) -> None:
        self.unit("kubelet.service", "/usr/bin/kubelet", *WORDS)
        self.file("var/lib/kubelet/kubeadm-flags.env", FLAGS)

    def process(self, pid: int, command: tuple[str, ...], unit: str = "", root: str = "") -> None:
        directory = self.proc / str(pid)
        directory.mkdir()
        (directory / "cmdline").write_text("".join(f"{word}\0" for word in command))
        (directory / "cgroup").write_text(f"0::/system.slice/{unit}\n")
        (directory / "cwd").symlink_to("/srv")
        (directory / "root").symlink_to(root or self.root)

    def found(self, **options: object) -> KubeletChoice:
        @asynccontextmanager
        async def bus() -> AsyncIterator[Bus]:
            if isinstance(self.systemd, UnitMissing):
                raise self.systemd
            yield cast(Bus, self.systemd)

        desired = Options(**options)  # type: ignore[arg-type]
        return asyncio.run(find_kubelet(desired, self.root, self.proc, bus))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def texts(choice: KubeletChoice, severity: Severity) -> list[str]:
    return [each.text for each in choice.findings if each.severity is severity]


def test_a_node_of_kubeadm(machine: Machine) -> None:
    machine.kubeadm()
    machine.process(7, COMMAND, "kubelet.service")
    machine.process(8, ("/usr/bin/kubelet-helper",))
    found = machine.found()
    assert found.kubelet is not None
    assert found.findings == ()
    assert found.kubelet.source == "process 7 of kubelet.service"
    assert (found.kubelet.program, *found.kubelet.arguments) == COMMAND
    assert found.kubelet.directory == "/srv"
    assert [Path(each).name for each in found.kubelet.files] == [
        "kubelet.service",
        "a.conf",
        "kubeadm-flags.env",
    ]


def test_a_stopped_kubelet_has_the_settings_of_its_unit(machine: Machine) -> None:
    machine.kubeadm()
    found = machine.found()
    assert found.kubelet is not None
    assert (found.kubelet.program, *found.kubelet.arguments) == COMMAND
    assert texts(found, Severity.NOTE) == [
        "unit kubelet.service: its kubelet does not run: the settings are those of its files"
    ]


def test_the_process_counts_where_files_have_changed_since(machine: Machine) -> None:
    machine.kubeadm()
    machine.process(7, (*COMMAND, "--v=4"))
    found = machine.found()
    assert found.kubelet is not None
    assert found.kubelet.arguments[-1] == "--v=4"
    (text,) = texts(found, Severity.NOTE)
    assert text.startswith("unit kubelet.service: the running kubelet has other flags")


def test_a_masked_unit_is_named_if_it_was_requested(machine: Machine) -> None:
    machine.unit("kubelet.service", "/usr/bin/kubelet", state="masked")
    (text,) = texts(machine.found(unit="kubelet.service"), Severity.UNCLEAR)
    assert text == f"unit: unit kubelet.service: it is masked by {FILES[0]}"
    assert texts(machine.found(), Severity.UNCLEAR)[0].startswith("kubelet: none runs")


def test_a_unit_that_does_not_exist_is_named_if_it_was_requested(machine: Machine) -> None:
    (text,) = texts(machine.found(unit="k.service"), Severity.UNCLEAR)
    assert text == "unit: unit k.service: systemd has no such unit"


def test_two_units_are_named(machine: Machine) -> None:
    machine.kubeadm()
    machine.unit("snap.kubelet.service", "/snap/kubelet")
    (text,) = texts(machine.found(), Severity.UNCLEAR)
    assert text == (
        "unit kubelet.service: a kubelet is also started by snap.kubelet.service: two kubelets "
        "must not share a node: mask the other unit, or choose with --unit"
    )
    assert texts(machine.found(unit="snap.kubelet.service"), Severity.UNCLEAR) == []


def test_a_unit_of_another_name_is_found(machine: Machine) -> None:
    machine.unit("snap.kubelet.service", "/snap/kubelet")
    found = machine.found()
    assert found.kubelet is not None
    assert found.kubelet.source == "unit snap.kubelet.service"


def test_two_processes_are_named(machine: Machine) -> None:
    machine.process(7, COMMAND)
    machine.process(9, COMMAND)
    found = machine.found()
    assert found.kubelet is None
    assert texts(found, Severity.UNCLEAR) == [
        "kubelet: 2 kubelets run (processes 7, 9): choose one with --pid"
    ]
    assert machine.found(pid=9).kubelet is not None


def test_a_process_that_the_user_names(machine: Machine) -> None:
    machine.process(8, ("/opt/node-agent", "--config=/c"))
    found = machine.found(pid=8)
    assert found.kubelet is not None
    assert (found.kubelet.source, found.kubelet.arguments) == ("process 8", ("--config=/c",))
    assert texts(machine.found(pid=9), Severity.UNCLEAR) == ["--pid 9: there is no such process"]


def test_a_kubelet_in_a_container(machine: Machine, tmp_path: Path) -> None:
    other = tmp_path / "image"
    other.mkdir()
    machine.process(7, COMMAND, root=str(other))
    found = machine.found()
    assert found.kubelet is None
    assert texts(found, Severity.UNCLEAR) == [
        "process 7: the kubelet runs in a container: its paths are not those of this machine: "
        "run preflight in that container"
    ]


@pytest.mark.parametrize("name", ["kubelet-helper.service", "kubelet@.service", "kubelet.socket"])
def test_what_starts_no_kubelet_is_no_other_unit(machine: Machine, name: str) -> None:
    machine.kubeadm()
    machine.unit(name, "/usr/bin/kubelet" if "@" in name else "/usr/bin/kubelet-helper")
    assert texts(machine.found(), Severity.UNCLEAR) == []


@pytest.mark.parametrize("target", ["kubelet.service", "/dev/null"])
def test_a_link_to_another_name_is_no_other_unit(machine: Machine, target: str) -> None:
    machine.kubeadm()
    machine.unit("k8s.service", "/usr/bin/kubelet")
    path = machine.root / "etc/systemd/system/k8s.service"
    path.unlink()
    path.symlink_to(target)
    assert texts(machine.found(), Severity.UNCLEAR) == []


def test_a_unit_that_systemd_cannot_load_is_named_beside_the_process(machine: Machine) -> None:
    machine.unit("kubelet.service", "/usr/bin/kubelet", state="bad-setting")
    machine.process(7, COMMAND)
    found = machine.found()
    assert found.kubelet is not None
    assert texts(found, Severity.UNCLEAR) == [
        "unit: unit kubelet.service: systemd can't load it (bad-setting): "
        "Unit kubelet.service is bad-setting."
    ]


def test_an_answer_of_another_type_is_refused(machine: Machine) -> None:
    machine.unit("kubelet.service", "/usr/bin/kubelet", Environment=Variant("s", "A=1"))
    assert texts(machine.found(), Severity.UNCLEAR) == [
        "unit: unit kubelet.service: systemd does not report Environment: is it a service?"
    ]


def test_an_environment_file_that_must_exist_is_named(machine: Machine) -> None:
    files = Variant("a(sb)", [("/etc/sysconfig/kubelet", False)])
    machine.unit("kubelet.service", "/usr/bin/kubelet", "$A", EnvironmentFiles=files)
    (text,) = texts(machine.found(), Severity.UNCLEAR)
    assert text.endswith("/etc/sysconfig/kubelet: it can't be read: No such file or directory")


def test_an_environment_file_that_is_not_text_is_named(machine: Machine) -> None:
    files = Variant("a(sb)", [("/etc/k*.env", False)])
    machine.unit("kubelet.service", "/usr/bin/kubelet", "$A", EnvironmentFiles=files)
    path = machine.file("etc/kubelet.env", "")
    path.write_bytes(b"\xff\xfe")
    assert texts(machine.found(), Severity.UNCLEAR) == [f"unit: {path}: it is not UTF-8"]


def test_a_machine_without_systemd(machine: Machine) -> None:
    machine.systemd = UnitMissing("there is no system bus")
    machine.process(7, COMMAND)
    assert machine.found().findings == ()
    found = machine.found(unit="kubelet.service")
    assert texts(found, Severity.UNCLEAR) == ["unit: there is no system bus"]


def test_flags_of_the_user(machine: Machine) -> None:
    machine.kubeadm()
    added = machine.found(flags=("--config=/other",)).kubelet
    assert added is not None
    assert added.arguments == (*COMMAND[1:], "--config=/other")
    alone = machine.found(flags=("--config=/other",), only_flags=True)
    assert alone.kubelet is not None
    assert (alone.kubelet.arguments, alone.findings) == (("--config=/other",), ())


def test_a_machine_without_a_kubelet(machine: Machine) -> None:
    found = machine.found()
    assert found.kubelet is None
    assert texts(found, Severity.UNCLEAR) == [
        "kubelet: none runs, and no unit starts one: name the unit with --unit, or the kubelet's "
        "flags after --"
    ]


# State found by a preflight, and state that cannot be read.

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


# Findings that follow from the versions of API server, kubelet and agent.

SERVER = ServerVersion(1, 37, "v1.37.2")


@pytest.mark.parametrize(
    ("server", "kubelet", "severities"),
    [
        (SERVER, "v1.37.2", ["note"]),
        (SERVER, "", ["note"]),
        (SERVER, "nonsense", ["note"]),
        (SERVER, "v1.36.3", ["note", "differs"]),
        (SERVER, "v1.38.0", ["note", "unclear"]),
        (SERVER, "v1.36.0+k3s1", ["note", "differs"]),
        (ServerVersion(1, 34, "v1.34.0"), "v1.34.0", ["unclear", "differs"]),
        (NoVersion("no answer"), "v1.37.2", ["unclear", "unclear"]),
    ],
)
def test_skew(server: ServerVersion | NoVersion, kubelet: str, severities: list[str]) -> None:
    found = version_findings(decide(None, server, None), kubelet)
    assert [each.severity for each in found] == [Severity(each) for each in severities]


def test_the_texts() -> None:
    requested = KubernetesVersion(36)
    found = version_findings(decide(requested, None, None), "v1.35.4")
    assert [each.text for each in found] == [
        "the agent runs as Kubernetes 1.36: --kubernetes-version=1.36",
        "kubelet v1.35.4: the node's version changes to 1.36: defaults and feature gates are those "
        "of that version: as an upgrade of the kubelet",
    ]
