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
from kubeletpy.agent.takeover.preflight.unit_command import UnitCommand
from kubeletpy.cli.adopt import DEPLOYED
from kubeletpy.cli.deploy_files import deploy_files

PROGRAM = "/opt/kubeletpy/.venv/bin/kubeletpy"


@pytest.mark.parametrize(
    ("arguments", "flags", "expected"),
    [
        ((), (), f"{PROGRAM} run"),
        (("$A", "${B}", "--x=50%"), (), f"{PROGRAM} run $A ${{B}} --x=50%%"),
        (("--a",), ("ignore-failure", "no-env-expand"), f"-:{PROGRAM} run --a"),
        (
            ("--a=b c", '--q="x"', "", ";", "a\\b", "t\tab"),
            (),
            f'{PROGRAM} run "--a=b c" "--q=\\"x\\"" "" ";" a\\\\b "t\\tab"',
        ),
    ],
)
def test_the_command_keeps_flags_and_variables(
    arguments: tuple[str, ...], flags: tuple[str, ...], expected: str
) -> None:
    """systemd 252 reads each back as these words."""
    kubelet = UnitCommand("/usr/bin/kubelet", arguments, flags)
    assert agent_command(kubelet, PROGRAM) == expected
    agent = UnitCommand("/opt/old/kubeletpy", ("run", *arguments), flags)
    assert agent_command(agent, PROGRAM) == expected


@pytest.mark.parametrize(
    ("command", "program"),
    [("/bin/sh", PROGRAM), ("kubelet-helper", PROGRAM), ("/usr/bin/kubelet", "/a b")],
)
def test_commands_that_are_refused(command: str, program: str) -> None:
    with pytest.raises(DropInError):
        agent_command(UnitCommand(command), program)


def test_the_drop_in_replaces_the_command() -> None:
    text = drop_in_text(deploy_files()[DEPLOYED], f"{PROGRAM} run --a")
    assert text.splitlines()[1:4] == [
        "[Service]",
        "ExecStart=",
        f"ExecStart={PROGRAM} run --a",
    ]
    assert text.count("ExecStart=") == 2
    assert "KillMode=process\n" in text
    with pytest.raises(DropInError):
        drop_in_text("[Unit]\n", "x")


def test_the_path_of_the_drop_in() -> None:
    assert drop_in_path("kubelet.service", TRIAL) == (
        "run/systemd/system/kubelet.service.d/zz-kubeletpy.conf"
    )
    assert drop_in_path("kubelet.service", KEPT).startswith("etc/systemd/system/")
