"""The kubelet found in the unit files and processes of a simulated machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.agent.takeover.preflight.checks import KubeletChoice
from kubeletpy.agent.takeover.preflight.findings import Severity
from kubeletpy.agent.takeover.preflight.gather import Options, find_kubelet

UNIT = "[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n"
KUBEADM = """# made by kubeadm
[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS \
$KUBELET_EXTRA_ARGS
"""
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


class Machine:
    """A root directory and a /proc directory."""

    def __init__(self, path: Path) -> None:
        self.root, self.proc = path / "root", path / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "root").symlink_to(self.root)
        self.root.mkdir()

    def file(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def kubeadm(self) -> None:
        self.file("usr/lib/systemd/system/kubelet.service", UNIT)
        self.file("usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", KUBEADM)
        self.file("var/lib/kubelet/kubeadm-flags.env", FLAGS)

    def process(self, pid: int, command: tuple[str, ...], unit: str = "", root: str = "") -> None:
        directory = self.proc / str(pid)
        directory.mkdir()
        (directory / "cmdline").write_text("".join(f"{word}\0" for word in command))
        (directory / "cgroup").write_text(f"0::/system.slice/{unit}\n")
        (directory / "cwd").symlink_to("/srv")
        (directory / "root").symlink_to(root or self.root)

    def found(self, **options: object) -> KubeletChoice:
        return find_kubelet(Options(**options), self.root, self.proc)  # type: ignore[arg-type]


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
        "10-kubeadm.conf",
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


def test_drop_ins_of_etc_win_by_name(machine: Machine) -> None:
    machine.kubeadm()
    machine.file(
        "etc/systemd/system/kubelet.service.d/10-kubeadm.conf",
        "[Service]\nExecStart=\nExecStart=/opt/kubelet --v=2\n",
    )
    machine.file("run/systemd/system/kubelet.service.d/05-early.conf", "[Service]\nExecStart=x\n")
    found = machine.found()
    assert found.kubelet is not None
    assert (found.kubelet.program, found.kubelet.arguments) == ("/opt/kubelet", ("--v=2",))


@pytest.mark.parametrize("how", ["link", "empty"])
def test_a_masked_unit_is_named_if_it_was_requested(machine: Machine, how: str) -> None:
    path = machine.file("etc/systemd/system/kubelet.service", "")
    if how == "link":
        path.unlink()
        path.symlink_to("/dev/null")
    machine.file("usr/lib/systemd/system/kubelet.service", UNIT)
    (text,) = texts(machine.found(unit="kubelet.service"), Severity.UNCLEAR)
    assert text == f"unit: unit kubelet.service: it is masked by {path}"
    assert texts(machine.found(), Severity.UNCLEAR)[0].startswith("kubelet: none runs")


def test_two_units_are_named(machine: Machine) -> None:
    machine.kubeadm()
    machine.file("etc/systemd/system/snap.kubelet.service", "[Service]\nExecStart=/snap/kubelet\n")
    (text,) = texts(machine.found(), Severity.UNCLEAR)
    assert text == (
        "unit kubelet.service: a kubelet is also started by snap.kubelet.service: two kubelets "
        "must not share a node: mask the other unit, or choose with --unit"
    )
    assert texts(machine.found(unit="snap.kubelet.service"), Severity.UNCLEAR) == []


def test_a_unit_of_another_name_is_found(machine: Machine) -> None:
    machine.file("etc/systemd/system/snap.kubelet.service", "[Service]\nExecStart=/snap/kubelet\n")
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


def test_a_drop_in_that_is_not_text_is_named(machine: Machine) -> None:
    machine.kubeadm()
    path = machine.root / "usr/lib/systemd/system/kubelet.service.d/20-bad.conf"
    path.write_bytes(b"\xff\xfe")
    found = machine.found()
    assert found.kubelet is None
    assert texts(found, Severity.UNCLEAR) == [f"unit: {path}: it is not UTF-8"]


def test_an_unreadable_drop_in_is_named_beside_the_process(machine: Machine) -> None:
    machine.kubeadm()
    path = machine.root / "usr/lib/systemd/system/kubelet.service.d/20-gone.conf"
    path.symlink_to(machine.root / "missing")
    machine.process(7, COMMAND)
    found = machine.found()
    assert found.kubelet is not None
    assert texts(found, Severity.UNCLEAR) == [
        f"unit: {path}: it can't be read: No such file or directory"
    ]


def test_an_environment_file_that_must_exist_is_named(machine: Machine) -> None:
    unit = "[Service]\nEnvironmentFile=/etc/sysconfig/kubelet\nExecStart=/usr/bin/kubelet $A\n"
    machine.file("etc/systemd/system/kubelet.service", unit)
    (text,) = texts(machine.found(), Severity.UNCLEAR)
    assert text.endswith("/etc/sysconfig/kubelet: it can't be read: No such file or directory")


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
