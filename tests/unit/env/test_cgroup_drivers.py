"""How `./up.sh` detects the cgroup driver of a runtime."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from kubeletpy.agent.rootless.containerd import render_config
from tools.env.cgroup_drivers import (
    MAX_WHY,
    TRIAL_PARENT,
    Trial,
    cgroup_directory,
    first_trial,
    next_trial,
    one_line,
    own_driver,
    pod_slices,
)
from tools.env.record import Record

ID = "ab" * 32
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc "
    'create failed: expected cgroupsPath to be of format "slice:prefix:name" for systemd cgroups, '
    f'got "/k8s.io/{ID}" instead: unknown'
)
CRIO = "cri-o configured with systemd cgroup manager, but did not receive slice as parent: /x"
IMAGE = 'failed to get sandbox image "registry.k8s.io/pause:3.6": failed to pull: no route to host'
NO_SYSTEMD = "runc create failed: systemd not running on this host, cannot use systemd cgroups"


@pytest.mark.parametrize(("systemd_runs", "driver"), [(True, "systemd"), (False, "cgroupfs")])
def test_our_own_containerd_has_systemds_driver_where_systemd_runs(
    systemd_runs: bool, driver: str
) -> None:
    assert own_driver(systemd_runs) == driver


@pytest.mark.parametrize(
    ("reported", "trial"),
    [(None, Trial("cgroupfs")), ("cgroupfs", Trial("cgroupfs")), ("systemd", Trial("systemd"))],
)
def test_the_first_trial(reported: str | None, trial: Trial) -> None:
    assert first_trial(reported) == trial


@pytest.mark.parametrize(
    ("tried", "imported", "reported", "error", "following"),
    [
        ("cgroupfs", False, None, RUNC, Trial("systemd")),
        ("cgroupfs", True, None, RUNC, Trial("systemd")),
        ("cgroupfs", False, None, CRIO, Trial("systemd")),
        ("cgroupfs", False, None, IMAGE, Trial("cgroupfs", "registry.k8s.io/pause:3.6")),
        ("systemd", False, "systemd", IMAGE, Trial("systemd", "registry.k8s.io/pause:3.6")),
        ("cgroupfs", True, None, IMAGE, None),
        ("systemd", False, None, RUNC, None),
        ("cgroupfs", False, "cgroupfs", RUNC, None),
        ("systemd", False, "systemd", NO_SYSTEMD, None),
        ("systemd", True, None, NO_SYSTEMD, None),
        ("cgroupfs", False, None, "no network", None),
    ],
)
def test_the_trial_after_a_refusal(
    tried: str, imported: bool, reported: str | None, error: str, following: Trial | None
) -> None:
    assert next_trial(Trial(tried), imported, reported, error) == following


@pytest.mark.parametrize("refusals", [[IMAGE, RUNC], [RUNC, IMAGE]])
def test_trials_end(refusals: list[str]) -> None:
    trial, imported, tried = first_trial(None), False, 0
    for error in refusals * 3:
        following = next_trial(trial, imported, None, error)
        if following is None:
            break
        trial, imported, tried = following, imported or bool(following.image), tried + 1
    assert (trial.driver, imported, tried) == ("systemd", True, 2)


def test_a_trial_leaves_no_cgroup_of_its_own() -> None:
    assert TRIAL_PARENT == {"cgroupfs": "", "systemd": "system.slice"}


def test_an_error_is_one_line_in_bounds() -> None:
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("x" * MAX_WHY) == "x" * MAX_WHY
    assert one_line("x" * 5000) == "x" * MAX_WHY + " …"


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        (f"/kubepods/burstable/podu/{ID}", f"/kubepods/burstable/podu/{ID}"),
        (f"system.slice:cri-containerd:{ID}", f"/system.slice/cri-containerd-{ID}.scope"),
        (
            f"kubepods-burstable-poda_b.slice:cri-containerd:{ID}",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/"
            f"cri-containerd-{ID}.scope",
        ),
        (f"x:cri-containerd:{ID}", f"x:cri-containerd:{ID}"),
        ("a.slice:b", "a.slice:b"),
    ],
)
def test_the_directory_of_a_cgroup(path: str, directory: str) -> None:
    assert cgroup_directory(path) == directory


def test_slices_of_pods() -> None:
    names = ["kubepods.slice", "kubepods-poda_b.slice", "kubepods-besteffort-podc.slice", "poda-b"]
    assert pod_slices({"a-b"}, names) == ["kubepods-poda_b.slice"]
    assert pod_slices({"a-b", "c"}, names) == names[1:3]
    assert pod_slices(set(), names) == []


@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("systemd", [True, False])
def test_containerd_is_configured_for_the_driver(generation: int, systemd: bool) -> None:
    text = render_config(Path("/x"), generation, systemd_cgroup=systemd)
    assert f"SystemdCgroup = {'true' if systemd else 'false'}\n" in text


@pytest.mark.parametrize("generation", [1, 2])
def test_another_runtime_handler_runs_runc_like_the_first(generation: int) -> None:
    config = tomllib.loads(render_config(Path("/x"), generation, handlers=("test-handler",)))
    tables = [each["containerd"] for each in config["plugins"].values() if "containerd" in each]
    assert len(tables) == 1
    assert list(tables[0]["runtimes"]) == ["runc", "test-handler"]
    assert tables[0]["runtimes"]["runc"] == tables[0]["runtimes"]["test-handler"]


def test_a_record_without_a_driver_means_cgroupfs(tmp_path: Path) -> None:
    (tmp_path / "made.json").write_text('{"endpoint": "unix:///x", "private": true}')
    assert Record.read(tmp_path).cgroup_driver == "cgroupfs"
    Record(endpoint="unix:///x", cgroup_driver="systemd").write(tmp_path)
    assert Record.read(tmp_path).cgroup_driver == "systemd"
