"""The node's images, read from the runtime's list."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.node.build import ImageSummary, node_images
from kubeletpy.node.node_manager import image_summaries
from kubeletpy.remote.errors import InvalidResponse
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.simple import PartialRuntime


class Listing(PartialRuntime):
    """A runtime that lists these images; with None its answer cannot be decoded."""

    def __init__(self, *images: cri.Image) -> None:
        self.images = images

    async def list_images(self, filter: cri.ImageFilter | None = None) -> Sequence[cri.Image]:
        return self.images


class Broken(PartialRuntime):
    """A runtime whose list is garbage."""

    async def list_images(self, filter: cri.ImageFilter | None = None) -> Sequence[cri.Image]:
        raise InvalidResponse("ListImages", "garbage")


async def test_sizes_beyond_int64_are_cut_to_the_largest_that_the_api_accepts() -> None:
    found = await image_summaries(
        Listing(
            cri.Image(id="a", repo_tags=["a:1"], repo_digests=["a@sha256:0"], size=2**64 - 1),
            cri.Image(id="b", repo_tags=["b:1"], size=2**63 - 1),
            cri.Image(id="c", repo_tags=["c:1"]),
        )
    )
    assert found == [
        ImageSummary(["a@sha256:0", "a:1"], 2**63 - 1),
        ImageSummary(["b:1"], 2**63 - 1),
        ImageSummary(["c:1"], 0),
    ]
    assert max(image["sizeBytes"] for image in node_images(found, -1)) == 2**63 - 1


async def test_names_of_a_megabyte_are_left_out() -> None:
    (found,) = await image_summaries(
        Listing(cri.Image(id="a", repo_tags=["x" * 1_000_000, "a:1", "y" * 1024, "z" * 1025]))
    )
    assert list(found.names) == ["a:1", "y" * 1024]


async def test_a_list_that_can_not_be_read_is_no_image() -> None:
    assert await image_summaries(Broken()) == ()
