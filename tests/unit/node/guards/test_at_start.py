"""Changes to machine and process at the start, and the logged messages."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from kubeletpy.config import default_settings
from kubeletpy.node.guards import at_start
from kubeletpy.node.guards.at_start import (
    GuardedHost,
    MachineAtStart,
    StartSettings,
    compare,
    read_sysctls,
    supports_noswap,
)
from tests.unit.node.guards.test_kernel_settings import RIGHT, look_alike
from tests.virtual_time import on_virtual_time

OWN = 500


def proc(root: Path, **settings: str) -> Path:
    look_alike(root / "sys", {**RIGHT, "kernel.panic": "1\n"})
    (root / str(OWN)).mkdir(parents=True)
    (root / str(OWN) / "oom_score_adj").write_text("0\n")
    return root


class Node:
    """A node whose guards are started."""

    def __init__(self, root: Path, settings: StartSettings, **facts: object) -> None:
        self.events: list[tuple[str, str]] = []
        self.proc = proc(root / "proc")
        supplied = {"cgroup_v2": True, "swap_on": False, "kernel_version": "6.1.0", **facts}
        self.guards = MachineAtStart(
            settings,
            GuardedHost(proc=self.proc, own_pid=OWN),
            lambda reason, message: self.events.append((reason, message)),
            root=root,
            cgroup_v2=bool(supplied["cgroup_v2"]),
            swap_on=bool(supplied["swap_on"]),
            kernel_version=str(supplied["kernel_version"]),
            in_user_namespace=bool(supplied.get("contained")),
        )

    @property
    def score(self) -> str:
        return (self.proc / str(OWN) / "oom_score_adj").read_text().strip()


@pytest.mark.parametrize(
    ("fields", "keep", "sets"),
    [
        ({}, False, True),
        ({}, True, False),
        # protectKernelDefaults refuses wrong settings instead of changing them
        ({"protectKernelDefaults": True}, False, False),
    ],
)
def test_when_kernel_settings_are_set(fields: dict[str, object], keep: bool, sets: bool) -> None:
    settings = StartSettings.from_settings(default_settings(**fields), keep_kernel=keep)
    assert settings == StartSettings(-999, 1_000_000, sets)


@pytest.mark.parametrize("sets", [True, False])
@on_virtual_time
async def test_the_start(tmp_path: Path, sets: bool, caplog: pytest.LogCaptureFixture) -> None:
    node = Node(tmp_path, StartSettings(-998, 0, sets))
    await node.guards.start()
    assert node.score == "-998"
    assert (not compare(read_sysctls(node.proc / "sys"))) is sets
    assert (node.events, node.guards.refused) == ([], ())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@on_virtual_time
async def test_refused_changes_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, StartSettings(set_kernel_settings=True))
    (node.proc / str(OWN) / "oom_score_adj").unlink()
    (node.proc / "sys/kernel/panic").unlink()
    await node.guards.start()
    task = asyncio.create_task(node.guards.run())
    await asyncio.sleep(1000)
    assert node.guards.refused == (
        "oomScoreAdj -999: No such file or directory",
        "kernel settings: kernel.panic is not readable, must be 10 (No such file or directory)",
    )
    assert len(caplog.records) == 2
    (node.proc / str(OWN) / "oom_score_adj").write_text("0")
    await asyncio.sleep(300)
    assert node.score == "-999"
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize(
    ("facts", "trial", "reasons"),
    [
        ({"cgroup_v2": False}, None, ["CgroupV1"]),
        ({"swap_on": True, "kernel_version": "6.4.0-1"}, None, []),
        ({"swap_on": True, "kernel_version": "6.3.9"}, True, []),
        (
            {"swap_on": True, "kernel_version": "6.3.9"},
            False,
            ["PossibleMemoryBackedVolumesOnDisk"],
        ),
        (
            {"swap_on": True, "kernel_version": "6.12", "contained": True},
            None,
            ["PossibleMemoryBackedVolumesOnDisk"],
        ),
    ],
)
def test_warnings(
    tmp_path: Path,
    facts: dict[str, object],
    trial: bool | None,
    reasons: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @on_virtual_time
    async def begin() -> None:
        tried: list[Path] = []

        def mounts(root: Path) -> bool:
            tried.append(root)
            return bool(trial)

        monkeypatch.setattr(at_start, "mounts_noswap", mounts)
        node = Node(tmp_path, StartSettings(), **facts)
        await node.guards.start()
        assert [reason for reason, _ in node.events] == reasons
        assert bool(tried) is (trial is not None)

    begin()


@pytest.mark.parametrize(
    ("version", "contained", "known"),
    [
        ("6.4", False, True),
        ("6.10.1", False, True),
        ("7.0", False, True),
        ("6.3.99", False, None),
        ("5.15.0-generic", False, None),
        ("", False, None),
        ("6.10.1", True, False),
    ],
)
def test_noswap(version: str, contained: bool, known: bool | None) -> None:
    assert supports_noswap(version, in_user_namespace=contained) is known
