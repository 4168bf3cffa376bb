"""Probes of whole pods on virtual time."""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from itertools import pairwise
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.probe_manager import HOLD_S, SLOT_S, ProbeSlots
from kubeletpy.probes.prober import Target
from kubeletpy.probes.schedule import ProbeKind
from tests.kit.pods import make_pod
from tests.kit.probes import BAD, HTTP, OK, World, probed_pod
from tests.kit.virtual_time import run

pytestmark = pytest.mark.virtual_time

STARTUP, READINESS, LIVENESS = ProbeKind.STARTUP, ProbeKind.READINESS, ProbeKind.LIVENESS
EACH_SECOND = {"periodSeconds": 1}


def with_running(pod: Pod) -> tuple[World, Pod]:
    """A world in which that pod's container runs."""
    world = World()
    world.manager.add_pod(pod)
    world.start(pod)
    return world, pod


async def test_a_ready_container_is_known_ready_at_once() -> None:
    world, pod = World(), probed_pod(readinessProbe={})
    world.manager.add_pod(pod)
    await asyncio.sleep(3)
    assert world.runs == {}
    world.start(pod)
    await asyncio.sleep(0.1)
    ((at, *what),) = world.notified
    assert at == pytest.approx(3, abs=2 * SLOT_S)
    assert what == [pod.uid, READINESS, OK]


@pytest.mark.parametrize("needs", [0.3, 1.0, 4.0])
def test_a_slow_start_is_seen_soon_after_it_is_over_and_not_reported_as_failures(
    needs: float,
) -> None:
    async def start() -> None:
        world, pod = World(), probed_pod(readinessProbe={"periodSeconds": 30})
        world.answer = lambda target: OK if world.now > needs else BAD
        world.manager.add_pod(pod)
        world.start(pod)
        await asyncio.sleep(14)
        assert world.notified[0][0] <= 2 * needs + 0.2
        assert all(world.quiet)

    run(start())


@pytest.mark.parametrize(
    ("host_network", "reported", "probed"),
    [
        (True, None, "127.0.0.1"),
        (True, "192.0.2.1", "192.0.2.1"),
        (False, None, ""),
        (False, "10.0.0.9", "10.0.0.9"),
    ],
)
async def test_the_address_of_a_pod_that_is_probed(
    host_network: bool, reported: str | None, probed: str
) -> None:
    world, addresses = World(), set[str]()

    def answer(target: Target) -> ProbeOutcome:
        addresses.add(target.pod_ip)
        return OK

    world.answer, world.pod_ip = answer, reported
    pod = probed_pod(readinessProbe={})
    pod.spec["hostNetwork"] = host_network
    world.manager.add_pod(pod)
    world.start(pod)
    await asyncio.sleep(30)
    assert addresses == {probed}


async def test_startup_then_the_others_then_restart_and_again() -> None:
    world = World()
    pod = probed_pod(startupProbe=EACH_SECOND, readinessProbe=EACH_SECOND, livenessProbe={})
    world.manager.add_pod(pod)
    world.answer = lambda target: OK if world.now >= 5 else BAD
    world.start(pod)
    await asyncio.sleep(2.5)
    assert set(world.runs) == {(pod.uid, STARTUP)}
    assert world.manager.results(pod).startup == {"c1": "unknown"}
    await asyncio.sleep(0.4)
    world.stop(pod)
    world.start(pod, "c2")
    await asyncio.sleep(3)
    results = world.manager.results(pod)
    assert (results.startup, results.readiness) == ({"c2": OK}, {"c2": OK})
    runs = len(world.runs[pod.uid, STARTUP])
    await asyncio.sleep(60)
    assert len(world.runs[pod.uid, STARTUP]) == runs
    assert len(world.runs[pod.uid, READINESS]) == pytest.approx(61, abs=2)
    assert len(world.runs[pod.uid, LIVENESS]) == pytest.approx(6, abs=1)


