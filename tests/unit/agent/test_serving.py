"""HTTP handlers are imported before servers answer, even if imports fail."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.agent import served
from kubeletpy.agent.served import RETRY_S, Serving

pytestmark = pytest.mark.virtual_time

NO_FILE = OSError(errno.EMFILE, "Too many open files")
Noted = list[tuple[float, str]]
"""Time and name of each server that began to serve."""


class Server:
    """Records when it began to serve."""

    def __init__(self, name: str, noted: Noted) -> None:
        self.code: Sequence[str] = (f"code of {name}",)
        self._name = name
        self._noted = noted

    async def serve(self) -> None:
        self._noted.append((asyncio.get_running_loop().time(), self._name))


class Loading:
    """Test double for imports: first raises the given errors."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> None:
        self.requested: list[list[str]] = []
        self._errors = list(errors)
        monkeypatch.setattr(served, "_import", self._load)

    def _load(self, names: Iterable[str]) -> None:
        self.requested.append(list(names))
        if self._errors:
            raise self._errors.pop(0)


async def test_servers_answer_in_order_once_their_code_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loading, noted = Loading(monkeypatch), Noted()
    await Serving(cast(Any, [Server("a", noted), Server("b", noted)])).run()
    assert noted == [(0.0, "a"), (0.0, "b")]
    assert loading.requested == [["code of a", "code of b"]]


async def test_a_failed_import_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken = ImportError("x.so: cannot open shared object file: Too many open files")
    loading, noted = Loading(monkeypatch, NO_FILE, NO_FILE, broken), Noted()
    await Serving(cast(Any, [Server("a", noted)])).run()
    assert noted == [(3 * RETRY_S, "a")]
    assert len(loading.requested) == 4
    stated = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [vars(each)["why"] for each in stated] == [str(NO_FILE), str(broken)]


_WHOLE = """
import asyncio, importlib, sys
from pathlib import Path
from kubeletpy.observe.explain.server import ExplainServer
from kubeletpy.server.build import KubeletServer
from kubeletpy.server.health import HealthServer
from kubeletpy.metrics.trace.spans import Traces

async def run():
    health = HealthServer("127.0.0.1", 0, checks={}, render_metrics=lambda: (b"", "text/plain"))
    explain = ExplainServer(Path(sys.argv[1]), None, Traces())
    await health.start()
    early = "aiohttp" in sys.modules
    for each in (*health.code, *explain.code):
        importlib.import_module(each)
    loaded = set(sys.modules)
    await health.serve()
    await explain.serve()
    print(early, sorted(set(sys.modules) - loaded))
    await explain.close()
    await health.close()

asyncio.run(run())
"""


def test_serving_imports_only_the_listed_modules(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _WHOLE, str(tmp_path / "explain.sock")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False []\n", "")
