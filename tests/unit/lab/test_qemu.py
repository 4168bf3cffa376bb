"""The command line of QEMU, and the directories that its node may mount."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tools.lab import qemu
from tools.lab.kernel import Kernel
from tools.lab.qemu import Qemu, qemu_command
from tools.lab.requests import GuestError

KERNEL = Kernel(Path("/k/vmlinuz"), Path("/k/initrd"), Path("/k/modules"))


def command_of(architecture: str) -> list[str]:
    return qemu_command(
        KERNEL,
        Path("/d/overlay"),
        Path("/d/console.log"),
        architecture=architecture,
        memory_mib=512,
        serial=7,
        shares={"share0": Path("/d/exchange")},
        more=["quiet"],
    )


def test_a_command_line_has_kernel_disk_serial_lines_and_shares() -> None:
    command = command_of("amd64")
    assert command[0] == "qemu-system-x86_64"
    pairs = list(itertools.pairwise(command))
    for pair in (
        ("-accel", "tcg,thread=multi"),
        ("-smp", "2"),
        ("-m", "512"),
        ("-kernel", "/k/vmlinuz"),
        ("-initrd", "/k/initrd"),
        ("-drive", "file=/d/overlay,format=qcow2,if=virtio"),
        ("-chardev", "socket,id=line,fd=7"),
        ("-chardev", "file,id=console,path=/d/console.log,append=on"),
    ):
        assert pair in pairs
    # the first is the console's, ttyS0; the second is that of requests, ttyS1
    lines = [value for name, value in pairs if name == "-serial"]
    assert lines == ["chardev:console", "chardev:line"]
    arguments = command[command.index("-append") + 1].split()
    assert {"root=/dev/vda", "console=ttyS0", "cgroup_no_v1=all"} < set(arguments)
    assert arguments[-1] == "quiet"
    modules, exchange = (value for name, value in pairs if name == "-virtfs")
    assert "path=/k/modules,mount_tag=modules," in modules
    assert modules.endswith(",readonly=on")
    assert "path=/d/exchange,mount_tag=share0," in exchange
    assert "readonly" not in exchange


def test_arm64_has_another_console_and_no_second_line_of_its_kind() -> None:
    command = command_of("arm64")
    assert command[:3] == ["qemu-system-aarch64", "-machine", "virt"]
    assert "console=ttyAMA0" in command[command.index("-append") + 1].split()
    assert ("-device", "pci-serial,chardev=line") in itertools.pairwise(command)
    assert command.count("-serial") == 1


def test_only_shares_can_be_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(qemu, "run", lambda *parts: made.append(parts))
    node = Qemu(Path("/disk.img"), tmp_path, KERNEL, shares=[Path("/checkout")])
    ((*_, backing, overlay),) = made
    assert (backing, overlay) == (Path("/disk.img"), tmp_path / "overlay")
    with pytest.raises(GuestError, match="/etc is not a share of this node"):
        node.mount_host(Path("/etc"), "/x")
    with pytest.raises(GuestError, match="the node is off"):
        node.mount_host(Path("/checkout"), "/x")
