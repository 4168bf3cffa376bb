"""Recorded decisions are replayed by the same version, with the same results."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.observe.recorder.files import DIRECTORY, read_lines, recordings
from kubeletpy.observe.recorder.replay import Replayed, replay
from tests.sim.chaos import history
from tests.sim.loop import run


def replayed(root: Path) -> Replayed:
    return replay(read_lines(recordings(root / "kubelet" / DIRECTORY)))


@pytest.mark.parametrize("seed", [3, 4, 7, 12])
def test_a_history_with_faults_and_kills(seed: int, tmp_path: Path) -> None:
    run(history(seed, tmp_path, recorded=16))
    found = replayed(tmp_path)
    assert not found.problems
    assert found.decisions > 40
    different = [m for story in found.stories.values() for m in story if m.now is not None]
    assert not different, different[0]