async def test_liveness_failure_is_reported_once_and_probing_waits_for_the_new_container() -> None:
    world, pod = World(), probed_pod(livenessProbe=EACH_SECOND)
    world.answer = lambda target: BAD if target.container_id == "c1" else OK
    world.manager.add_pod(pod)
    world.start(pod)
    await asyncio.sleep(10)
    assert [(kind, result) for _, _, kind, result in world.notified] == [(LIVENESS, BAD)]
    assert len(world.runs[pod.uid, LIVENESS]) == 3
    assert 2.5 <= world.notified[0][0] <= 3 + SLOT_S
    world.stop(pod)
    world.start(pod, "c2")
    assert world.manager.results(pod).liveness == {"c2": OK}
    await asyncio.sleep(10)
    assert len(world.notified) == 1
    assert len(world.runs[pod.uid, LIVENESS]) == pytest.approx(13, abs=1)


async def test_a_removed_pod_leaves_nothing_behind() -> None:
    world, _ = with_running(probed_pod(livenessProbe=EACH_SECOND, readinessProbe=EACH_SECOND))
    await asyncio.sleep(5)
    scrape = world.metrics.render_probes().decode()
    assert 'prober_probe_total{container="main",namespace="default",pod="web"' in scrape
    assert 'probe_type="Readiness",result="successful"} ' in scrape
    world.takes = lambda target: 100
    await asyncio.sleep(2)
    assert world.running == 2
    world.manager.forget_except([])
    await asyncio.sleep(1)
    assert world.running == 0
    assert len(world.manager) == 0
    assert b"prober_" not in world.metrics.render_probes()
    assert len(asyncio.all_tasks()) == 1
    runs = sum(map(len, world.runs.values()))
    await asyncio.sleep(60)
    assert sum(map(len, world.runs.values())) == runs


async def test_termination_ends_liveness_but_not_readiness() -> None:
    world, pod = with_running(probed_pod(livenessProbe=EACH_SECOND, readinessProbe=EACH_SECOND))
    await asyncio.sleep(5)
    world.manager.stop_liveness_and_startup(pod)
    before = len(world.runs[pod.uid, LIVENESS])
    world.answer = lambda target: BAD
    await asyncio.sleep(5)
    assert len(world.runs[pod.uid, LIVENESS]) == before
    assert world.manager.results(pod).liveness == {}
    assert world.notified[-1][2:] == (READINESS, BAD)


async def test_the_container_that_hangs_while_another_is_made_is_given_up() -> None:
    world, pod = World(), probed_pod(livenessProbe={"periodSeconds": 1, "timeoutSeconds": 1000})
    world.takes = lambda target: 1000 if target.container_id == "c1" else 0
    world.manager.add_pod(pod)
    world.start(pod)
    await asyncio.sleep(2)
    world.start(pod, "c2")
    await asyncio.sleep(5)
    assert len(world.runs[pod.uid, LIVENESS]) >= 5


async def test_after_an_agent_restart_nothing_flaps_and_probes_spread() -> None:
    world = World()
    pods = [probed_pod(f"p{n}", readinessProbe={}, startupProbe={}) for n in range(50)]
    for pod in pods:
        world.start(pod, ran=3600, started=True)
        world.manager.add_pod(pod)
        assert world.manager.results(pod).readiness == {}
    await asyncio.sleep(10.1)
    firsts = sorted(world.runs[pod.uid, READINESS][0] for pod in pods)
    assert len(firsts) == 50
    assert max(b - a for a, b in pairwise(firsts)) < 2
    assert all(round(first / SLOT_S, 3).is_integer() for first in firsts)
    assert sum(first < 5 for first in firsts) == pytest.approx(25, abs=10)
    assert not any(kind is STARTUP for _, kind in world.runs)
    assert all(result is OK for *_, result in world.notified)


