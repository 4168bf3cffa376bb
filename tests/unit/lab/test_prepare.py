"""Whether virtual nodes can boot, judged by the first lines of a kernel and by free memory."""

from __future__ import annotations

import pytest

from tools.lab.prepare import NEEDED_MIB, obstacle

PTRACE = "Checking that ptrace can change system call numbers..."
STARTED = f"{PTRACE}OK\nLinux version 6.1.176 (x)\nKernel panic - not syncing: VFS\n"


@pytest.mark.parametrize(
    ("output", "free_mib", "why"),
    [
        (STARTED, NEEDED_MIB, None),
        (STARTED, 64, "virtual nodes need 5120 MiB in /dev/shm, which has 64 MiB"),
        (
            f"{PTRACE}check_ptrace : expected SIGSTOP, got status = 256\n\n",
            NEEDED_MIB,
            f"user-mode Linux does not start here: {PTRACE}"
            "check_ptrace : expected SIGSTOP, got status = 256",
        ),
        ("", NEEDED_MIB, "user-mode Linux does not start here: it writes nothing"),
    ],
)
def test_an_obstacle_is_named(output: str, free_mib: int, why: str | None) -> None:
    assert obstacle(output, free_mib) == why
