"""What is said when a container that mounts images could not be created."""

from __future__ import annotations

import pytest

from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.act.image_volumes import with_image_volumes

IMAGE = cri.Mount(container_path="/i", image=cri.ImageSpec(image="i"))
BIND = cri.Mount(container_path="/b", host_path="/x")
DOCKER = 'invalid mount config for type "bind": field Source must not be empty'


@pytest.mark.parametrize(
    ("mounts", "problem", "said"),
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
def test_a_runtime_that_may_have_none(mounts: list[cri.Mount], problem: str, said: str) -> None:
    assert with_image_volumes(cri.ContainerConfig(mounts=mounts), problem) == said
