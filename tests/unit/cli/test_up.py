"""`kubeletpy up` started wrongly says what to do, without a traceback."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kubeletpy.cli.up import main


@pytest.mark.parametrize(
    ("content", "words"),
    [("{{{", "YAML or JSON"), ("- a", "KubeletConfiguration"), ("kind: Pod", "Pod")],
)
def test_bad_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    assert main(["--state-dir", str(tmp_path / "s"), "--config", str(file)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("kubeletpy: ")
    assert words in said


def test_a_port_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--port", "99999"])
    assert "99999 is not from 0 to 65535" in capsys.readouterr().err


def test_a_port_that_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--state-dir", str(tmp_path), "--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert f"can't listen on 127.0.0.1:{port}" in said
    assert "Traceback" not in said


def test_a_database_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / "api.db").write_text("junk, and enough of it to be no empty database")
    assert main(["--state-dir", str(tmp_path), "--port", "0"]) == 1
    said = capsys.readouterr().err
    assert "api.db" in said
    assert "move the file away" in said
    assert "Traceback" not in said


def test_a_directory_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["--state-dir", str(tmp_path / "file" / "x"), "--port", "0"]) == 1
    said = capsys.readouterr().err
    assert "--state-dir" in said
    assert "Traceback" not in said
