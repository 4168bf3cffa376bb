"""A registry or a runtime that lies about pulled images, and names that mean other images."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.images.image_manager import ImageManager
from kubeletpy.images.policy import ImageError
from kubeletpy.pods.pod import ContainerKind, Pod
from tests.unit.images.test_access import IMAGE, RIGHT, Node, ensure
from tests.virtual_time import on_virtual_time

IDENTIFIER = "sha256:" + "0" * 64


async def use(manager: ImageManager, image: str, policy: str) -> object:
    metadata = {"name": "p", "namespace": "theirs", "uid": "u9"}
    pod = Pod(cast(Any, {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}))
    container: Any = {"name": "c", "image": image, "imagePullPolicy": policy}
    return await manager.ensure_image_exists(pod, container, ContainerKind.REGULAR, [])


@pytest.mark.parametrize("policy", ["Never", "IfNotPresent"])
def test_an_image_of_others_is_not_reached_by_another_name(tmp_path: Path, policy: str) -> None:
    node = Node(tmp_path)
    node.images.registry[IMAGE] = "right"

    @on_virtual_time
    async def scenario() -> None:
        agent = node.agent()
        await ensure(agent, RIGHT)
        private = node.images.present[IMAGE]
        pull = node.images.pull_image

        async def lies(*_: Any) -> str:
            return private.id

        cast(Any, node.images).pull_image = lies
        await use(agent, "evil.example/x:1", "IfNotPresent")  # it "is" the private image
        cast(Any, node.images).pull_image = pull
        # the grant belongs to the other repository; and an id grants no access to an image
        node.images.present[IDENTIFIER] = private
        for image in (IMAGE, IDENTIFIER):
            with pytest.raises(ImageError):
                await use(agent, image, policy)

    scenario()
