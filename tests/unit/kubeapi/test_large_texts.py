"""Large JSON texts of answers and events are decoded in threads, small ones at once."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeletpy.base.api import object_text
from kubeletpy.kubeapi.client import JSON_FORMAT, JSON_TYPE


@pytest.mark.parametrize(("keys", "apart"), [(10, False), (20_000, True)])
async def test_a_large_text_is_decoded_off_the_event_loop(
    keys: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, threads = threading.get_ident(), []
    read = object_text.loads

    def loads(text: bytes) -> Any:
        threads.append(threading.get_ident())
        return read(text)

    monkeypatch.setattr(object_text, "loads", loads)
    obj = {"metadata": {"name": "s"}, "data": {f"key-{n}": "" for n in range(keys)}}
    line = json.dumps({"type": "MODIFIED", "object": obj}).encode() + b"\n"

    async def arriving() -> AsyncIterator[bytes]:
        yield line

    found = [each.object async for each in JSON_FORMAT.events(JSON_TYPE, arriving())]
    assert found == [obj]
    assert await JSON_FORMAT.decode(JSON_TYPE, json.dumps(obj).encode()) == obj
    assert {thread != here for thread in threads} == {apart}
