"""Whether virtual nodes can boot, judged by the first lines of a kernel."""

from __future__ import annotations

import pytest

from tools.lab.check import obstacle

PTRACE = "Checking that ptrace can change system call numbers..."


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (f"{PTRACE}OK\nLinux version 6.1.176 (x)\nKernel panic - not syncing: VFS\n", None),
        (
            f"{PTRACE}check_ptrace : expected SIGSTOP, got status = 256\n\n",
            f"user-mode Linux does not start here: {PTRACE}"
            "check_ptrace : expected SIGSTOP, got status = 256",
        ),
        ("", "user-mode Linux does not start here: it writes nothing"),
    ],
)
def test_a_kernel_that_starts_prints_its_version(output: str, why: str | None) -> None:
    assert obstacle(output) == why
