"""The agent's own process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kubeletpy.node.guards.at_start import set_oom_score


@pytest.mark.parametrize(
    ("there", "desired"), [("0\n", -999), ("-999\n", -999), ("-17\n", 0), ("", 5)]
)
def test_the_score_is_set(tmp_path: Path, there: str, desired: int) -> None:
    (tmp_path / "oom_score_adj").write_text(there)
    assert set_oom_score(desired, tmp_path) == ""
    assert int((tmp_path / "oom_score_adj").read_text()) == desired


def test_a_score_that_is_right_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "oom_score_adj").write_text("-999 as it was")
    (tmp_path / "oom_score_adj").write_text("-999\n")
    set_oom_score(-999, tmp_path)
    assert (tmp_path / "oom_score_adj").read_text() == "-999\n"


def test_a_score_that_cannot_be_set_is_named(tmp_path: Path) -> None:
    assert set_oom_score(-999, tmp_path) == "oomScoreAdj -999: No such file or directory"


LIMITED = """
import resource
from kubeletpy.node.guards.at_start import set_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
print(set_open_files({limit}).partition(":")[0])
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("limit", "stated", "limits"), [(0, "", "100 200"), (150, "", "150 150"), (200, "", "200 200")]
)
def test_open_files(limit: int, stated: str, limits: str) -> None:
    assert in_a_process(LIMITED.format(limit=limit)) == [stated, limits]


def test_more_files_than_the_process_may_set() -> None:
    # no process may have more than fs.nr_open, whatever its rights
    nr_open = int(Path("/proc/sys/fs/nr_open").read_text())
    stated, limits = in_a_process(LIMITED.format(limit=nr_open + 1))
    assert (stated, limits) == (f"maxOpenFiles {nr_open + 1}", "200 200")


def in_a_process(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return done.stdout.split("\n")[:2]
