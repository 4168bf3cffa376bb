"""Ensuring an image: decision, pull, credentials, backoff, limits and events."""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kubeletpy.images.image_manager import ImageManager, PullSettings
from kubeletpy.images.policy import ImageAction, ImageError, decide
from kubeletpy.images.reference import LocalImage
from kubeletpy.pods.pod import ContainerKind, Pod, PullSecret
from kubeletpy.remote.errors import CRIError, Unavailable
from tests.kit.costs import no_collections
from tests.kit.events import Recorder
from tests.kit.images import Counts, FakeImages
from tests.kit.virtual_time import LoopClock

pytestmark = pytest.mark.virtual_time


@dataclass
class Node:
    images: FakeImages = field(default_factory=FakeImages)
    events: Recorder = field(default_factory=Recorder)
    counts: Counts = field(default_factory=Counts)

    def manager(self, **settings: Any) -> ImageManager:
        return ImageManager(
            cast(Any, self.images),
            self.events,
            LoopClock(),
            self.counts,
            settings=PullSettings(**settings),
        )


def pod(uid: str = "u1") -> Pod:
    metadata = {"name": "p", "namespace": "d", "uid": uid, "annotations": {"a": "b", "bad": 5}}
    return Pod(cast(Any, {"metadata": metadata, "spec": {"containers": [{"name": "c"}]}}))


async def ensure(
    manager: ImageManager, image: str, policy: str = "", secrets: Any = (), uid: str = "u1"
) -> LocalImage:
    container: Any = {"name": "c", "image": image}
    if policy:
        container["imagePullPolicy"] = policy
    return await manager.ensure_image_exists(pod(uid), container, ContainerKind.REGULAR, secrets)


async def failure(*args: Any, **kwargs: Any) -> ImageError:
    with pytest.raises(ImageError) as caught:
        await ensure(*args, **kwargs)
    return caught.value


async def test_present_image_is_used() -> None:
    node = Node()
    node.images.add("busybox:1", username="nobody")
    found = await ensure(node.manager(), "busybox:1")
    assert found == LocalImage("sha256:busybox:1", None, "nobody")
    assert node.events.seen == [
        'Normal Pulled: Container image "busybox:1" already present on machine and can be accessed '
        "by the pod"
    ]
    assert node.events.paths == ["spec.containers{c}"]
    assert node.counts.requests == [("IfNotPresent", True, False)]
    assert node.images.pulls == []


async def test_the_pulled_event_contains_the_duration() -> None:
    node = Node()
    node.images.registry["r.io/a:latest"] = ""
    node.images.pull_seconds = 1.5
    assert (await ensure(node.manager(), "r.io/a")).ref == "sha256:r.io/a:latest"
    assert node.events.seen == [
        'Normal Pulling: Pulling image "r.io/a"',
        'Normal Pulled: Successfully pulled image "r.io/a" in 1.5s (1.5s including waiting). '
        "Image size: 1000 bytes.",
    ]
    assert node.counts.requests == [("Always", None, True)]
    ((seconds, size),) = node.counts.pulled
    assert seconds == pytest.approx(1.5)
    assert size == 1000


async def test_never() -> None:
    node = Node()
    error = await failure(node.manager(), "x:1", "Never")
    message = 'Container image "x:1" is not present with pull policy of Never'
    assert (error.code, error.message) == ("ErrImageNeverPull", message)
    assert node.events.seen == [f"Warning ErrImageNeverPull: {message}"]


@pytest.mark.parametrize("present", [False, True])
def test_an_unknown_policy_neither_uses_nor_pulls(present: bool) -> None:
    assert decide("always", present=present) is ImageAction.REFUSE
    assert decide("Never", present=present) is not ImageAction.PULL


async def test_bad_name_and_failed_inspection() -> None:
    node = Node()
    error = await failure(node.manager(), "No:Good:Name")
    assert error.code == "InvalidImageName"
    assert error.message.startswith('Failed to apply default image tag "No:Good:Name": ')
    node.images.inspect_error = Unavailable("ImageStatus", "gone")
    error = await failure(node.manager(), "x:1")
    assert (error.code, error.message) == ("ImageInspectError", 'Failed to inspect image "": gone')
    assert [seen.split(":")[0] for seen in node.events.seen] == ["Warning InspectFailed"] * 2


async def test_a_failure_is_freed_with_its_last_reference() -> None:
    """A reference cycle would keep the failure and its pod until a full garbage collection."""
    manager = Node().manager()
    left: list[weakref.ref[BaseException]] = []
    with no_collections():
        try:
            await ensure(manager, "x:1")
        except ImageError as error:
            cause = error.__cause__
            assert isinstance(cause, CRIError)
            left += [weakref.ref(error), weakref.ref(cause)]
            del cause
        await asyncio.sleep(0)
        assert [each() for each in left] == [None, None]


