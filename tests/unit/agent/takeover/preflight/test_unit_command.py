"""From systemd's report on a unit, and environment files, to the command line of its kubelet."""

from __future__ import annotations

import pytest

from kubeletpy.agent.takeover.preflight.unit_command import (
    Service,
    UnitCommand,
    UnitError,
    kubelet_command,
    read_environment_file,
)

KUBELET = "/usr/bin/kubelet"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('KUBELET_KUBEADM_ARGS="--a=b --c"\n', {"KUBELET_KUBEADM_ARGS": "--a=b --c"}),
        ("# c\n; d\n\nA=1\nB=\n", {"A": "1", "B": ""}),
        ("A= x y \nB='z'", {"A": "x y", "B": "z"}),
        ("A=a\\\nb\nB=2", {"A": "ab", "B": "2"}),
        ("A='x\ny'\nB=2", {"A": "x\ny", "B": "2"}),
        ('A="a \\"b\\" \\z"', {"A": 'a "b" \\z'}),
        ("A=1\nA=2", {"A": "2"}),
        ('A=" x " \nB= a b  ', {"A": " x ", "B": "a b"}),
        ("  A = 1\r\n", {"A": "1"}),
    ],
)
def test_environment_files(text: str, found: dict[str, str]) -> None:
    assert read_environment_file("/etc/e", text) == found


@pytest.mark.parametrize(
    ("text", "line"), [("A=1\nwhat\n", 2), ("A='1\n", 1), ("export A=1\n", 1), ("A=1\n\nB", 3)]
)
def test_broken_environment_files_are_named(text: str, line: int) -> None:
    with pytest.raises(UnitError) as raised:
        read_environment_file("/etc/e", text)
    assert str(raised.value) == f"/etc/e, line {line}: it is not an assignment NAME=value"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("$A", "${B}", "--x=${A}"), ("1", "2 3", "4 5", "--x=1 '2 3'")),
        (("$NONE", "${NONE}"), ("",)),
        (("--p=$$1", "x$A"), ("--p=$1", "x$A")),
    ],
)
def test_variables_of_commands(arguments: tuple[str, ...], parts: tuple[str, ...]) -> None:
    made = Service((), (UnitCommand(KUBELET, arguments),), ("A=1 '2 3'", "B=4 5"))
    assert kubelet_command(made, [], "unit") == (KUBELET, *parts)
    command = UnitCommand(KUBELET, arguments, ("no-env-expand",))
    assert kubelet_command(Service((), (command,)), [], "unit") == (KUBELET, *arguments)


def test_environment_files_win_over_environment() -> None:
    command = UnitCommand(KUBELET, ("$A", "$B", "$C", "$D"))
    made = Service((), (command,), ("A=1", "B=2", "C=3", "D=4"), unset=("C", "D=5"))
    assert kubelet_command(made, [{"A": "8"}, {"A": "9"}], "u") == (KUBELET, "9", "2", "4")


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        ((), "unit u: it has no ExecStart"),
        ((UnitCommand("/bin/sh", ("-c",)),), "unit u: ExecStart starts /bin/sh, not a kubelet"),
        ((UnitCommand(KUBELET, ("$A",)),), "unit u: a quote in $A is not closed"),
    ],
)
def test_services_that_start_no_kubelet(commands: tuple[UnitCommand, ...], message: str) -> None:
    with pytest.raises(UnitError) as raised:
        kubelet_command(Service((), commands, ("A='1",)), [], "unit u")
    assert str(raised.value).startswith(message)
