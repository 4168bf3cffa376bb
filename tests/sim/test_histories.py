"""Random histories of the whole agent on virtual time; every one must keep every invariant.

Most seeds are always the same, some are fresh. ``KUBELETPY_SIM_SEED=n`` replays one seed;
``KUBELETPY_SIM_FRESH=n`` is the first of the fresh ones, ``KUBELETPY_SIM_RUNS=n`` their number
(``./test.sh sim --runs n``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sim.chaos import history
from tests.sim.hash_seeds import printed
from tests.sim.loop import run

RUNS = 32
FRESH = 16
"""A long row of fresh ones keeps nobody waiting at night: ``./test.sh sim --runs 1000``."""
ONCE_BROKEN = (
    *(100107, 101315, 102622, 401443, 7345019, 26936850959, 50466816431, 77770421905),
    106832097715,
)
"""Seeds that showed a fault of the agent, or of an invariant."""


def seeds(runs: int, once_broken: Sequence[int] = (), fresh: int = FRESH) -> list[Any]:
    """The seeds of this run: ``runs`` fixed ones, those once broken, and ``fresh`` new ones."""
    one = os.environ.get("KUBELETPY_SIM_SEED")
    if one:
        return [pytest.param(int(one), id=f"seed{one}")]
    first = int(os.environ.get("KUBELETPY_SIM_FRESH", "0"))
    count = int(os.environ.get("KUBELETPY_SIM_RUNS", fresh)) if first else 0
    fixed = [pytest.param(n, id=f"seed{n}") for n in (*range(runs), *once_broken)]
    return [*fixed, *(pytest.param(n, id=f"fresh-seed{n}") for n in range(first, first + count))]


@pytest.mark.parametrize("seed", seeds(RUNS, ONCE_BROKEN))
def test_history(seed: int, tmp_path: Path) -> None:
    """Odd seeds have a runtime with events, even ones have not."""
    run(history(seed, tmp_path))


def test_same_seed_gives_the_same_story(tmp_path: Path) -> None:
    stories = []
    for name in ("first", "second"):
        root = tmp_path / name
        root.mkdir()
        stories.append(run(history(7, root)).history.lines)
    assert stories[0] == stories[1]


def test_the_story_does_not_depend_on_hash_seeds(tmp_path: Path) -> None:
    """A seed that failed in one process fails in the next one too."""
    program = (
        "import sys; from pathlib import Path; from tests.sim.chaos import history; "
        "from tests.sim.loop import run; "
        "print(run(history(21, Path(sys.argv[1]))).history.digest())"
    )
    assert len(printed(program, ("0", "2", "3"), tmp_path)) == 1