async def test_an_hour_of_flapping_probes() -> None:
    """Readiness follows its container, each change is reported once, and the grid never drifts."""
    world, rng = World(), random.Random(7)
    pods = [probed_pod(f"p{n}", readinessProbe=EACH_SECOND) for n in range(3)]
    flips = {pod.uid: sorted(rng.uniform(5, 3590) for _ in range(100)) for pod in pods}

    def up(uid: str) -> bool:
        return bisect_right(flips[uid], world.now) % 2 == 0

    world.answer = lambda target: OK if up(target.pod.uid) else BAD
    world.takes = lambda target: rng.uniform(0, 0.3)
    for pod in pods:
        world.manager.add_pod(pod)
        world.start(pod)
    await asyncio.sleep(3600)
    for pod in pods:
        runs = world.runs[pod.uid, READINESS]
        assert len(runs) == pytest.approx(3600, abs=5)
        steady = runs[3:]
        slips = [run - steady[0] - n for n, run in enumerate(steady)]
        assert max(map(abs, slips)) <= 2 * SLOT_S
        mine = [result for _, uid, _, result in world.notified if uid == pod.uid]
        assert all(a is not b for a, b in pairwise(mine))
        assert len(mine) > 20


async def test_probes_that_hang_make_others_late_by_a_second_at_most() -> None:
    world = World()
    world.manager._connections.free = 4
    bad = [
        probed_pod(f"bad{n}", livenessProbe={"periodSeconds": 60, "timeoutSeconds": 60})
        for n in range(8)
    ]
    good = probed_pod("good", livenessProbe=EACH_SECOND)
    world.takes = lambda target: 60 if target.pod.name.startswith("bad") else 0
    for pod in [*bad, good]:
        world.manager.add_pod(pod)
        world.start(pod)
    await asyncio.sleep(300)
    runs = world.runs[good.uid, LIVENESS]
    assert max(b - a for a, b in pairwise(runs)) <= 1 + 2 * HOLD_S + SLOT_S
    assert len(runs) > 270


async def test_commands_have_slots_of_their_own_and_are_bounded() -> None:
    world = World()
    command = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    pods = [
        make_pod(f"p{n}", containers=[{"name": "main", "image": "i", "livenessProbe": command}])
        for n in range(100)
    ]
    world.manager._commands.free = 5
    world.takes = lambda target: 0.01
    for pod in pods:
        world.manager.add_pod(pod)
        world.start(pod)
    await asyncio.sleep(20)
    assert world.most == 5
    assert min(len(world.runs[pod.uid, LIVENESS]) for pod in pods) >= 18


async def test_an_internal_error_of_a_probe_is_logged_and_the_probe_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, pod = World(), probed_pod(livenessProbe=EACH_SECOND)

    def broken(target: object) -> None:
        raise ValueError("boom")

    world.answer = broken
    world.manager.add_pod(pod)
    world.start(pod)
    await asyncio.sleep(5)
    assert len(world.runs[pod.uid, LIVENESS]) >= 4
    assert "boom" in caplog.text
    assert world.notified == []


async def test_a_sidecar_is_probed_and_an_init_container_is_not() -> None:
    world, pod = with_running(probed_pod(sidecar=True, startupProbe=EACH_SECOND))
    await asyncio.sleep(1)
    assert world.manager.results(pod).startup == {"c1": OK}
    plain = make_pod("plain", initContainers=[{"name": "i", "image": "i", "readinessProbe": HTTP}])
    world.manager.add_pod(plain)
    assert len(world.manager) == 1


async def test_pods_without_probes_cost_nothing() -> None:
    world, pod = World(), make_pod()
    world.manager.add_pod(pod)
    world.start(pod)
    assert len(world.manager) == 0
    assert world.manager.results(pod).readiness == {}


def deleting(pod: Pod) -> Pod:
    metadata: Any = {**pod.metadata, "deletionTimestamp": "2026-01-01T00:00:30Z"}
    return Pod({**pod.object, "metadata": metadata})


