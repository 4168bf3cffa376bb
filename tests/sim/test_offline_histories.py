"""Random histories of power cuts after which the API server is absent; seeds as in
``test_histories``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.loop import run
from tests.sim.offline_chaos import offline_history
from tests.sim.test_histories import seeds

ONCE_BROKEN = (5100017, 5100019, 5100036, 8800022, 8800039, 12000672, 12002313)
"""Seeds whose histories found faults."""


@pytest.mark.parametrize("seed", seeds(8, ONCE_BROKEN, fresh=8))
def test_offline_history(seed: int, tmp_path: Path) -> None:
    """Odd seeds have a runtime with events, even ones have not."""
    run(offline_history(seed, tmp_path))
