"""Finds out by a trial which fields of a container's config a runtime silently ignores.

A runtime ignores fields of the CRI that are newer than itself, or that its configuration turns off.
A container then lacks its CDI devices, or has a complete image in place of a part. The CRI's
Version and Status do not report it. So the agent first creates a container with a device or part
that cannot exist: a runtime that obeys the field refuses it, by that name. Must never start one.
"""

from __future__ import annotations

import logging
import secrets

from kubeletpy.base.structs import Component
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService

NO_DEVICES = (
    "this container runtime takes no CDI devices, or is configured not to: it would leave out"
)
NO_PARTS = (
    "this container runtime can not mount a part of an image (subPath): it would mount the whole at"
)

logger = logging.getLogger(__name__)


class IgnoredFields(Component):
    """Remembers the results of its trials: make a new one when the runtime was unavailable.

    The creation of a trial container causes a runtime event, and thereby a sync of its pod. A trial
    in each attempt to start a container would cause the next attempt at once.
    """

    runtime: RuntimeService

    def __post_init__(self) -> None:
        self._seen: dict[str, bool] = {}

    async def why(
        self, sandbox_id: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        """Why a container must not be made; empty: nothing is known to be left out."""
        devices = [device.name for device in config.CDI_devices]
        if devices:
            trial, absent = _trial(config), f"kubeletpy.local/none=none-{secrets.token_hex(8)}"
            trial.CDI_devices.add(name=absent)
            if not await self._obeys(NO_DEVICES, absent, sandbox_id, trial, sandbox_config):
                return f"{NO_DEVICES} {', '.join(devices)}"
        parts = [mount for mount in config.mounts if mount.image_sub_path]
        if parts:
            trial, absent = _trial(config), f"none-{secrets.token_hex(8)}"
            trial.mounts.append(parts[0])
            trial.mounts[0].image_sub_path = absent
            if not await self._obeys(NO_PARTS, absent, sandbox_id, trial, sandbox_config):
                return f"{NO_PARTS} {', '.join(mount.container_path for mount in parts)}"
        return ""

    async def _obeys(
        self,
        what: str,
        absent: str,
        sandbox_id: str,
        trial: cri.ContainerConfig,
        sandbox_config: cri.PodSandboxConfig,
    ) -> bool:
        if what in self._seen:
            return self._seen[what]
        try:
            made = await self.runtime.create_container(sandbox_id, trial, sandbox_config)
        except CRIError as error:
            if absent in error.details:
                self._seen[what] = True
            return True  # else something else is wrong: the real container fails with the reason
        self._seen[what] = False
        try:
            await self.runtime.remove_container(made)
        except CRIError as error:
            logger.warning(
                "container of a trial not removed; it goes with its pod's sandbox",
                extra={"container_id": made, "error": str(error)},
            )
        return False


def _trial(config: cri.ContainerConfig) -> cri.ContainerConfig:
    """A container of the same image, without labels: nobody takes it for one of a pod."""
    trial = cri.ContainerConfig(image=config.image, command=config.command, args=config.args)
    trial.metadata.name = f"{config.metadata.name}-trial"
    trial.metadata.attempt = config.metadata.attempt
    trial.log_path = f"{trial.metadata.name}.log"
    trial.linux.security_context.CopyFrom(config.linux.security_context)
    return trial
