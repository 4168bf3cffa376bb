"""Files that `./up.sh down` removes outside of the state directory, and those that it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.env import debian, down, sweep, up
from tools.env.record import Record

TASKS = "state/io.containerd.runtime.v2.task/k8s.io"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """Directories like those of a node; cgroups and chains of the machine are not touched."""
    found = (tmp_path / "run/c/s", tmp_path / "run/c", tmp_path / "cni/results", tmp_path / "cni")
    monkeypatch.setattr(up, "_FOLDERS", found)
    monkeypatch.setattr(sweep, "host_port_chains", lambda: True)
    monkeypatch.setattr(sweep, "cgroups", lambda _names: [Path("/kubepods")])
    return found


def test_new_directories_are_removed_innermost_first(
    tmp_path: Path, folders: tuple[Path, ...]
) -> None:
    up.remember_machine(tmp_path, Record())
    for each in folders:
        each.mkdir(parents=True, exist_ok=True)
    assert down.remove_rest(tmp_path, Record.read(tmp_path)) == []
    assert [each for each in folders if each.exists()] == []


def test_earlier_or_used_directories_are_kept(tmp_path: Path, folders: tuple[Path, ...]) -> None:
    folders[2].mkdir(parents=True)
    up.remember_machine(tmp_path, Record())
    folders[0].mkdir(parents=True)
    (folders[0] / "socket-of-another").touch()
    assert down.remove_rest(tmp_path, Record.read(tmp_path)) == []
    assert all(each.exists() for each in folders)


def test_the_folders_of_a_node_are_named_innermost_first() -> None:
    for index, folder in enumerate(up._FOLDERS):
        assert not [each for each in up._FOLDERS[:index] if folder.is_relative_to(each)]


def test_loopback_results_of_own_sandboxes_are_found_without_the_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    monkeypatch.setattr(sweep, "CNI_RESULTS", results)
    for name in ("net-a1-eth0", "cni-loopback-a1-lo", "cni-loopback-b2-lo", "cni-loopback-zz-lo"):
        (results / name).touch()
    (tmp_path / TASKS / "b2").mkdir(parents=True)
    found = [path.name for path in sweep._results("net", tmp_path)]
    assert found == ["net-a1-eth0", "cni-loopback-a1-lo", "cni-loopback-b2-lo"]


def test_sockets_of_dead_shims_are_found_by_their_bundles(tmp_path: Path) -> None:
    old, new = tmp_path / TASKS / "a", tmp_path / TASKS / "b"
    for bundle in (old, new):
        bundle.mkdir(parents=True)
    (old / "address").write_text("unix:///run/containerd/s/0a1b")
    text = json.dumps({"version": 3, "address": "unix:///run/containerd/s/2c3d"})
    (new / "bootstrap.json").write_text(text)
    (new / "address").write_text("unix:///etc/passwd")
    found = sorted(map(str, sweep._bundle_sockets(tmp_path)))
    assert found == ["/run/containerd/s/0a1b", "/run/containerd/s/2c3d"]


def test_a_lock_on_a_directory_makes_no_file(tmp_path: Path) -> None:
    with debian.locked(tmp_path):
        assert list(tmp_path.iterdir()) == []
    with debian.locked(tmp_path / "lock"):
        assert (tmp_path / "lock").exists()
