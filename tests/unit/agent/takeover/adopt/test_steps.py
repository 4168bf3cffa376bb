"""Taking a node over and giving it back on a systemd in memory, killed at every step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.agent.takeover.adopt.adoption import PATH, AdoptionTask, Journal, Runner, entry_text
from kubeletpy.agent.takeover.adopt.host import HostError, SystemdHost, UnitSeen
from kubeletpy.agent.takeover.adopt.steps import (
    AT_BOOT,
    KEPT,
    TRIAL,
    AdoptionState,
    AdoptionStep,
    ContainerSeen,
    DropInError,
    PodSeen,
    UnitProgram,
    WatchLimits,
    WatchObservation,
    WatchOutcome,
    agent_command,
    drop_in_path,
    drop_in_text,
    judge,
    plain_pods,
    plan_adopt,
    plan_give_back,
    pods_seen,
    read_pods,
    renewed_at,
)
from kubeletpy.agent.takeover.preflight.unit_command import UnitCommand
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.cli.adopt import DEPLOYED
from kubeletpy.cli.deploy_files import deploy_files
from tests.kit.virtual_time import EPOCH, LoopClock

pytestmark = pytest.mark.virtual_time

POD = PodSeen("ns/a", ready=True, deleting=False, containers={"app": ContainerSeen("c", 0, 1.0)})
WATCH_S = 600.0


class Killed(Exception):
    """Raised when the process is killed: nothing runs after it, not even cleanup code."""


class FakeSystemd(SystemdHost):
    """One machine with systemd. The unit runs the files that systemd loaded last."""

    def __init__(self) -> None:
        super().__init__("kubelet.service")
        self.files: dict[str, str] = {}
        self.loaded = UnitProgram.KUBELET
        self.running = UnitProgram.KUBELET
        self.exits: UnitProgram | None = None
        """The program that exits at once; systemd starts it again."""
        self.timer: float | None = None
        """Seconds until the timer returns the node to the kubelet."""
        self.calls: list[str] = []
        self.kill_at = -1
        self.dead = False
        self.shuts_down = False
        self.fails: dict[str, str] = {}

    def _call(self, what: str, effect: Callable[[], None]) -> None:
        """One call of a process that may be killed before or after it."""
        self.calls.append(what)
        number = len(self.calls)
        if self.dead or number * 2 - 1 == self.kill_at:
            self.dead = True
            raise Killed
        if what in self.fails:
            raise HostError(self.fails[what])
        effect()
        if number * 2 == self.kill_at:
            self.dead = True
            raise Killed

    def state(self) -> AdoptionState:
        there = TRIAL in self.files, KEPT in self.files
        return AdoptionState(*there, self.running, self.shuts_down)

    def shutting_down(self) -> bool:
        return self.shuts_down

    @property
    def restarts(self) -> int:
        return int(self.running is self.exits)

    def unit(self) -> UnitSeen:
        return UnitSeen(self.running, restarts=self.restarts)

    def write(self, directory: str, text: str) -> None:
        self._call(f"write {directory}", lambda: self.files.update({directory: text}))

    def remove(self, directory: str) -> None:
        self._call(f"remove {directory}", lambda: self._removed(directory))

    def _removed(self, directory: str) -> None:
        self.files.pop(directory, None)

    def reload(self) -> None:
        def load() -> None:
            self.loaded = UnitProgram.AGENT if self.files else UnitProgram.KUBELET

        self._call("reload", load)

    def restart(self) -> None:
        def start() -> None:
            self.running = self.loaded

        self._call("restart", start)

    def arm(self, seconds: float, command: Sequence[str]) -> None:
        def start() -> None:
            self.timer = seconds

        self._call("arm", start)

    def disarm(self) -> None:
        def stop() -> None:
            self.timer = None

        self._call("disarm", stop)

    def new_process(self) -> None:
        """The next run of the program."""
        self.calls, self.kill_at, self.dead = [], -1, False

    def reboot(self) -> None:
        """A power cut: /run and the timer are lost."""
        self.files.pop(TRIAL, None)
        self.timer = None
        self.shuts_down = False
        self.loaded = UnitProgram.AGENT if self.files else UnitProgram.KUBELET
        self.running = self.loaded
        self.new_process()


class FakeNode:
    """The state that the watch observes: healthy, unless ``bad`` changes it."""

    def __init__(self, host: FakeSystemd) -> None:
        self.host = host
        self.bad: Callable[[WatchObservation], WatchObservation] = lambda seen: seen

    async def observe(self) -> WatchObservation:
        now = LoopClock().now()
        seen = WatchObservation(
            now,
            self.host.running,
            self.host.restarts,
            node_ready=True,
            renewed=now,
            pods={"uid": POD},
            answered=now,
        )
        return self.bad(seen)


class Machine:
    """The machine, the node and the journal of one test."""

    def __init__(self, directory: Path) -> None:
        self.host = FakeSystemd()
        self.node = FakeNode(self.host)
        self.journal = Journal(directory / "adopt.jsonl")
        self.stated: list[str] = []

    def runner(self) -> Runner:
        self.host.new_process()

        async def answers() -> bool:
            return self.host.running is not UnitProgram.NOTHING and not self.host.restarts

        return Runner(self.host, answers, self.journal, LoopClock(), self.stated.append)

    async def adopt(self, kill_at: int = -1) -> WatchOutcome:
        runner = self.runner()
        self.host.kill_at = kill_at
        task = AdoptionTask(self.node, "text", ["give-back"], {"uid": POD}, WatchLimits(WATCH_S))
        return (await runner.adopt(task)).outcome

    async def give_back(self, kill_at: int = -1, *, unconfirmed: bool = False) -> None:
        runner = self.runner()
        self.host.kill_at = kill_at
        await runner.give_back("asked", unconfirmed=unconfirmed)


def test_plans() -> None:
    fresh = AdoptionState(trial=False, kept=False, running=UnitProgram.KUBELET)
    assert plan_give_back(fresh) == (AdoptionStep.DISARM,)
    assert AdoptionStep.RESTART in plan_adopt(fresh)
    tried = AdoptionState(trial=True, kept=False, running=UnitProgram.AGENT)
    assert AdoptionStep.RESTART not in plan_adopt(tried)
    assert plan_give_back(tried) == (
        AdoptionStep.REMOVE_TRIAL,
        AdoptionStep.RELOAD,
        AdoptionStep.RESTART,
        AdoptionStep.DISARM,
    )
    adopted = AdoptionState(trial=True, kept=True, running=UnitProgram.AGENT)
    assert plan_adopt(adopted) == (
        AdoptionStep.REMOVE_TRIAL,
        AdoptionStep.RELOAD,
        AdoptionStep.DISARM,
    )
    assert plan_give_back(adopted, unconfirmed=True) == ()
    assert plan_give_back(adopted)[:2] == (AdoptionStep.REMOVE_KEPT, AdoptionStep.REMOVE_TRIAL)
    down = replace(tried, shutting_down=True)
    assert plan_give_back(down) == (AdoptionStep.REMOVE_TRIAL, AdoptionStep.DISARM)
    assert plan_give_back(replace(adopted, shutting_down=True), unconfirmed=True) == ()
    left = AdoptionState(trial=False, kept=False, running=UnitProgram.NOTHING)
    assert AdoptionStep.RESTART in plan_give_back(left)


async def test_a_node_that_stays_healthy_is_kept(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    assert await machine.adopt() is WatchOutcome.CONFIRM
    host = machine.host
    assert (host.running, host.files, host.timer) == (UnitProgram.AGENT, {KEPT: "text"}, None)
    assert asyncio.get_running_loop().time() >= WATCH_S
    host.reboot()
    assert host.running is UnitProgram.AGENT
    await machine.give_back()
    assert (host.running, host.files) == (UnitProgram.KUBELET, {})
    text = [entry_text(each) for each in machine.journal.entries()]
    assert any("confirmed (why the node was well for" in each for each in text)
    assert any("give back (why asked" in each for each in text)


async def test_an_unhealthy_node_is_returned_to_the_kubelet(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    restarted = replace(POD, containers={"app": ContainerSeen("d", 1, 2.0)})
    later = EPOCH + 300

    def bad(seen: WatchObservation) -> WatchObservation:
        return replace(seen, pods={"uid": restarted}) if seen.at > later else seen

    machine.node.bad = bad
    assert await machine.adopt() is WatchOutcome.GIVE_BACK
    host = machine.host
    assert (host.running, host.files, host.timer) == (UnitProgram.KUBELET, {}, None)
    assert "giving the node back: container app of pod ns/a was restarted" in machine.stated
    assert machine.journal.entries()[-1]["why"] == "container app of pod ns/a was restarted"


async def test_an_agent_that_exits_returns_the_node_within_seconds(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.host.exits = UnitProgram.AGENT
    started = asyncio.get_running_loop().time()
    assert await machine.adopt() is WatchOutcome.GIVE_BACK
    assert asyncio.get_running_loop().time() - started < 3
    assert (machine.host.running, machine.host.files) == (UnitProgram.KUBELET, {})
    why = "the agent has exited, and systemd has restarted it"
    assert f"giving the node back: {why}" in machine.stated


@pytest.mark.parametrize(
    "step", ["arm", f"write {TRIAL}", "reload", "restart", f"write {KEPT}", f"remove {TRIAL}"]
)
async def test_a_failed_step_leaves_the_node_unchanged(tmp_path: Path, step: str) -> None:
    machine = Machine(tmp_path)
    machine.host.fails[step] = f"{step}: no space left on device"
    if step in ("reload", f"remove {TRIAL}"):  # the way back has it, too
        with pytest.raises(HostError, match="no space left"):
            await machine.adopt()
    else:
        assert await machine.adopt() is WatchOutcome.GIVE_BACK
    machine.host.fails = {}
    await machine.give_back()
    host = machine.host
    assert (host.running, host.files, host.timer) == (UnitProgram.KUBELET, {}, None)


async def test_an_interruption_returns_the_node(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    task = asyncio.create_task(machine.adopt())
    await asyncio.sleep(100)
    assert machine.host.running is UnitProgram.AGENT
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (machine.host.running, machine.host.files) == (UnitProgram.KUBELET, {})


async def test_a_shutdown_under_the_watch_leaves_the_agent_to_end_its_pods(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    host = machine.host

    def ends(seen: WatchObservation) -> WatchObservation:
        if seen.at <= EPOCH + 100:
            return seen
        host.shuts_down = True
        return replace(seen, pods={"uid": replace(POD, ready=False)}, shutting_down=True)

    machine.node.bad = ends
    assert await machine.adopt() is WatchOutcome.GIVE_BACK
    assert machine.stated[-1] == f"giving the node back: {AT_BOOT}"
    assert (host.running, host.files) == (UnitProgram.AGENT, {}), "nothing was restarted"
    host.reboot()
    assert (host.running, host.files) == (UnitProgram.KUBELET, {})


@pytest.mark.parametrize("by", ["signal", "timer", "give back"])
async def test_nothing_restarts_a_program_while_the_machine_shuts_down(
    tmp_path: Path, by: str
) -> None:
    machine = Machine(tmp_path)
    host = machine.host
    if by == "give back":
        await machine.adopt()
        host.shuts_down = True
        await machine.give_back()
    else:
        task = asyncio.create_task(machine.adopt())
        await asyncio.sleep(100)
        host.shuts_down = True
        if by == "timer":
            await machine.give_back(unconfirmed=True)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (host.running, host.files, host.timer) == (UnitProgram.AGENT, {}, None)
    host.reboot()
    assert host.running is UnitProgram.KUBELET


async def test_a_machine_that_shuts_down_is_not_taken_over(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.host.shuts_down = True
    assert await machine.adopt() is WatchOutcome.GIVE_BACK
    assert (machine.host.running, machine.host.files) == (UnitProgram.KUBELET, {})
    assert "restart" not in machine.host.calls


HALF_STEPS = range(1, 17)
"""Before and after each of the eight changes of a takeover."""


@pytest.mark.parametrize("kill_at", HALF_STEPS)
@pytest.mark.parametrize("then", ["adopt", "give back", "power cut", "timer"])
async def test_after_a_kill_at_any_moment_kubelet_or_agent_runs(
    tmp_path: Path, kill_at: int, then: str
) -> None:
    machine = Machine(tmp_path)
    host = machine.host
    with pytest.raises(Killed):
        await machine.adopt(kill_at)
    assert host.running in (UnitProgram.KUBELET, UnitProgram.AGENT)
    if host.running is UnitProgram.AGENT and KEPT not in host.files:
        assert host.timer is not None, "nobody watches it, but a timer gives it back"
    if then == "adopt":
        assert await machine.adopt() is WatchOutcome.CONFIRM
        assert (host.running, host.files, host.timer) == (UnitProgram.AGENT, {KEPT: "text"}, None)
        return
    kept = KEPT in host.files
    if then == "power cut":
        host.reboot()
    elif then == "timer":
        await machine.give_back(unconfirmed=True)
    else:
        kept = False
        await machine.give_back()
    assert host.running is (UnitProgram.AGENT if kept else UnitProgram.KUBELET)
    assert set(host.files) - {TRIAL} == ({KEPT} if kept else set())


@pytest.mark.parametrize("kill_at", range(1, 9))
async def test_returning_the_node_survives_a_kill_at_any_moment(
    tmp_path: Path, kill_at: int
) -> None:
    machine = Machine(tmp_path)
    await machine.adopt()
    with pytest.raises(Killed):
        await machine.give_back(kill_at)
    assert machine.host.running in (UnitProgram.KUBELET, UnitProgram.AGENT)
    await machine.give_back()
    assert (machine.host.running, machine.host.files) == (UnitProgram.KUBELET, {})


def test_the_record_stays_where_earlier_versions_wrote_it() -> None:
    assert Path("/var/lib/kubeletpy/adopt.jsonl") == PATH


def test_an_unwritable_journal_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    journal = Journal(tmp_path / "file" / "adopt.jsonl")
    journal.write(0.0, "x")
    good = Journal(tmp_path / "adopt.jsonl")
    good.write(0.0, "x", seconds=1.5)
    with good.path.open("a") as file:
        file.write('{"at": "half')
    assert [entry_text(each) for each in good.entries()] == [
        "1970-01-01T00:00:00Z  x (seconds 1.5)"
    ]


# Verdicts of the watch on a node that was taken over.

LIMITS = WatchLimits(watch=600)
SWITCHED = 10_000.0
RUNS = ContainerSeen("c1", 0, 100.0)
WATCH_POD = PodSeen("ns/a", ready=True, deleting=False, containers={"app": RUNS})
BEFORE = {"uid": WATCH_POD}
WELL = WatchObservation(
    SWITCHED + 100,
    UnitProgram.AGENT,
    node_ready=True,
    renewed=SWITCHED + 95,
    pods=BEFORE,
    answered=SWITCHED + 99,
)


def with_pod(**changes: Any) -> WatchObservation:
    return replace(WELL, pods={"uid": replace(WATCH_POD, **changes)})


def with_container(container: ContainerSeen) -> WatchObservation:
    return with_pod(containers={"app": container})


@pytest.mark.parametrize(
    ("now", "outcome", "why"),
    [
        (WELL, "GO_ON", ""),
        (replace(WELL, at=SWITCHED + 601, answered=SWITCHED + 600), "CONFIRM", "the node was well"),
        (replace(WELL, running=UnitProgram.NOTHING), "GIVE_BACK", "the unit runs nothing"),
        (replace(WELL, running=UnitProgram.KUBELET), "GIVE_BACK", "the unit runs the kubelet"),
        (replace(WELL, exits=1), "GIVE_BACK", "the agent has exited"),
        (
            with_container(replace(RUNS, id="c2", restarts=1)),
            "GIVE_BACK",
            "container app of pod ns/a was restarted",
        ),
        (with_pod(containers={}), "GIVE_BACK", "container app of pod ns/a does not run any more"),
        (with_pod(ready=False), "GIVE_BACK", "pod ns/a has lost its readiness"),
        (with_pod(ready=False, containers={}, deleting=True), "GO_ON", ""),
        (replace(WELL, pods={}), "GO_ON", ""),
        (replace(WELL, pods={**BEFORE, "new": replace(WATCH_POD, ready=False)}), "GO_ON", ""),
        (
            replace(WELL, refused=("pod ns/a: 422",)),
            "GIVE_BACK",
            "the API does not accept the status of pod ns/a: 422",
        ),
        (replace(WELL, node_ready=False), "GIVE_BACK", "after 90 s the node is not Ready"),
        (
            replace(WELL, renewed=SWITCHED - 1),
            "GIVE_BACK",
            "after 90 s the node is not Ready: its lease is not renewed",
        ),
        (replace(WELL, at=SWITCHED + 50, node_ready=False), "GO_ON", ""),
        (
            replace(WELL, answered=SWITCHED + 30),
            "GIVE_BACK",
            "the API server has not answered for 60 s",
        ),
        (replace(WELL, at=SWITCHED + 30, answered=0.0, node_ready=False), "GO_ON", ""),
    ],
)
def test_verdicts(now: WatchObservation, outcome: str, why: str) -> None:
    found = judge(BEFORE, now, SWITCHED, LIMITS)
    assert found.outcome is WatchOutcome[outcome]
    assert found.why.startswith(why)
    assert why or not found.why


@pytest.mark.parametrize(
    ("started", "outcome"), [(SWITCHED - 100, "GO_ON"), (SWITCHED - 700, "GIVE_BACK")]
)
def test_a_container_that_restarted_before_is_no_reason(started: float, outcome: str) -> None:
    flapping = replace(RUNS, restarts=7, started=started)
    before = {"uid": replace(WATCH_POD, containers={"app": flapping}, ready=False)}
    now = with_container(replace(RUNS, id="c2", restarts=8))
    assert judge(before, now, SWITCHED, LIMITS).outcome is WatchOutcome[outcome]


@pytest.mark.parametrize(("static", "outcome"), [(True, "GIVE_BACK"), (False, "GO_ON")])
def test_another_pod_of_the_same_name(*, static: bool, outcome: str) -> None:
    before = {"uid": replace(WATCH_POD, static=static)}
    now = replace(WELL, pods={"another": replace(WATCH_POD, static=static)})
    assert judge(before, now, SWITCHED, LIMITS).outcome is WatchOutcome[outcome]


def test_pods_of_the_api() -> None:
    started = "2026-01-01T00:00:00Z"
    status: JSON = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "initContainerStatuses": [
            {"name": "init", "state": {"terminated": {}}},
            {"name": "side", "containerID": "x://s", "state": {"running": {"startedAt": started}}},
        ],
        "containerStatuses": [
            {"name": "app", "containerID": "x://c", "restartCount": 2, "state": {"running": {}}},
            {"name": "waits", "state": {"waiting": {}}},
        ],
    }
    pods = [
        {"metadata": {"namespace": "ns", "name": "a", "uid": "u"}, "status": status},
        {
            "metadata": {
                "namespace": "ns",
                "name": "m",
                "uid": "v",
                "deletionTimestamp": started,
                "annotations": {"kubernetes.io/config.mirror": "hash"},
            }
        },
    ]
    found = pods_seen(pods)
    assert found == {
        "u": PodSeen(
            "ns/a",
            ready=True,
            deleting=False,
            containers={
                "side": ContainerSeen("x://s", 0, 1767225600.0),
                "app": ContainerSeen("x://c", 2, 0.0),
            },
        ),
        "hash": PodSeen("ns/m", ready=False, deleting=True, containers={}, static=True),
    }
    assert read_pods(plain_pods({"u": found["u"]})) == {"u": found["u"]}
    assert renewed_at({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}) == 1767225600.0
    assert renewed_at({}) == 0.0


# The drop-in: which command it has for which ExecStart.

PROGRAM = "/opt/kubeletpy/.venv/bin/kubeletpy"


@pytest.mark.parametrize(
    ("arguments", "flags", "expected"),
    [
        ((), (), f"{PROGRAM} run"),
        (("$A", "${B}", "--x=50%"), (), f"{PROGRAM} run $A ${{B}} --x=50%%"),
        (("--a",), ("ignore-failure", "no-env-expand"), f"-:{PROGRAM} run --a"),
        (
            ("--a=b c", '--q="x"', "", ";", "a\\b", "t\tab"),
            (),
            f'{PROGRAM} run "--a=b c" "--q=\\"x\\"" "" ";" a\\\\b "t\\tab"',
        ),
    ],
)
def test_the_command_keeps_flags_and_variables(
    arguments: tuple[str, ...], flags: tuple[str, ...], expected: str
) -> None:
    """systemd 252 reads each back as these words."""
    kubelet = UnitCommand("/usr/bin/kubelet", arguments, flags)
    assert agent_command(kubelet, PROGRAM) == expected
    agent = UnitCommand("/opt/old/kubeletpy", ("run", *arguments), flags)
    assert agent_command(agent, PROGRAM) == expected


@pytest.mark.parametrize(
    ("command", "program"),
    [("/bin/sh", PROGRAM), ("kubelet-helper", PROGRAM), ("/usr/bin/kubelet", "/a b")],
)
def test_commands_that_are_refused(command: str, program: str) -> None:
    with pytest.raises(DropInError):
        agent_command(UnitCommand(command), program)


def test_the_drop_in_replaces_the_command() -> None:
    text = drop_in_text(deploy_files()[DEPLOYED], f"{PROGRAM} run --a")
    assert text.splitlines()[1:4] == ["[Service]", "ExecStart=", f"ExecStart={PROGRAM} run --a"]
    assert text.count("ExecStart=") == 2
    assert "KillMode=process\n" in text
    with pytest.raises(DropInError):
        drop_in_text("[Unit]\n", "x")


def test_the_path_of_the_drop_in() -> None:
    assert drop_in_path("kubelet.service", TRIAL) == (
        "run/systemd/system/kubelet.service.d/zz-kubeletpy.conf"
    )
    assert drop_in_path("kubelet.service", KEPT).startswith("etc/systemd/system/")
