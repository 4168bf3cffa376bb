"""Nodes under user-mode Linux: their kernel, and how they mount directories of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from tools.lab.uml import UmlKernel, UserModeLinux, first_program, keep_time

KERNEL = """
import signal, time
time.sleep(0.2)  # signals come before its handler
signal.signal(signal.SIGALRM, lambda *_: exit(7))
time.sleep(600)
"""


def test_another_kernel_boots_with_its_ram_disk(tmp_path: Path) -> None:
    own = UserModeLinux(Path("/d"), tmp_path, more=("quiet",))._command(7)
    kernel = UmlKernel("/k/linux.uml", Path("/k/initrd"))
    other = UserModeLinux(Path("/d"), tmp_path, more=("quiet",), kernel=kernel)._command(7)
    assert own[3] == "linux.uml"
    assert list(other)[3:] == ["/k/linux.uml", *own[4:], "initrd=/k/initrd"]


def test_nodes_are_spread_over_processors_and_keep_theirs(tmp_path: Path) -> None:
    allowed = os.sched_getaffinity(0)
    nodes = [UserModeLinux(Path("/d"), tmp_path) for _ in allowed]
    commands = [list(node._command(7)[:3]) for node in nodes]
    assert sorted(commands) == sorted(["taskset", "--cpu-list", str(each)] for each in allowed)
    assert [list(node._command(8)[:3]) for node in nodes] == commands


def test_a_ram_disk_mounts_the_modules_of_its_kernel() -> None:
    script = first_program(Path("/cache/modules/7.2.7"))
    assert 'mount -t hostfs -o ro,/cache/modules/7.2.7 none "$directory"' in script
    assert script.endswith("exec switch_root /root /sbin/init\n")


def test_a_directory_is_mounted_by_the_call_that_all_kernels_take(tmp_path: Path) -> None:
    command = UserModeLinux(Path("/d"), tmp_path)._mount_command(Path("/data"), "/data")
    assert command[:2] == ("env", "LIBMOUNT_FORCE_MOUNT2=always")
    assert command[-4:] == ("-o", "/data", "none", "/data")


def test_a_kernel_gets_its_timers_signal_once_it_has_a_handler() -> None:
    off = threading.Event()
    with subprocess.Popen([sys.executable, "-c", KERNEL]) as kernel:
        keeper = threading.Thread(target=keep_time, args=(kernel, off, 0.01))
        keeper.start()
        try:
            assert kernel.wait(60) == 7
        finally:
            off.set()
            kernel.kill()
    keeper.join(60)
    assert not keeper.is_alive()
