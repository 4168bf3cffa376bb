"""Skipped tests are reported, and are failures unless the runtime lacks a feature for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest
from tools.env.no_skips import LACKS

def test_needs(record_property):
    record_property(LACKS, "the runtime lacks pod events")
    pytest.skip("not on this runtime")

@pytest.mark.skipif({skipped}, reason="not today")
def test_other():
    pass
"""


@pytest.mark.parametrize("skipped", [False, True])
def test_skipped_tests_are_named(tmp_path: Path, skipped: bool) -> None:
    (tmp_path / "test_x.py").write_text(TESTS.format(skipped=skipped))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.env.no_skips", str(tmp_path)]
    root = Path(__file__).resolve().parents[2]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert found.returncode == (1 if skipped else 0), found.stdout
    assert "NOT RUN, the runtime lacks pod events: " in found.stdout
    assert ("SKIPPED, which counts as a failure: " in found.stdout) is skipped
