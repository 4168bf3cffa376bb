"""The drop-in: which command it has for which ExecStart."""

from __future__ import annotations

import pytest

from kubeletpy.agent.takeover.adopt.steps import (
    KEPT,
    TRIAL,
    DropInError,
    agent_command,
    drop_in_path,
    drop_in_text,
)
from kubeletpy.agent.takeover.preflight.unit_file import read_service
from kubeletpy.cli.adopt import DEPLOYED
from kubeletpy.cli.deploy_files import deploy_files

PROGRAM = "/opt/kubeletpy/.venv/bin/kubeletpy"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/usr/bin/kubelet", f"{PROGRAM} run"),
        ("/usr/bin/kubelet $A ${B} --x=%n", f"{PROGRAM} run $A ${{B}} --x=%n"),
        ("-/usr/bin/kubelet --a  --b", f"-{PROGRAM} run --a  --b"),
        ("@/usr/bin/kubelet kubelet --a", f"{PROGRAM} run --a"),
        (":/usr/bin/kubelet --a=$B", f":{PROGRAM} run --a=$B"),
    ],
)
def test_the_command_keeps_flags_and_variables(command: str, expected: str) -> None:
    assert agent_command(command, PROGRAM) == expected


@pytest.mark.parametrize(
    ("command", "program"), [("", PROGRAM), ("kubelet", PROGRAM), ("/usr/bin/kubelet", "/a b")]
)
def test_commands_that_are_refused(command: str, program: str) -> None:
    with pytest.raises(DropInError):
        agent_command(command, program)


def test_the_drop_in_replaces_the_command() -> None:
    text = drop_in_text(deploy_files()[DEPLOYED], f"{PROGRAM} run --a")
    unit = "[Service]\nExecStart=/usr/bin/kubelet --a\nEnvironment=B=c\n"
    service = read_service([("unit", unit), ("drop-in", text)], {})
    assert service.commands == (f"{PROGRAM} run --a",)
    assert "KillMode=process\n" in text
    with pytest.raises(DropInError):
        drop_in_text("[Unit]\n", "x")


def test_the_path_of_the_drop_in() -> None:
    assert drop_in_path("kubelet.service", TRIAL) == (
        "run/systemd/system/kubelet.service.d/zz-kubeletpy.conf"
    )
    assert drop_in_path("kubelet.service", KEPT).startswith("etc/systemd/system/")
