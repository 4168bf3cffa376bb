"""A small fleet of whole agents on one API server: how often they send requests, and that they do
not do so in lockstep. docs/fleet.md has the figures of a large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.fleet.run import Fleet, Plan, Record, without_mounts
from bench.fleet.tally import codes, lockstep, per_second, rates
from tests.sim import loop

NODES = 20
PLAN = Plan(
    nodes=NODES,
    pods=1,
    join_s=20,
    settle_s=20,
    steady_s=600,
    outage_s=120,
    recovery_s=150,
    rolling_s=60,
    restart_s=90,
)


async def _run(root: Path) -> Record:
    fleet = Fleet(PLAN, root)
    try:
        return await fleet.run()
    finally:
        await fleet.stop()


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """One run for all tests."""
    with without_mounts():
        found: Record = loop.run(_run(tmp_path_factory.mktemp("fleet")))
    return found


def test_an_idle_node_sends_hardly_more_than_six_lease_updates_a_minute(record: Record) -> None:
    steady = record.phase("steady")
    leases = [row for row in record.rows if row[2] == "leases"]
    minutes = NODES * (steady.end - steady.start) / 60
    assert sum(per_second(leases, steady)) / minutes <= 6.0
    assert sum(per_second(record.rows, steady)) / minutes <= 7.0


def test_all_come_up_and_nothing_is_refused(record: Record) -> None:
    assert record.facts["join: all nodes Ready after s"] <= 2.0
    assert record.facts["deploy: all pods Ready s after the last bind"] <= 3.0
    assert not codes(record.rows, record.phase("restart"))[429]


def test_attempts_in_an_outage_back_off(record: Record) -> None:
    outage = record.phase("outage")
    attempts = per_second(record.rows, outage, arrived=False)
    assert sum(attempts[60:]) / NODES <= 30, "a minute and node"


def test_the_end_of_an_outage_is_no_storm(record: Record) -> None:
    """Each node has four watches to begin anew, with a list before: all within their backoff."""
    recovery = rates(per_second(record.rows, record.phase("recovery")))
    assert recovery.peak <= 1.5 * NODES


@pytest.mark.parametrize("phase", ["steady", "recovery", "restart"])
def test_leases_are_not_renewed_in_lockstep(record: Record, phase: str) -> None:
    """Also when all have started, or have lost their server, at the same time."""
    end = record.phase(phase).end
    assert lockstep(record.renewals, end - 10, end) <= 0.35


def test_statuses_are_not_reported_in_lockstep(record: Record) -> None:
    """All nodes joined at once, 300 s and 600 s before."""
    steady = record.phase("steady")
    statuses = [row for row in record.rows if row[2] == "nodes/status"]
    seconds = per_second(statuses, steady)
    assert sum(seconds) >= NODES, "each reports every five minutes"
    busiest = max(sum(seconds[at : at + 10]) for at in range(len(seconds)))
    assert busiest <= NODES / 3
