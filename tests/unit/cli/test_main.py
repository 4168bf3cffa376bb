"""The command line as a user meets it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kubeletpy.cli import main
from kubeletpy.version import VERSION


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


def test_without_a_command_it_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    err = capsys.readouterr().err
    assert all(f"\n  {command} " in err for command in main.COMMANDS)


def test_no_such_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["nonsense"])
    assert ended.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


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
