"""A short soak: churn with faults, then nothing may be left; `python -m bench.soak` runs longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.soak.run import Plan, report, soak

SECONDS = 20.0
KILL_EVERY = 5.0


@pytest.mark.timeout(240)
async def test_a_short_soak_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    result = await soak(Plan(2, SECONDS, seed=11, kill_every=KILL_EVERY), log)
    assert not result.violations, f"{report(result)}\n{log.read_text()}"
    assert result.counts["agent SIGKILL"]
    assert result.counts["pods"]
