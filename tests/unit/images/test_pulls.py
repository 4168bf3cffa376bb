"""Decisions before and after a pull: by policy, by backoff, by the runtime's error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.images.image_manager import ImageManager
from kubeletpy.images.policy import (
    ImageAction,
    ImageError,
    ImageErrorCode,
    PullBackoff,
    decide,
    needs_lookup,
    pull_failure,
    runtime_text,
)
from kubeletpy.images.reference import LocalImage, local_image
from kubeletpy.pods.pod import ContainerKind, Pod
from kubeletpy.remote.errors import Code, CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.virtual_time import on_virtual_time
from tests.unit.images.test_access import IMAGE, RIGHT, Node, ensure


@pytest.mark.parametrize(
    ("policy", "present", "accessible", "action"),
    [
        ("Always", True, True, ImageAction.PULL),
        ("Always", False, True, ImageAction.PULL),
        ("IfNotPresent", True, True, ImageAction.USE),
        ("IfNotPresent", True, False, ImageAction.PULL),
        ("IfNotPresent", False, True, ImageAction.PULL),
        ("Never", True, True, ImageAction.USE),
        ("Never", True, False, ImageAction.REFUSE),
        ("Never", False, True, ImageAction.REFUSE),
    ],
)
def test_policies(policy: str, present: bool, accessible: bool, action: ImageAction) -> None:
    assert decide(policy, present=present, accessible=accessible) is action
    assert needs_lookup(policy) is (policy != "Always")


def test_a_present_image_is_accessible_by_default() -> None:
    assert decide("Never", present=True) is ImageAction.USE


def test_a_pull_that_failed_is_held_back_until_its_time() -> None:
    backoff = PullBackoff()
    assert backoff.blocked_until("k", 100.0) is None
    assert backoff.failed("k", 100.0, "first") == 110.0
    assert backoff.blocked_until("k", 109.9) == (110.0, "first")
    assert backoff.blocked_until("k", 110.0) is None
    assert backoff.failed("k", 110.0, "again") == 130.0
    assert backoff.blocked_until("k", 111.0) == (130.0, "again")
    assert backoff.blocked_until("other", 111.0) is None


def test_backoff_is_dropped_ten_minutes_after_the_last_failure() -> None:
    backoff = PullBackoff()
    backoff.failed("old", 0.0, "x")
    backoff.failed("new", 500.0, "y")
    backoff.forget_expired(601.0)
    assert backoff.failed("old", 601.0, "x") == 611.0
    assert backoff.failed("new", 601.0, "y") == 621.0
    backoff.forget_expired(601.0)
    assert backoff.blocked_until("new", 602.0) == (621.0, "y")
    backoff.forget_expired(1202.0)
    assert not backoff._causes


def test_causes_are_not_kept_longer_than_their_backoff() -> None:
    backoff = PullBackoff()
    for number in range(8200):  # at most 8192 are held back at a time
        backoff.failed(str(number), 0.0, "x")
    assert len(backoff._causes) == 8192


@pytest.mark.parametrize(
    ("stated", "code", "message"),
    [
        ("no such host", ImageErrorCode.PULL, "no such host"),
        (
            "RegistryUnavailable: 503",
            ImageErrorCode.REGISTRY_UNAVAILABLE,
            "image pull failed for x because the registry is unavailable: 503",
        ),
        (
            "SignatureValidationFailed: no key",
            ImageErrorCode.SIGNATURE,
            "image pull failed for x because the signature validation failed: no key",
        ),
        ("it was RegistryUnavailable", ImageErrorCode.PULL, "it was RegistryUnavailable"),
    ],
)
def test_why_a_pull_failed(stated: str, code: ImageErrorCode, message: str) -> None:
    error = pull_failure("x", stated)
    assert (error.code, error.message, str(error), error.retry_at) == (code, message, message, None)


@pytest.mark.parametrize(("details", "text"), [("no space", "no space"), ("", "UNAVAILABLE")])
def test_errors_of_a_runtime(details: str, text: str) -> None:
    assert runtime_text(CRIError("PullImage", details, code=Code.UNAVAILABLE)) == text


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (None, None),
        (cri.Image(), None),
        (cri.Image(id="sha256:1"), LocalImage("sha256:1")),
        (cri.Image(id="1", username="joe"), LocalImage("1", None, "joe")),
        (cri.Image(id="1", uid=cri.Int64Value(value=0)), LocalImage("1", 0)),
        (cri.Image(id="1", uid=cri.Int64Value(value=7)), LocalImage("1", 7)),
    ],
)
def test_an_image_on_the_node(image: cri.Image | None, found: LocalImage | None) -> None:
    assert local_image(cri.ImageStatusResponse(image=image)) == found


# A registry or a runtime that lies about pulled images, and names that mean other images.

IDENTIFIER = "sha256:" + "0" * 64


async def use(manager: ImageManager, image: str, policy: str) -> object:
    metadata = {"name": "p", "namespace": "theirs", "uid": "u9"}
    pod = Pod(cast(Any, {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}))
    container: Any = {"name": "c", "image": image, "imagePullPolicy": policy}
    return await manager.ensure_image_exists(pod, container, ContainerKind.REGULAR, [])


@pytest.mark.parametrize("policy", ["Never", "IfNotPresent"])
@on_virtual_time
async def test_an_image_of_others_is_not_reached_by_another_name(
    tmp_path: Path, policy: str
) -> None:
    node = Node(tmp_path)
    node.images.registry[IMAGE] = "right"
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
