"""Unit files, drop-ins and environment files as systemd reads them."""

from __future__ import annotations

import pytest

from kubeletpy.agent.takeover.preflight.unit_file import (
    Service,
    UnitError,
    expand_command,
    kubelet_command,
    read_environment_file,
    read_service,
    split_parts,
)

SPECIFIERS = {"H": "node-1"}


def service(*texts: str) -> Service:
    named = [(f"/u/{number}", text) for number, text in enumerate(texts)]
    return read_service(named, SPECIFIERS)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("a  b\tc", ["a", "b", "c"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ("--x='a b'c", ["--x=a bc"]),
        ('""', [""]),
        (r"a\x20b", ["a b"]),
        (r"a\sb\\", ["a b\\"]),
        (r"a\zb", ["a\\zb"]),
        ('"it\'s"', ["it's"]),
    ],
)
def test_splitting_into_words(text: str, parts: list[str]) -> None:
    assert split_parts(text, "here") == parts


def test_an_open_quote_is_named() -> None:
    with pytest.raises(UnitError, match=r"kubelet\.service, line 3: a quote is not closed"):
        split_parts("'a", "kubelet.service, line 3")


@pytest.mark.parametrize(
    ("texts", "commands"),
    [
        (["[Service]\nExecStart=/usr/bin/kubelet\n"], ("/usr/bin/kubelet",)),
        (["[Service]\nExecStart=a\n", "[Service]\nExecStart=\nExecStart=b"], ("b",)),
        (
            ["[Service]\nExecStart=a \\\n  --x \\\n# comment\n; other\n  --y\n"],
            ("a  --x  --y",),
        ),
        (["[Unit]\nExecStart=a\n[Service]\n ExecStart = b \n[Install]\nExecStart=c\n"], ("b",)),
        (["[Service]\nExecStart=a --name=%H --p=50%%"], ("a --name=node-1 --p=50%",)),
        (["[Service]\nExecStart=a \\\n"], ("a",)),
        ([""], ()),
    ],
)
def test_exec_start(texts: list[str], commands: tuple[str, ...]) -> None:
    assert service(*texts).commands == commands


def test_environment_is_added_and_reset() -> None:
    first = '[Service]\nEnvironment="A=1 2" B=3\nEnvironmentFile=-/etc/a\n'
    found = service(first, "[Service]\nEnvironment=B=4\nEnvironmentFile=/etc/b\n")
    assert (found.environment, found.environment_files) == (
        {"A": "1 2", "B": "4"},
        ("-/etc/a", "/etc/b"),
    )
    found = service(first, "[Service]\nEnvironment=\nEnvironmentFile=\nUnsetEnvironment=A B=1\n")
    assert (found.environment, found.environment_files) == ({}, ())
    assert found.unset == ("A", "B=1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[Service]\nnonsense\n", "/u/0, line 2: it is neither a section nor NAME=value"),
        ("[Service]\nEnvironment=A\n", "/u/0, line 2: Environment has a word"),
        ("[Service]\nExecStart=a %q\n", "/u/0, line 2: specifier %q is not known here"),
    ],
)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(UnitError) as raised:
        service(text)
    assert str(raised.value).startswith(message)


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
    ],
)
def test_environment_files(text: str, found: dict[str, str]) -> None:
    assert read_environment_file("/etc/e", text) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A=1\nwhat\n", "/etc/e, line 2: it is not an assignment NAME=value"),
        ("A='1\n", "/etc/e, line 1: a quote is not closed"),
        ("export A=1\n", "/etc/e, line 1: it is not an assignment NAME=value"),
    ],
)
def test_broken_environment_files_are_named(text: str, message: str) -> None:
    with pytest.raises(UnitError) as raised:
        read_environment_file("/etc/e", text)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("kubelet $A ${B} --x=${A}", ["kubelet", "1", "2 3", "4 5", "--x=1 '2 3'"]),
        ("kubelet $NONE ${NONE}", ["kubelet", ""]),
        ("-kubelet --p=$$1 x$A", ["kubelet", "--p=$1", "x$A"]),
        ("@kubelet name --x", ["kubelet", "--x"]),
        (":kubelet $A", ["kubelet", "$A"]),
    ],
)
def test_variables_of_commands(text: str, parts: list[str]) -> None:
    variables = {"A": "1 '2 3'", "B": "4 5"}
    assert expand_command(text, variables, "here") == parts


def test_environment_files_win_over_environment() -> None:
    made = Service(("/usr/bin/kubelet $A $B $C",), {"A": "1", "B": "2", "C": "3"}, unset=("C",))
    assert kubelet_command(made, [{"A": "8"}, {"A": "9"}], "unit") == ("/usr/bin/kubelet", "9", "2")


@pytest.mark.parametrize(
    ("commands", "message"),
    [
        ((), "unit u: it has no ExecStart"),
        (("/bin/sh -c kubelet",), "unit u: ExecStart starts /bin/sh, not a kubelet"),
        (("@",), "unit u: ExecStart names no program"),
    ],
)
def test_services_that_start_no_kubelet(commands: tuple[str, ...], message: str) -> None:
    with pytest.raises(UnitError) as raised:
        kubelet_command(Service(commands), [], "unit u")
    assert str(raised.value).startswith(message)
