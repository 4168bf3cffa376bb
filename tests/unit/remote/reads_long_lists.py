"""A process of its own that relists a runtime and collects garbage, and prints what that cost.

Run it with the runtime's endpoint and an empty directory. It prints one line of JSON: the KiB by
which its largest resident set grew, and the largest number of tasks at a time.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy.syncloop.pleg import Pleg, RelistHealth
from tests.kit.runtime import FakeNode
from tests.kit.virtual_time import LoopClock

READS = 8
"""Number of pods that the process reads."""


def largest_kib() -> int:
    """The largest resident set of this process so far."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0])


class Counting:
    """A runtime manager that implements only some reads of pods."""

    def __init__(self, manager: KubeRuntimeManager) -> None:
        self.manager = manager
        self.reads, self.tasks = 0, 0
        self.enough = asyncio.Event()

    async def list_pods(self) -> Any:
        return await self.manager.source.list_pods()

    async def get_pod_status(self, uid: str, name: str, namespace: str) -> PodRuntimeStatus:
        self.reads += 1
        if self.reads > READS:
            self.enough.set()
            await asyncio.Event().wait()
        found = await self.manager.source.read_pod_status(uid, name, namespace)
        self.tasks = max(self.tasks, len(asyncio.all_tasks()))
        return found


async def main(endpoint: str, directory: Path) -> None:
    runtime = RemoteRuntime(endpoint)
    await runtime.wait_ready()
    node = FakeNode(directory, cast(Any, runtime))
    counting = Counting(node.manager)
    pleg = Pleg(
        counting.list_pods,
        counting.get_pod_status,
        PodStatusCache(),
        LoopClock(),
        lambda *_: None,
        health=RelistHealth(),
        metrics=Metrics().pleg,
    )
    before = largest_kib()
    relist = asyncio.ensure_future(pleg.relist())
    await counting.enough.wait()
    relist.cancel()
    await asyncio.gather(relist, return_exceptions=True)
    collect = asyncio.ensure_future(
        node.manager.collector.collect(all_sources_ready=True, removable=lambda uid: True)
    )
    await asyncio.wait([collect], timeout=1)
    collect.cancel()
    await asyncio.gather(collect, return_exceptions=True)
    await runtime.close()
    print(json.dumps({"kib": largest_kib() - before, "tasks": counting.tasks}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
