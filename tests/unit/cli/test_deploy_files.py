"""``kubeletpy deploy-files``."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.cli.deploy_files import PROGRAM, deploy_files, main

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def _written(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_writes_the_files_of_the_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "new" / "deploy")]) == 0
    assert _written(tmp_path / "new" / "deploy") == _written(DEPLOY)
    assert f"{len(_written(DEPLOY))} files written" in capsys.readouterr().out


def test_units_start_the_named_program(tmp_path: Path) -> None:
    naming = [name for name, text in deploy_files().items() if PROGRAM in text]
    assert naming == ["kubelet.service.d/20-kubeletpy.conf", "kubeletpy.service"]
    assert main([str(tmp_path), "--program", "/usr/bin/kubeletpy"]) == 0
    for name in naming:
        text = (tmp_path / name).read_text()
        assert "ExecStart=/usr/bin/kubeletpy run " in text
        assert PROGRAM not in text


@pytest.mark.parametrize("file", ["kubeletpy.service", "kubelet.service.d/20-kubeletpy.conf"])
def test_units_have_no_setting_that_systemd_has_removed(file: str) -> None:
    removed = ("BlockIO", "CPUAccounting", "CPUShares", "MemoryLimit", "StartupCPUShares")
    lines = (DEPLOY / file).read_text().splitlines()
    assert [line for line in lines if line.startswith(removed)] == []


def test_existing_files_are_kept_without_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rbac.yaml").write_text("mine")
    assert main([str(tmp_path)]) == 1
    assert _written(tmp_path) == {"rbac.yaml": b"mine"}
    rule = "--force overwrites, nothing written"
    stated = f"kubeletpy deploy-files: {tmp_path}/rbac.yaml exists; {rule}\n"
    assert capsys.readouterr().err == stated
    assert main([str(tmp_path), "--force"]) == 0
    assert _written(tmp_path) == _written(DEPLOY)
    assert main([str(tmp_path)]) == 1
    more = len(_written(DEPLOY)) - 1
    assert f"/alerts.yml and {more} more exists" in capsys.readouterr().err


def test_a_path_that_cannot_be_a_directory_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main([str(tmp_path / "file")]) == 1
    stated = capsys.readouterr().err
    assert stated.count("\n") == 1
    assert f"{tmp_path}/file/alerts.yml cannot be written: " in stated


def test_bytecode_beside_a_program_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "guests" / "__pycache__"
    cache.mkdir(parents=True)
    (cache / "guest.cpython-311.pyc").write_bytes(b"\xff\xfe")
    (tmp_path / "guests" / "guest.py").write_text("pass\n")
    monkeypatch.setattr("kubeletpy.cli.deploy_files.deploy_folder", lambda: tmp_path)
    assert deploy_files() == {"guests/guest.py": "pass\n"}
