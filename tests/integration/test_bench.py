"""The bench works on a real containerd and its figures make sense; how good they are is no test."""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


async def run_bench(*arguments: str, module: str = "bench") -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", module, *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
    assert process.returncode == 0, (out + err).decode()
    return out.decode()


@pytest.mark.timeout(300)
async def test_quick_bench(tmp_path: Path) -> None:
    generation = 2
    figures = tmp_path / "figures.json"
    text = await run_bench("--quick", "--containerd", str(generation), "--json", str(figures))
    found: dict[str, Any] = json.loads(figures.read_text())
    rows = {(row["what"], row["pods"]): row for row in found["rows"]}
    assert found["containerd"] == generation
    for row in found["rows"]:
        assert row["what"] in text
        assert math.isfinite(row["agent"]["p50"])
        assert row["agent"]["p50"] <= row["agent"]["p95"]
        if row["floor"]:
            assert math.isfinite(row["ratio"])
            # The kernel counts CPU in ticks: a calm runtime can take none in a short run.
            assert row["ratio"] >= 0 if "CPU" in row["what"] else row["ratio"] > 0
    for what in ("create -> Ready", "delete -> removed"):
        assert rows[what, 1]["ratio"] is not None
    assert rows["exit -> Succeeded", 1]["agent"]["p50"] > 0
    assert found["calls_per_pod"]["create 1"]["run_podsandbox"] == pytest.approx(1)


async def test_the_bench_of_pulls() -> None:
    text = await run_bench("--images", "3", "--seconds", "2", module="bench.pulls")
    pulls = re.findall(r"^pulls/i(\d): (\d) layers, \d+ MB/s, .* s, \d+ of (\d+) near$", text, re.M)
    assert [each[:2] for each in pulls] == [("0", "1"), ("1", "2"), ("2", "3")]
    rated = re.search(r"^all: \d+ of (\d+) samples within a quarter", text, re.M)
    assert rated is not None
    assert int(rated[1]) == sum(int(each[2]) for each in pulls) > 0


async def test_the_bench_of_what_is_below_the_cri() -> None:
    names = ["as most nodes", "as ./up.sh"]
    more = ("--containerd", "2", "--pods", "2", "--turns", "1", "--variants", *names)
    text = await run_bench(*more, module="bench.under")
    row = r"^{} +(\d+) +\d+% +\d+ +(\d+) +\d+ +(\d+) +[\d.]+ +[\d.]+$"
    for name in names:
        found = re.search(row.format(re.escape(name)), text, re.M)
        assert found is not None, text
        whole, plugins, runc = map(int, found.groups())
        assert 0 < plugins < whole
        assert 0 < runc < whole
