"""The command line as a user sees it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from kubeletpy.base.kubernetes_version import OLDEST
from kubeletpy.base.version import VERSION
from kubeletpy.cli import main


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_version(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"kubeletpy {VERSION} (Python 3.")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(f"\n  {command} " in out for command in main.COMMANDS)


def test_without_a_command_all_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    err = capsys.readouterr().err
    assert all(f"\n  {command} " in err for command in main.COMMANDS)


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("expalin", "there is no command 'expalin'; did you mean explain?"),
        ("xyz", "there is no command 'xyz'; the commands are run, up, down, explain"),
    ],
)
def test_no_such_command(command: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([command])
    assert ended.value.code == 2
    assert hint in capsys.readouterr().err


def test_help_imports_nothing_slow() -> None:
    code = (
        "import sys\nfrom kubeletpy.cli.main import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "slow = {'asyncio', 'aiohttp', 'grpc', 'kubernetes', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'imported: {slow}' if slow else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_wrong_flags_import_nothing_slow() -> None:
    code = (
        "import sys\nfrom kubeletpy.cli.main import main\n"
        "assert main(['run', '--nonsense']) == 1\n"
        "slow = {'aiohttp', 'grpc', 'kubernetes'} & set(sys.modules)\n"
        "sys.exit(f'imported: {slow}' if slow else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--nonsense: no such flag" in done.stderr


@pytest.mark.parametrize("name", ["kubelet", "/usr/bin/kubelet"])
def test_called_by_the_kubelets_name(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--version"])
    assert main.main() == 0
    # kubeadm parses it like this
    form = r"\s*Kubernetes v(\d+\.\d+\.\d+)([-0-9a-zA-Z_\.+]*)\s*"
    stated = re.fullmatch(form, capsys.readouterr().out)
    assert stated is not None
    assert (stated[1], stated[2]) == (OLDEST.release[1:], f"+kubeletpy.{VERSION}")


def test_the_version_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.kubelet(["--version=raw"]) == 0
    assert f'GitVersion:"{OLDEST.kubelet}"' in capsys.readouterr().out
    assert main.kubelet(["--version=what"]) == 1
    assert "--version" in capsys.readouterr().err
