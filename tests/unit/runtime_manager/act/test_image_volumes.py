"""Messages when a container that mounts images could not be created."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from kubeletpy.images.policy import ImageError, ImageErrorCode
from kubeletpy.pods.pod import ContainerKind, Mount
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.act.start_container import ContainerStarter, with_image_volumes
from kubeletpy.runtime_manager.act.sync_run import StartFailed, Turn
from tests.kit.pods import make_pod

IMAGE = cri.Mount(container_path="/i", image=cri.ImageSpec(image="i"))
BIND = cri.Mount(container_path="/b", host_path="/x")
DOCKER = 'invalid mount config for type "bind": field Source must not be empty'


@pytest.mark.parametrize(
    ("mounts", "problem", "stated"),
    [
        (
            [BIND, IMAGE],
            DOCKER,
            f"{DOCKER} (the container mounts images as volumes, at /i: perhaps this container "
            "runtime has no image volumes)",
        ),
        ([BIND], DOCKER, DOCKER),
        ([IMAGE], "ImageVolumeMountFailed: no space", "ImageVolumeMountFailed: no space"),
    ],
)
def test_a_runtime_that_may_have_none(mounts: list[cri.Mount], problem: str, stated: str) -> None:
    assert with_image_volumes(cri.ContainerConfig(mounts=mounts), problem) == stated


class OnlyOwnImage:
    """Has the container's image, and no other."""

    async def ensure_image_exists(self, _pod: Any, desired: Any, *_: Any) -> Any:
        if desired["image"] != "app:1":
            raise ImageError(ImageErrorCode.PULL, "not found")
        return SimpleNamespace(ref="sha256:a")

    def release(self, _pod: Any, _name: str) -> None:
        """Nothing removes images here."""


@pytest.mark.parametrize(("image", "mounted"), [("app:1", "r.example/models:1"), ("gone:1", "")])
async def test_a_start_that_fails_for_a_mounted_image_names_it(image: str, mounted: str) -> None:
    nothing: Any = Mock()
    starter = ContainerStarter(
        nothing,
        OnlyOwnImage(),  # type: ignore[arg-type]
        nothing,
        nothing,
        nothing,
        recorder=nothing,
        metrics=nothing,
        hooks=nothing,
        actuated=nothing,
        own_starts=nothing,
        settings=nothing,
        root_dir="/x",
        providers=(),
        user_namespace=lambda _pod: None,
    )
    mounts = {"main": [Mount("/models", "", image="r.example/models:1")]}
    run: Any = SimpleNamespace(
        pod=make_pod(),
        request=SimpleNamespace(pull_secrets=(), volume_mounts=mounts),
        sandbox_config=None,
        reference=lambda _action: None,
    )
    action: Any = SimpleNamespace(
        name="main", kind=ContainerKind.REGULAR, container={"name": "main", "image": image}
    )
    with pytest.raises(StartFailed) as failed:
        await starter.start(run, action, Turn())
    assert failed.value.error.code == ImageErrorCode.PULL
    assert failed.value.error.mounted_image == mounted
