"""Tries whether CPUs and memory that pods have by position suit the agent's settings.

The agent's own managers do it in memory, on copies of the state files, so nothing changes on the
node. Devices are left out: their plugins have registered with the kubelet.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kubeletpy.agent.placement import has_placement, placement_managers
from kubeletpy.config import ConfigError, KubeletSettings
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.facts import MachineFacts
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.placement.machine import MachineTopology, TopologyUnknown, read_machine
from kubeletpy.resources.placement.static_manager import StateUnusable

FILES = ("cpu_manager_state", "memory_manager_state")
PlaceAtStart = Callable[[Pod], Rejection | None]
"""Why the start of the agent would find no position on the machine for a pod; None: it has one."""


class PlacementNotTried(Exception):
    """The positions of pods can't be judged; the text contains the reason."""


def no_position(pod: Pod) -> Rejection | None:
    """No resource of this node is assigned by position."""
    return None


@asynccontextmanager
async def placing(
    settings: KubeletSettings,
    facts: MachineFacts,
    root: Path,
    read: Callable[[], MachineTopology] = read_machine,
) -> AsyncIterator[PlaceAtStart]:
    """Place pods, one after another, as the start of the agent would.

    Raises PlacementNotTried: with these settings and files the agent would not start.
    """
    if not has_placement(settings):
        yield no_position
        return
    with TemporaryDirectory(prefix="kubeletpy-preflight-") as directory:
        for name in FILES:
            if (root / name).exists():
                shutil.copyfile(root / name, Path(directory) / name)
        try:
            managers = placement_managers(
                settings,
                read(),
                facts,
                Path(directory),
                metrics=Metrics().placement,
                users=lambda: None,
                decided=lambda uid, decisions: None,
            )
            await managers.cpus.start()
            await managers.memory.start()
        except (ConfigError, StateUnusable, TopologyUnknown) as error:
            raise PlacementNotTried(str(error)) from error

        def place(pod: Pod) -> Rejection | None:
            found = managers.place(pod)
            return found if isinstance(found, Rejection) else None

        try:
            yield place
        finally:
            await managers.cpus.close()
            await managers.memory.close()