async def test_deletion_ends_liveness_and_startup_of_sidecars_too() -> None:
    world, pod = with_running(probed_pod(sidecar=True, livenessProbe=EACH_SECOND))
    await asyncio.sleep(3)
    world.start(deleting(pod))
    before = len(world.runs[pod.uid, LIVENESS])
    await asyncio.sleep(5)
    assert len(world.runs[pod.uid, LIVENESS]) == before


async def test_closing_gives_up_what_runs_and_starts_nothing_that_waits() -> None:
    world = World()
    world.manager._connections.free = 2
    world.takes = lambda target: 1000
    for n in range(10):
        pod = probed_pod(f"p{n}", livenessProbe=EACH_SECOND)
        world.manager.add_pod(pod)
        world.start(pod)
    await asyncio.sleep(1.5)
    await world.manager.close()
    runs = sum(map(len, world.runs.values()))
    await asyncio.sleep(10)
    assert world.running == 0
    assert sum(map(len, world.runs.values())) == runs
    assert len(asyncio.all_tasks()) == 1


async def test_the_last_result_of_a_probe_is_kept_in_reports() -> None:
    world, pod = World(), probed_pod(readinessProbe={**EACH_SECOND, "failureThreshold": 3})
    world.manager.add_pod(pod)
    (report,) = world.manager.reports(pod.uid)
    assert (report.container, report.kind, report.last) == ("main", READINESS, None)
    world.parts, world.answer = "no route to database", lambda target: BAD
    world.start(pod)
    await asyncio.sleep(2.2)
    (report,) = world.manager.reports(pod.uid)
    assert report.last == (BAD, "no route to database")
    assert (report.settled, report.streak, report.threshold) == (BAD, 2, 3)
    assert report.next_at is not None
    assert report.at <= world.now < report.next_at
    world.parts, world.answer = "", lambda target: None
    await asyncio.sleep(1)
    (report,) = world.manager.reports(pod.uid)
    assert report.last == (None, "")
    world.takes = lambda target: 50.0
    world.start(pod, "c2")
    (report,) = world.manager.reports(pod.uid)
    assert report.last is None, "that was another container"
    world.manager.remove_pod(pod.uid)
    assert world.manager.reports(pod.uid) == ()
    await world.manager.close()


async def test_the_run_that_killed_a_container_is_kept_until_the_next_one_starts_again() -> None:
    world, pod = World(), probed_pod(livenessProbe=EACH_SECOND, readinessProbe=EACH_SECOND)
    world.manager.add_pod(pod)
    world.parts, world.answer = "no pulse", lambda target: BAD
    world.start(pod)
    await asyncio.sleep(5)
    world.start(pod, "c2")
    kept = {each.kind: each.killed_with for each in world.manager.reports(pod.uid)}
    assert kept == {LIVENESS: (BAD, "no pulse"), READINESS: None}
    world.answer = lambda target: OK
    await asyncio.sleep(5)
    world.start(pod, "c3")
    kept = {each.kind: each.killed_with for each in world.manager.reports(pod.uid)}
    assert kept == {LIVENESS: None, READINESS: None}, "the second one ended by itself"
    await world.manager.close()


async def test_a_slot_is_freed_once_by_release_or_timeout() -> None:
    turns, started = ProbeSlots(1), list[str]()
    releases = []

    def starter(name: str, takes: bool = True) -> None:
        def start() -> bool:
            if takes:
                started.append(name)
                releases.append(turns.acquire())
            return takes

        turns.start_when_free(start)

    for name in "abc":
        starter(name)
    starter("no", takes=False)
    starter("d")
    assert (started, turns.waiting) == (["a"], 4)
    releases[0]()
    releases[0]()
    assert started == ["a", "b"]
    await asyncio.sleep(HOLD_S + 0.01)
    assert started == ["a", "b", "c"]
    releases[1]()
    assert started == ["a", "b", "c"]
    releases[2]()
    assert started == ["a", "b", "c", "d"]
    assert turns.waiting == 0
    await asyncio.sleep(HOLD_S + 0.01)
    assert turns.free == pytest.approx(1)
