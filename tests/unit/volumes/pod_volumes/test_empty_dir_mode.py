"""The mode of an emptyDir: exactly as requested, on every medium, if the gate is on."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.files.disk import is_mount_point, unmount
from kubeletpy.volumes.files.paths import PodPaths
from kubeletpy.volumes.pod_volumes.payload import FileOwner
from kubeletpy.volumes.pod_volumes.planned import PlannedVolume, plan_volumes
from kubeletpy.volumes.pod_volumes.set_up import (
    PodSetting,
    VolumeFeatures,
    VolumeWork,
    own_mode,
    set_up_all,
)

ON = VolumeFeatures(empty_dir_mode=True)


@pytest.fixture
def paths() -> Iterator[PodPaths]:
    root = Path(tempfile.mkdtemp(prefix="kpv-", dir="/tmp"))
    made = PodPaths(str(root), "u")
    yield made
    directory = made.volume("emptyDir", "v")
    if is_mount_point(directory):
        unmount(directory)
    shutil.rmtree(root)


def make(
    paths: PodPaths, source: dict[str, Any], features: VolumeFeatures, group: int | None = None
) -> int:
    """Set the volume up as an agent that has just started does; the mode of its directory."""
    container = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volumes = [{"name": "v", "emptyDir": source}]
    about = {"name": "p", "namespace": "n", "uid": "u"}
    spec = {"containers": [container], "volumes": volumes}
    pod = Pod(cast(Any, {"metadata": about, "spec": spec}))
    (volume,) = plan_volumes(pod).volumes
    assert isinstance(volume, PlannedVolume)
    setting = PodSetting(pod, paths, FileOwner(group=group), "1Gi", 0.0, features=features)
    (outcome,) = set_up_all([VolumeWork(volume, ())], setting)
    assert outcome.problem == ""
    return stat.S_IMODE(os.stat(paths.volume("emptyDir", "v")).st_mode)  # noqa: PTH116


@pytest.mark.usefixtures("strict_umask")
@pytest.mark.parametrize("medium", ["", "Memory"])
@pytest.mark.parametrize(
    ("mode", "fs_group", "expected"),
    [
        (0o750, None, 0o750),
        (0o1777, None, 0o1777),
        (0o1770, None, 0o1770),
        (0, None, 0),
        (0o700, 42, 0o2770),
        (0o1755, 42, 0o3775),
    ],
)
def test_the_mode_is_exact(
    paths: PodPaths, medium: str, mode: int, fs_group: int | None, expected: int
) -> None:
    source = {"mode": mode, **({"medium": medium} if medium else {})}
    assert make(paths, source, ON, fs_group) == expected


@pytest.mark.usefixtures("strict_umask")
@pytest.mark.parametrize(("medium", "own"), [("", 0o777), ("Memory", 0o1777)])
@pytest.mark.parametrize(
    ("source", "features"), [({}, ON), ({"mode": 0o700}, VolumeFeatures())], ids=["none", "off"]
)
def test_without_a_mode_or_the_gate_the_medium_decides(
    paths: PodPaths, source: dict[str, Any], features: VolumeFeatures, medium: str, own: int
) -> None:
    supplied = {**source, **({"medium": medium} if medium else {})}
    assert make(paths, supplied, features) == own


@pytest.mark.parametrize("medium", ["", "Memory"])
def test_the_next_agent_leaves_the_mode_that_a_container_gave(paths: PodPaths, medium: str) -> None:
    source = {"mode": 0o750, **({"medium": medium} if medium else {})}
    make(paths, source, ON)
    Path(paths.volume("emptyDir", "v")).chmod(0o711)
    assert make(paths, source, ON) == 0o711


@pytest.mark.parametrize("medium", ["", "Memory"])
def test_a_kill_before_the_mode_is_set_is_recovered(
    paths: PodPaths, medium: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = {"mode": 0o750, **({"medium": medium} if medium else {})}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "chmod", _killed)
        make(paths, source, ON)
    assert make(paths, source, ON) == 0o750


def _killed(path: Path, mode: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("mode", "obeyed", "expected"),
    [
        (None, True, None),
        (0, True, 0),
        (0o4755, True, 0o755),
        (0o7777, True, 0o1777),
        (-1, True, 0o1777),
        (2**31 - 1, True, 0o1777),
        (0o750, False, None),
    ],
)
def test_bits_that_no_volume_may_have_are_left_out(
    mode: int | None, obeyed: bool, expected: int | None
) -> None:
    assert own_mode({} if mode is None else {"mode": mode}, obeyed=obeyed) == expected
