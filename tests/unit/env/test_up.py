"""./up.sh refuses wrong arguments before it starts anything."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from kubeletpy.cli import up as kubeletpy_up
from tools.env import up
from tools.env.process import CommandError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory; installing or starting anything fails."""

    def started(*arguments: object) -> str:
        raise AssertionError(f"it has started with {arguments}")

    for name in ("install_programs", "choose", "provide_kubectl", "remember_machine"):
        monkeypatch.setattr(up, name, started)
    monkeypatch.setattr("tools.env.up.os.geteuid", lambda: 0)
    return tmp_path / "home"


@pytest.mark.parametrize("arguments", [["foo"], ["--port", "99999999"], ["-v", "x"], ["--no-such"]])
def test_arguments_that_cannot_be_parsed(home: Path, arguments: Sequence[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        up.up(home, arguments)
    assert caught.value.code == 2
    assert not home.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "/no/such/file"], "--config is /no/such/file: cannot be read"),
        (["--node-name", "my_host"], '--node-name is "my_host"'),
        (["--state-dir", "/x"], "--state-dir is for `kubeletpy up`; set KUBELETPY_HOME"),
        (
            ["--container-runtime-endpoint", "unix:///x"],
            "--container-runtime-endpoint is for `kubeletpy up`; set KUBELETPY_RUNTIME",
        ),
        (["--cgroup-driver", "systemd"], "--cgroup-driver is for `kubeletpy up`; a trial finds it"),
    ],
)
def test_arguments_that_the_agent_would_refuse(
    home: Path, arguments: Sequence[str], message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        up.up(home, arguments)


def test_variables_that_cannot_be_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBELETPY_RUNTIME", "docker")
    with pytest.raises(CommandError, match="KUBELETPY_RUNTIME=docker: must be auto, private"):
        up.up(home, [])
    monkeypatch.delenv("KUBELETPY_RUNTIME")
    home.write_text("a file")
    with pytest.raises(CommandError, match=r"can.t be used: File exists"):
        up.up(home, [])


def test_down_takes_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert up.main(["down", "--now"]) == 1
    assert "down takes no arguments: --now" in capsys.readouterr().err


def test_the_help_of_the_script_names_each_argument() -> None:
    script = Path(up.__file__).parents[2] / "up.sh"
    text = subprocess.check_output(["bash", script, "--help"], text=True)
    set_by_it = {"--state-dir", "--container-runtime-endpoint", "--cgroup-driver", "--help"}
    options = {option for each in kubeletpy_up.parser()._actions for option in each.option_strings}
    missing = {each for each in options if each.startswith("--") and each not in text}
    assert missing - set_by_it == {"--verbosity"}


def test_down_names_the_folder_that_it_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBELETPY_HOME", str(tmp_path / "none"))
    monkeypatch.setattr("tools.env.down.os.geteuid", lambda: 0)
    assert up.main(["down"]) == 0
    assert f"no node in {tmp_path / 'none'} " in capsys.readouterr().out
