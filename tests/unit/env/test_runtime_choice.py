"""`./up.sh` with a runtime that is already running: trial sandboxes, on a test double."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from kubeletpy.remote.generated import api_pb2 as pb
from tests.unit.env.test_cgroup_drivers import IMAGE, NO_SYSTEMD, RUNC
from tools.env import debian, runtime_choice
from tools.env.process import CommandError
from tools.env.record import Record


class Refused(grpc.RpcError):
    """A call that failed with a text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._text = text

    def details(self) -> str:
        return self._text

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNKNOWN


class Machines:
    """The containerd of a machine."""

    def __init__(self, *, systemd: bool, reports: bool, image: bool, broken: str = "") -> None:
        self._systemd, self._reports, self.image, self._broken = systemd, reports, image, broken
        self.tried: list[str] = []
        self.there: list[Any] = []

    def __call__(self, socket: Path) -> Machines:
        return self

    def __enter__(self) -> Machines:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.there == [], "a trial is removed"

    def problems(self) -> str:
        return ""

    def has_image(self, name: str) -> bool:
        return True

    def cgroup_driver(self) -> str | None:
        return ("systemd" if self._systemd else "cgroupfs") if self._reports else None

    def sandbox_config(self, name: str, cgroup_parent: str) -> Any:
        linux = pb.LinuxPodSandboxConfig(cgroup_parent=cgroup_parent)
        return pb.PodSandboxConfig(metadata=pb.PodSandboxMetadata(uid=name), linux=linux)

    def run_sandbox(self, config: Any) -> None:
        parent = config.linux.cgroup_parent
        self.tried.append(parent)
        if not self.image:
            raise Refused(IMAGE)
        if self._broken:
            raise Refused(self._broken)
        if self._systemd and not parent.endswith(".slice"):
            raise Refused(RUNC)
        self.there.append(pb.PodSandbox(id="s", metadata=config.metadata))

    def sandboxes(self) -> list[Any]:
        return self.there

    def remove_sandbox(self, sandbox_id: str) -> None:
        self.there.clear()


def choose(
    machines: Machines, home: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Record, list[str]]:
    """Returns the record and the output."""
    socket = home / "containerd.sock"
    socket.touch()
    record, stated = Record(), cast(list[str], [])

    def imported(home: Path, record: Record, socket: Path, name: str) -> None:
        stated.append(f"import {name}")
        machines.image = True

    def private(home: Path, record: Record) -> str:
        record.endpoint, record.private = "ours", True
        return "crun"

    monkeypatch.setattr(runtime_choice, "CGROUP_V2_ALONE", home / "cgroup.controllers")
    monkeypatch.setattr(runtime_choice, "DEFAULT_SOCKET", socket)
    monkeypatch.setattr(runtime_choice, "RawRuntime", machines)
    monkeypatch.setattr(runtime_choice, "_import", imported)
    monkeypatch.setattr(runtime_choice, "use_private", private)
    runtime_choice.choose(home, record, "auto", stated.append)
    return record, stated


@pytest.mark.parametrize("image", [True, False])
@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("systemd", [True, False])
def test_a_machines_containerd_is_used_with_its_driver(
    systemd: bool, reports: bool, image: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(systemd=systemd, reports=reports, image=image)
    record, stated = choose(machines, tmp_path, monkeypatch)
    driver = "systemd" if systemd else "cgroupfs"
    assert (record.private, record.cgroup_driver) == (False, driver)
    assert Record.read(tmp_path).cgroup_driver == driver
    at = f"unix://{tmp_path}/containerd.sock"
    assert stated[-1] == f"the one that runs already, at {at}, with cgroup driver {driver}"
    assert machines.tried[-1] == ("system.slice" if systemd else "")


def test_the_reason_against_a_runtime_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(systemd=True, reports=True, image=True, broken=f"{NO_SYSTEMD}\n  again")
    record, stated = choose(machines, tmp_path, monkeypatch)
    assert record.private
    assert stated[0] == (
        f"not the one at {tmp_path}/containerd.sock: it cannot run a sandbox with cgroup driver "
        f"systemd: {NO_SYSTEMD} again"
    )


@pytest.mark.parametrize("known", ["1.0.2-dev", "1.2.1"])
def test_crun_is_tried_with_the_specification_of_the_containerd(known: str, tmp_path: Path) -> None:
    crun, ctr = tmp_path / "crun", tmp_path / "ctr"
    ctr.write_text("""#!/bin/sh\necho '{"ociVersion": "1.2.1", "process": {"args": []}}'\n""")
    crun.write_text(f"""#!/bin/sh
        cd "$5" && [ -x rootfs/busybox ] &&
        grep '"args": ."/busybox", "true".' config.json &&
        grep '"ociVersion": "{known}"' config.json
    """)
    for program in (crun, ctr):
        program.chmod(0o700)
    assert runtime_choice.runs_containers(str(crun), ctr) is (known == "1.2.1")


@pytest.mark.parametrize(
    ("installed", "line"),
    [
        (["crun"], "installed crun"),
        ([], "our own with crun, at ours, with cgroup driver cgroupfs"),
        (None, "without crun, which can't be installed: runc takes more CPU"),
    ],
)
def test_crun_is_installed_for_our_own_runtime(
    installed: list[str] | None, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(packages: list[str]) -> list[str]:
        assert packages == ["crun"]
        if installed is None:
            raise CommandError("the archive does not answer")
        return installed

    (tmp_path / "cgroup.controllers").touch()
    monkeypatch.setattr(debian, "install", install)
    machines = Machines(systemd=True, reports=True, image=True, broken="broken")
    _, stated = choose(machines, tmp_path, monkeypatch)
    assert stated[1] == line


@pytest.mark.parametrize("runs", [True, False])
def test_the_driver_of_our_own_runtime_is_chosen_once(
    runs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Instance:
        endpoint = "unix:///ours"
        socket = tmp_path / "s"
        oci_runtime = "runc"

        def start(self) -> None:
            pass

    mark = tmp_path / "systemd"
    if runs:
        mark.mkdir()
    monkeypatch.setattr(runtime_choice, "SYSTEMD_RUNS", mark)
    monkeypatch.setattr(runtime_choice, "private_containerd", lambda home: Instance())
    monkeypatch.setattr(
        runtime_choice, "RawRuntime", Machines(systemd=runs, reports=True, image=True)
    )
    record = Record()
    runtime_choice.use_private(tmp_path, record)
    assert record.cgroup_driver == ("systemd" if runs else "cgroupfs")
    # with pods of an earlier run the driver does not change
    again = Record(endpoint="unix:///ours", private=True)
    runtime_choice.use_private(tmp_path, again)
    assert again.cgroup_driver == "cgroupfs"
    # a power cut may leave an empty record
    (tmp_path / "containerd").mkdir()
    for name in ("made.json", "containerd/config.toml"):
        (tmp_path / name).write_text("")
    lost = Record.read(tmp_path)
    runtime_choice.use_private(tmp_path, lost)
    assert lost.cgroup_driver == record.cgroup_driver
