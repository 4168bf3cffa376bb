"""Start times of machine and process, from the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kubeletpy.base.host.machine import INIT, booted_at, process_started_at


def test_the_boot_time_is_the_kernels() -> None:
    notified = next(line for line in Path("/proc/stat").read_text().splitlines() if "btime" in line)
    assert booted_at(time.time()) == pytest.approx(float(notified.split()[1]), abs=2)


def test_process_1_of_a_namespace_began_with_it() -> None:
    code = "import time; from kubeletpy.base.host.machine import INIT, process_started_at as at; "
    before = time.time()
    unshare = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
    ran = subprocess.run(
        [*unshare, sys.executable, "-c", code + "print(at(time.time(), INIT))"],
        capture_output=True,
        check=True,
    )
    now = time.time()
    assert before - 0.1 <= float(ran.stdout) <= now
    assert booted_at(now) - 2 <= process_started_at(now, INIT) < before


def test_a_process_that_has_just_started() -> None:
    before = time.time()
    code = "import time; from kubeletpy.base.host.machine import process_started_at as at; "
    ran = subprocess.run(
        [sys.executable, "-c", code + "print(at(time.time()), time.time())"],
        capture_output=True,
        check=True,
    )
    started, now = map(float, ran.stdout.split())
    assert before - 0.1 <= started < now


@pytest.mark.parametrize("text", [None, "", "1 (a) S 1", "1 (a) b) " + "S " * 18 + "x"])
def test_unknown_start_times_default_to_now(tmp_path: Path, text: str | None) -> None:
    stat = tmp_path / "stat"
    if text is not None:
        stat.write_text(text)
    assert process_started_at(1000.0, stat) == 1000.0


def test_a_name_with_blanks_and_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda clock: 100.0)
    stat = tmp_path / "stat"
    ticks = 7 * os.sysconf("SC_CLK_TCK")
    stat.write_text(f"1 (a) b (c) {'S ' * 19}{ticks} 0 0\n")
    now = time.time()
    assert process_started_at(now, stat) == pytest.approx(booted_at(now) + 7, abs=0.1)
