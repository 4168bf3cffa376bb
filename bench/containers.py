"""What has to be known of a container to have it end by itself."""

from __future__ import annotations

import json

from kubeletpy.remote.client import RemoteRuntime


async def main_process(runtime: RemoteRuntime, container: str) -> int:
    """The process id of a container's first process, on the host."""
    answer = await runtime.container_status(container, verbose=True)
    return int(json.loads(answer.info["info"])["pid"])