async def test_backoff_doubles_from_the_last_failure_and_quotes_it() -> None:
    node = Node()
    manager = node.manager()
    error = await failure(manager, "x:1")
    assert (error.code, error.message) == ("ErrImagePull", "x:1: not found")
    assert error.retry_at == pytest.approx(LoopClock().now() + 1), "to report the back-off"
    assert error.tries_at == pytest.approx(LoopClock().now() + 10), "to pull"
    assert node.events.seen[-1] == 'Warning Failed: Failed to pull image "x:1": x:1: not found'
    for delay in (10, 20, 40, 80, 160, 300, 300):
        await asyncio.sleep(delay - 0.001)
        error = await failure(manager, "x:1")
        assert error.code == "ImagePullBackOff"
        assert error.message == 'Back-off pulling image "x:1": ErrImagePull: x:1: not found'
        assert node.events.seen[-1] == 'Normal BackOff: Back-off pulling image "x:1"'
        assert error.retry_at == pytest.approx(LoopClock().now() + 0.001)
        await asyncio.sleep(0.001)
        assert (await failure(manager, "x:1")).code == "ErrImagePull"
    assert (await failure(manager, "x:1", uid="other")).code == "ErrImagePull"
    await asyncio.sleep(601)
    await failure(manager, "x:1")
    await asyncio.sleep(10)
    assert (await failure(manager, "x:1")).code == "ErrImagePull"


async def test_runtimes_own_codes() -> None:
    node = Node()
    node.images.pull_error = CRIError("PullImage", "RegistryUnavailable: 503")
    error = await failure(node.manager(), "x:1")
    assert error.code == "RegistryUnavailable"
    assert error.message == ("image pull failed for x:1 because the registry is unavailable: 503")
    node.images.pull_error = CRIError("PullImage", "SignatureValidationFailed")
    assert (await failure(node.manager(), "x:1")).code == "SignatureValidationFailed"


async def test_credentials_in_turn_and_never_shown() -> None:
    node = Node()
    node.images.registry["r.io/a:1"] = "right"
    wrong, right = (
        PullSecret("default", "s", "u", {registry: {"username": user, "password": password}})
        for registry, user, password in (("r.io/a", "w", "hunter2"), ("r.io", "me", "right"))
    )
    manager = node.manager()
    assert (await ensure(manager, "r.io/a:1", secrets=[right, wrong])).ref
    assert node.images.pulls == [("r.io/a:1", "w"), ("r.io/a:1", "me")]
    error = await failure(manager, "r.io/a:1", "Always", secrets=[wrong])
    assert error.code == "ErrImagePull"
    assert "hunter2" not in error.message + " ".join(node.events.seen)
    error = await failure(node.manager(), "r.io/a:1", "Always")
    assert node.images.pulls[-1] == ("r.io/a:1", "")


@pytest.mark.parametrize(
    ("settings", "most", "seconds"),
    [
        ({"qps": 0}, 1, 6),
        ({"qps": 0, "serialize": False}, 6, 1),
        ({"qps": 0, "serialize": False, "max_parallel": 2}, 2, 3),
    ],
)
async def test_parallel_pulls(settings: dict[str, Any], most: int, seconds: float) -> None:
    node = Node()
    node.images.pull_seconds = 1
    names = [f"r.io/{n}:1" for n in range(6)]
    node.images.registry = dict.fromkeys(names, "")
    manager = node.manager(**settings)
    before = asyncio.get_running_loop().time()
    await asyncio.gather(*(ensure(manager, name) for name in names))
    assert asyncio.get_running_loop().time() - before == pytest.approx(seconds)
    assert node.images.most_pulling == most
    if most == 1:
        assert "in 1s (6s including waiting)" in node.events.seen[-1]


async def test_too_many_pulls_a_second() -> None:
    node = Node()
    node.images.registry = {f"r.io/{n}:1": "" for n in range(4)}
    manager = node.manager(qps=1, burst=2)
    await ensure(manager, "r.io/0:1")
    await ensure(manager, "r.io/1:1")
    error = await failure(manager, "r.io/2:1")
    assert (error.code, error.message) == ("ErrImagePull", "pull QPS exceeded")
    await asyncio.sleep(1)
    await ensure(manager, "r.io/3:1")


async def test_canceling_releases_the_slot() -> None:
    node = Node()
    node.images.registry = {"a:1": "", "b:1": ""}
    node.images.pull_seconds = 100
    manager = node.manager()
    first = asyncio.create_task(ensure(manager, "a:1"))
    second = asyncio.create_task(ensure(manager, "b:1"))
    await asyncio.sleep(1)
    first.cancel()
    await second
    assert first.cancelled()
    assert asyncio.get_running_loop().time() < 120


class Times:
    """Records the notifications about pulls."""

    def __init__(self) -> None:
        self.notified: list[tuple[str, str, str, float]] = []

    def pull_began(self, uid: str, what: str) -> None:
        self.notified.append(("began", uid, what, asyncio.get_running_loop().time()))

    def image_present(self, uid: str, what: str) -> None:
        self.notified.append(("there", uid, what, asyncio.get_running_loop().time()))


async def test_how_long_a_pod_waits_for_an_image_is_reported() -> None:
    node, times = Node(), Times()
    node.images.registry["r/a:1"] = ""
    manager = ImageManager(
        cast(Any, node.images), node.events, LoopClock(), node.counts, pull_times=times
    )
    node.images.pull_error = Unavailable("PullImage", "down")
    await failure(manager, "r/a:1")
    await failure(manager, "r/a:1")
    assert [what for what, *_ in times.notified] == ["began"], "no pull is tried while it backs off"
    await asyncio.sleep(20)
    node.images.pull_error = None
    await ensure(manager, "r/a:1")
    await ensure(manager, "r/a:1")
    what = "spec.containers{c} r/a:1"
    assert [notified[:3] for notified in times.notified] == [
        ("began", "u1", what),
        ("began", "u1", what),
        ("there", "u1", what),
        ("there", "u1", what),
    ]
