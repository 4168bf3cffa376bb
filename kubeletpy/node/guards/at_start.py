"""Applies settings to machine and process at start, and logs each warning once.

Source: docs/reference/behaviour-resources.md, rj, rk; docs/reference/events.csv: CgroupV1,
PossibleMemoryBackedVolumesOnDisk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kubeletpy.base.structs import Struct
from kubeletpy.config import KubeletSettings
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.node.guards.host import GuardedHost
from kubeletpy.node.guards.own_process import CHECK_EVERY_S, set_oom_score, set_open_files
from kubeletpy.node.guards.swap import NOTICE, mounts_noswap, supports_noswap
from kubeletpy.node.guards.sysctls import settle

log = logging.getLogger(__name__)

CGROUP_V1 = (
    "This node uses cgroup v1, which is in maintenance mode; support will be removed: "
    "boot the node with cgroup v2"
)

DEFAULT_OOM_SCORE_ADJ = -999
"""Source: docs/reference/constants.csv: resources: kubelet oom_score_adj."""

Warn = Callable[[Reason, str], None]
"""Records a warning about the node."""


class StartSettings(Struct, frozen=True):
    """The configuration of machine and process."""

    oom_score_adj: int = DEFAULT_OOM_SCORE_ADJ
    max_open_files: int = 0
    set_kernel_settings: bool = False

    @classmethod
    def from_settings(cls, settings: KubeletSettings, *, keep_kernel: bool) -> StartSettings:
        """``keep_kernel``: something else manages the kernel's settings.

        With protectKernelDefaults they were already checked when the agent began to start.
        """
        return cls(
            settings.oom_score_adj,
            settings.max_open_files,
            not keep_kernel and not settings.protect_kernel_defaults,
        )


class MachineAtStart:
    """Sets what the configuration requests; what the machine does not allow is logged once."""

    def __init__(
        self,
        settings: StartSettings,
        host: GuardedHost,
        warn: Warn,
        *,
        root: Path,
        cgroup_v2: bool,
        swap_on: bool,
        kernel_version: str,
        in_user_namespace: bool,
    ) -> None:
        """``root`` is the kubelet's root directory."""
        self._settings = settings
        self._host = host
        self._warn = warn
        self._root = root
        self._cgroup_v2 = cgroup_v2
        self._swap_on = swap_on
        self._kernel_version = kernel_version
        self._in_user_namespace = in_user_namespace
        self._refused: list[str] = []

    @property
    def refused(self) -> tuple[str, ...]:
        """The settings that the machine did not allow, for people."""
        return tuple(self._refused)

    async def start(self) -> None:
        """Apply the settings; never fails for what can't be set."""
        self._refused = await asyncio.to_thread(self._set)
        for problem in self._refused:
            log.warning("could not apply the setting", extra={"why": problem})
        if not self._cgroup_v2:
            self._warn(Reason.CGROUP_V1, CGROUP_V1)
        if self._swap_on and not await asyncio.to_thread(self._noswap):
            self._warn(Reason.POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK, NOTICE)

    async def run(self) -> None:
        """Keep the agent's own OOM score as it should be, until cancelled."""
        own = self._host.proc / str(self._host.own_pid)
        keep = partial(set_oom_score, self._settings.oom_score_adj, own)
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            problem = await asyncio.to_thread(keep)
            if problem and problem not in self._refused:
                log.warning("could not apply the setting", extra={"why": problem})
                self._refused.append(problem)

    def _set(self) -> list[str]:
        host, settings = self._host, self._settings
        found = [
            set_oom_score(settings.oom_score_adj, host.proc / str(host.own_pid)),
            set_open_files(settings.max_open_files),
        ]
        if settings.set_kernel_settings and (wrong := settle(host.kernel_settings)):
            found.append(f"kernel settings: {'; '.join(wrong)}")
        return [problem for problem in found if problem]

    def _noswap(self) -> bool:
        inside = self._in_user_namespace
        known = supports_noswap(self._kernel_version, in_user_namespace=inside)
        return mounts_noswap(self._root) if known is None else known
