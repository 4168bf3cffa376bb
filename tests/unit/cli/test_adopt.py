"""``kubeletpy adopt`` and ``give-back``: refusals, and the input that they read."""

from __future__ import annotations

import argparse
import io
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from kubeletpy.agent.takeover.adopt import adoption as front_door
from kubeletpy.agent.takeover.adopt.host import SystemdHost, UnitSeen
from kubeletpy.agent.takeover.adopt.steps import AdoptionState, UnitProgram
from kubeletpy.agent.takeover.preflight.findings import (
    KubeletFound,
    PodOutcome,
    PodVerdict,
    PreflightReport,
)
from kubeletpy.agent.takeover.preflight.unit_command import UnitCommand
from kubeletpy.base.kubernetes_version import NEWEST
from kubeletpy.base.structs import replace
from kubeletpy.cli import adopt, adoption, agent_socket, give_back
from kubeletpy.config.files import read_version_record
from kubeletpy.config.version_choice import ResolvedVersion, VersionSource
from tests.kit.clocks import SetClock
from tests.kit.virtual_time import EPOCH


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    made = partial(front_door.Journal, tmp_path / "adopt.jsonl")
    for module in (adoption, front_door):
        monkeypatch.setattr(module, "Journal", made)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert adopt.main(["--program", sys.executable, *arguments]) == 1
    return capsys.readouterr().err.strip().removeprefix("kubeletpy adopt: ")


def test_only_root_may(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert refusal(capsys) == "run it as root"
    assert give_back.main([]) == 1


def test_a_machine_without_systemd(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemdHost, "unit", lambda self: UnitSeen(UnitProgram.NOTHING))
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere")
    stated = refusal(capsys, "--unit=no-such.service", "--yes")
    assert stated == "systemd can't be queried: there is no system bus"


async def kubelet_command(unit: str) -> UnitCommand:
    return UnitCommand("/usr/bin/kubelet", ("$A",))


def test_a_unit_that_does_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemdHost, "unit", lambda self: UnitSeen(UnitProgram.NOTHING))
    monkeypatch.setattr(front_door, "exec_start", kubelet_command)
    assert refusal(capsys) == "unit kubelet.service does not run: start it first"


def test_systemctl_is_not_installed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert refusal(capsys).startswith("systemctl can't be run: ")


@pytest.mark.parametrize("path", ["/no/such/program", "/usr/bin/kubelet", __file__])
def test_programs_that_are_refused(path: str) -> None:
    with pytest.raises(
        front_door.AdoptionRefused, match="is not the program kubeletpy: name it with --program"
    ):
        front_door.checked_program(path)


def test_the_name_must_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    supplied = argparse.Namespace(yes=False)
    with pytest.raises(front_door.AdoptionRefused, match="use --yes"):
        adoption.confirm(supplied, "node-1", "take it over")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("node-2\n"))
    with pytest.raises(front_door.AdoptionRefused, match="another name"):
        adoption.confirm(supplied, "node-1", "take it over")
    monkeypatch.setattr(sys, "stdin", Terminal("node-1\n"))
    adoption.confirm(supplied, "node-1", "take it over")
    adoption.confirm(argparse.Namespace(yes=True), "node-1", "take it over")


