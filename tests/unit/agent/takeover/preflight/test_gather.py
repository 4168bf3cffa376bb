"""The version that a preflight determines."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from kubeletpy import config
from kubeletpy.agent.launch.runtime import resolve_auto
from kubeletpy.agent.takeover.preflight.gather import resolve_version
from kubeletpy.config import NodeFlags
from kubeletpy.config.version_choice import VersionSource
from kubeletpy.kubeapi.protocol import KubeApi
from tests.kit.virtual_time import on_virtual_time


class SlowApi:
    """Answers as an API server that has a tenth of a processor."""

    async def version(self) -> bytes:
        await asyncio.sleep(20)
        return b'{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}'


def flags_of(root: Path) -> NodeFlags:
    return config.parse_flags([f"--root-dir={root}", "--kubeconfig=k"]).node


@on_virtual_time
async def test_a_slow_api_server_has_a_version_for_a_preflight(tmp_path: Path) -> None:
    api = cast(KubeApi, cast(Any, SlowApi()))
    found = await resolve_version(flags_of(tmp_path), api)
    assert (str(found.version), found.source) == ("1.36", VersionSource.SERVER)
    at_a_start = await resolve_auto(flags_of(tmp_path), api)
    assert at_a_start.source is VersionSource.OLDEST
