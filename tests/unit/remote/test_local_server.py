"""A server socket that cannot be created fails with an error that contains the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.remote.local_server import LocalServer, Rate


async def test_why_it_can_not_listen(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    with pytest.raises(OSError, match=rf"its path has {len(str(long))} bytes, and .* 107 at most"):
        await LocalServer(long, 1, {}).start()
    with pytest.raises(FileNotFoundError):
        await LocalServer(tmp_path / "missing/s", 1, {}).start()
    (tmp_path / "d").mkdir()
    with pytest.raises(OSError, match="Address already in use"):
        await LocalServer(tmp_path / "d", 1, {}).start()


# Calls a second, with a burst.


def test_rate() -> None:
    rate = Rate(100, 10)
    assert [rate.takes(5.0) for _ in range(11)] == [True] * 10 + [False]
    assert rate.takes(5.011)
    assert not rate.takes(5.012)