async def test_pods_that_would_not_be_admitted_stop_an_adoption(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = (
        PodVerdict("ns", "a", "u1", PodOutcome.KEPT),
        PodVerdict("ns", "b", "u2", PodOutcome.REFUSED, "NodeAffinity: no"),
    )
    kubelet = KubeletFound("process 1", "/kubelet", ())

    async def gather(*_: object) -> PreflightReport:
        return PreflightReport(kubelet, (), pods)

    monkeypatch.setattr(front_door, "gather", gather)
    options = front_door.AdoptOptions(
        sys.executable, "", lambda *_: [], lambda *_: (), despite_preflight=False
    )
    operator = front_door.Operator(adoption.print_progress, lambda *_: None)
    with pytest.raises(front_door.AdoptionRefused) as caught:
        await front_door.preflight(options, operator)
    assert str(caught.value) == (
        "the agent would not admit 1 of the node's pods, which would end: ns/b. A restart of the "
        "kubelet ends them, too. Correct what the report names for each, or use "
        "--despite-preflight to let them end; nothing was changed"
    )
    assert "refused   ns/b: NodeAffinity: no" in capsys.readouterr().out
    options = replace(options, despite_preflight=True)
    assert await front_door.preflight(options, operator) == (frozenset({"ns/b"}), None)


def test_times() -> None:
    assert adopt.parser().parse_args(["--watch", "90s"]).watch == 90
    assert adopt.parser().parse_args([]).watch == 600
    for bad in ("0s", "-1m", "x", "200h"):
        with pytest.raises(SystemExit):
            adopt.parser().parse_args(["--watch", bad])


@pytest.mark.parametrize("source", list(VersionSource))
def test_the_version_of_the_api_server_is_recorded_for_the_first_start(
    tmp_path: Path, source: VersionSource
) -> None:
    front_door.record_version(ResolvedVersion(NEWEST, source, "why"), tmp_path)
    recorded = read_version_record(str(tmp_path))
    assert recorded == (NEWEST if source is VersionSource.SERVER else None)


def test_an_incomplete_preflight_records_no_version(tmp_path: Path) -> None:
    front_door.record_version(None, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_record(capsys: pytest.CaptureFixture[str]) -> None:
    made = front_door.Journal()
    assert adopt.main(["--record"]) == 0
    assert capsys.readouterr().out == f"{made.path}: nothing was done here\n"
    made.write(0.0, "adopt", state="the kubelet runs")
    pods = {uid: {"key": f"ns/{uid}", "ready": True} for uid in ("b", "a")}
    made.write(1.0, "before", node="n", pods=pods)
    assert adopt.main(["--record"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1970-01-01T00:00:00Z  adopt (state the kubelet runs)",
        "1970-01-01T00:00:01Z  before (node n, pods ns/a, ns/b)",
    ]


def test_statuses_that_the_api_does_not_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = {
        "old": [{"kind": "API write", "why": "422", "since": EPOCH - 60}],
        "new": [{"kind": "API write", "why": "422", "since": EPOCH - 1}],
        "other": [{"kind": "readiness gate", "why": "x", "since": EPOCH - 60}],
    }

    def get_json(path: Path, *parts: str) -> dict[str, object]:
        if parts[2] not in waits:
            raise agent_socket.NoSuchPod("no such pod")
        return {"waits": waits[parts[2]]}

    monkeypatch.setattr(agent_socket, "get_json", get_json)
    pods = [f"ns/{name}" for name in (*waits, "gone")]
    assert agent_socket.refused_statuses(Path("/x"), SetClock(EPOCH), pods) == ("pod ns/old: 422",)


def test_give_back_on_a_node_of_the_kubelet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemdHost, "unit", lambda self: UnitSeen(UnitProgram.KUBELET))
    monkeypatch.setattr(
        SystemdHost,
        "state",
        lambda self: AdoptionState(trial=False, kept=False, running=UnitProgram.KUBELET),
    )
    monkeypatch.setattr(SystemdHost, "disarm", lambda self: None)
    assert give_back.main(["--yes"]) == 0
    assert capsys.readouterr().out == "nothing to do\n"


@pytest.mark.parametrize(
    ("state", "logind", "expected"),
    [
        ("running", "echo b false", False),
        ("degraded", "exit 1", False),
        ("running", "echo b true", True),
        ("stopping", "exit 1", True),
    ],
)
def test_a_machine_that_shuts_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, logind: str, expected: bool
) -> None:
    for name, script in (("systemctl", f"echo SystemState={state}"), ("busctl", logind)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert SystemdHost("kubelet.service").shutting_down() is expected


def test_drop_ins_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SystemdHost, "unit", lambda self: UnitSeen(UnitProgram.KUBELET))
    monkeypatch.setattr(SystemdHost, "shutting_down", lambda self: False)
    host = SystemdHost("kubelet.service", tmp_path)
    host.write("run/systemd/system", "[Service]\n")
    path = tmp_path / "run/systemd/system/kubelet.service.d/zz-kubeletpy.conf"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("[Service]\n", 0o644)
    assert host.state() == AdoptionState(trial=True, kept=False, running=UnitProgram.KUBELET)
    host.remove("run/systemd/system")
    host.remove("run/systemd/system")
    assert not path.parent.exists()
    (tmp_path / "etc").write_text("")
    with pytest.raises(Exception, match=r"etc/systemd/system.* can't be written: Not a directory"):
        host.write("etc/systemd/system", "x")
