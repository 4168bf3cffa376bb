"""A machine that is a process: requests, copies, pauses and power, with a program as its kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tools.env.process import start_time
from tools.env.waiting import NotReadyError, wait_until
from tools.lab.hosted import HostedMachine
from tools.lab.image import CHECKOUT
from tools.lab.requests import Done, GuestError

KERNEL = "\n".join(
    (
        "import json, os, sys",
        "sys.path.insert(0, sys.argv[1])",
        "from tools.lab.guest import READY, answer",
        "print('console', os.getpid(), flush=True)",
        "line = os.fdopen(int(sys.argv[2]), 'r+b', buffering=0)",
        "def write(value): line.write(json.dumps(value).encode() + b'\\n')",
        "write('noise'), write(READY)",
        "for text in line:",
        "    request = json.loads(text)",
        "    if request['run'][-1] == 'poweroff': break",
        "    write(READY if request['run'][-1] == 'reboot' else answer(request))",
    )
)
"""A program that answers requests on a descriptor, as a node does on its serial line."""


class Program(HostedMachine):
    """A Python program that answers requests on this machine."""

    boot_timeout = 60.0

    def __init__(self, directory: Path, program: str = KERNEL) -> None:
        super().__init__(directory, ("env",))
        self._program = program
        self.mounts: list[tuple[Path, str]] = []

    def _command(self, serial: int) -> Sequence[str]:
        return (sys.executable, "-c", self._program, str(CHECKOUT), str(serial))

    def _mount_command(self, directory: Path, target: str) -> Sequence[str]:
        self.mounts.append((directory, target))
        return ("false",) if directory == Path("/none") else ("true",)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Program]:
    """A machine that has booted."""
    made = Program(tmp_path)
    made.boot()
    yield made
    made.cut_power()


def pid_of(machine: Program) -> int:
    """The process of the kernel that has booted last."""
    return int(machine.console.split()[-1])


def test_a_command_has_its_status_and_output(machine: Program) -> None:
    assert machine.run("sh", "-c", "echo out; exit 3") == Done(3, "out\n")
    with pytest.raises(GuestError, match="No such file"):
        machine.run("/no/such/program")


def test_power_off_and_a_power_cut_end_the_process_and_it_boots_again(machine: Program) -> None:
    first = pid_of(machine)
    machine.power_off()
    assert start_time(first) is None
    with pytest.raises(GuestError, match="the node is off"):
        machine.run("true")
    machine.boot()
    second = pid_of(machine)
    machine.cut_power()
    machine.cut_power()
    assert start_time(second) is None
    assert machine.console.count("console") == 2


def test_a_reboot_keeps_the_process(machine: Program) -> None:
    before = pid_of(machine)
    machine.reboot()
    assert machine.run("true").status == 0
    assert pid_of(machine) == before


def test_a_paused_machine_does_not_run_until_it_is_resumed(machine: Program) -> None:
    def state() -> str:
        return Path(f"/proc/{pid_of(machine)}/stat").read_text().rpartition(")")[2].split()[0]

    machine.pause()
    wait_until(lambda: state() == "T", "the process has stopped")
    machine.resume()
    assert machine.run("echo", "again").output == "again\n"


def test_processor_time_includes_processes_that_have_ended(machine: Program) -> None:
    before = machine.processor_seconds()
    burns = "import time\nwhile time.process_time() < 0.1: pass"
    assert machine.run(sys.executable, "-c", burns).status == 0
    assert machine.processor_seconds() - before >= 0.05


def test_the_exchange_is_mounted_once_for_each_boot(machine: Program, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("x")
    # nothing is mounted on this machine, where the directory does not exist
    for _ in range(2):
        with pytest.raises(GuestError, match="was not copied to /tmp/none/target"):
            machine.copy_in(source, "/tmp/none/target")
    assert machine.mounts == [(tmp_path / "exchange", "/run/lab-exchange")]
    machine.reboot()
    with pytest.raises(GuestError, match="was not copied"):
        machine.copy_out("/none", tmp_path / "target")
    assert len(machine.mounts) == 2


def test_a_failed_mount_is_an_error(machine: Program, tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="/none was not mounted"):
        machine.mount_host(Path("/none"), str(tmp_path / "target"))


def test_a_kernel_that_ends_is_no_boot(tmp_path: Path) -> None:
    machine = Program(tmp_path, "print('panic')")
    with pytest.raises(NotReadyError, match="no boot: the node went off"):
        machine.boot()
    assert "panic" in machine.console
