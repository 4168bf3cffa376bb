"""An image service in memory: a node's images and a registry with passwords."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from kubeletpy.metrics.resources import ImageMetrics
from kubeletpy.remote.errors import CRIError, Unauthenticated
from kubeletpy.remote.generated import api_pb2 as cri


@dataclass
class FakeImages:
    """Implements the calls of ImageService that the agent makes."""

    present: dict[str, cri.Image] = field(default_factory=dict)
    registry: dict[str, str] = field(default_factory=dict)
    """Image -> password needed, "" for none."""
    pull_seconds: float = 0.0
    inspect_error: CRIError | None = None
    pull_error: CRIError | None = None
    pull_errors: list[CRIError] = field(default_factory=list)
    """Errors of the next pulls, one for each."""
    error_after_pull: CRIError | None = None
    """The image arrives, but the pull returns this error."""
    remove_error: CRIError | None = None
    pulls: list[tuple[str, str]] = field(default_factory=list)
    pulling: int = 0
    most_pulling: int = 0
    removed: list[str] = field(default_factory=list)
    filesystem: str = "/"

    def add(self, name: str, size: int = 1000, **more: object) -> cri.Image:
        image = cri.Image(id=f"sha256:{name}", repo_tags=[name], size=size, **more)  # type: ignore[arg-type]
        self.present[name] = image
        return image

    async def list_images(self, filter: cri.ImageFilter | None = None) -> Sequence[cri.Image]:
        return list(self.present.values())

    async def image_status(
        self, image: cri.ImageSpec, verbose: bool = False
    ) -> cri.ImageStatusResponse:
        if self.inspect_error is not None:
            raise self.inspect_error
        return cri.ImageStatusResponse(image=self.present.get(image.image))

    async def pull_image(
        self,
        image: cri.ImageSpec,
        auth: cri.AuthConfig | None = None,
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> str:
        self.pulls.append((image.image, auth.username if auth is not None else ""))
        self.pulling += 1
        self.most_pulling = max(self.most_pulling, self.pulling)
        try:
            if self.pull_seconds:
                await asyncio.sleep(self.pull_seconds)
        finally:
            self.pulling -= 1
        if self.pull_error is not None:
            raise self.pull_error
        if self.pull_errors:
            raise self.pull_errors.pop(0)
        needed = self.registry.get(image.image)
        if needed is None:
            raise CRIError("PullImage", f"{image.image}: not found")
        if needed and (auth is None or auth.password != needed):
            supplied = auth.password if auth is not None else ""
            raise Unauthenticated("PullImage", f"denied {supplied}")
        made = self.add(image.image)
        if self.error_after_pull is not None:
            raise self.error_after_pull
        return made.id

    async def remove_image(self, image: cri.ImageSpec) -> None:
        if self.remove_error is not None:
            raise self.remove_error
        self.removed.append(image.image)
        self.present = {k: v for k, v in self.present.items() if v.id != image.image}

    async def image_fs_info(self) -> cri.ImageFsInfoResponse:
        usage = cri.FilesystemUsage(fs_id=cri.FilesystemIdentifier(mountpoint=self.filesystem))
        return cri.ImageFsInfoResponse(image_filesystems=[usage])


class Counts(ImageMetrics):
    """Records calls of the metrics."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, bool | None, bool | None]] = []
        self.pulled: list[tuple[float, int]] = []
        self.collected: list[str] = []

    def image_requested(
        self, pull_policy: str, present: bool | None, pull_required: bool | None
    ) -> None:
        self.requests.append((pull_policy, present, pull_required))

    def image_pulled(self, seconds: float, size: int) -> None:
        self.pulled.append((seconds, size))

    def image_garbage_collected(self, reason: str) -> None:
        self.collected.append(reason)
