"""Ensuring images under a verification policy: who may use, must pull again, or is refused."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.images.credentials import AccountSource, Keyring
from kubeletpy.images.gc import ImageGarbageCollector
from kubeletpy.images.gc_selection import ImageGCPolicy
from kubeletpy.images.image_manager import ImageManager, PullSettings
from kubeletpy.images.policy import ImageError
from kubeletpy.images.records.ledger import PullRecords
from kubeletpy.images.records.model import Verification, VerificationPolicy
from kubeletpy.images.records.store import RecordFiles, RecordStore
from kubeletpy.images.reference import LocalImage
from kubeletpy.pods.pod import ContainerKind, Pod, PullSecret
from kubeletpy.remote.errors import CRIError, Internal, NotFound, Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.events import Recorder
from tests.kit.images import Counts, FakeImages
from tests.kit.virtual_time import LoopClock
from tests.unit.images.records.test_ledger import Counts as RecordCounts

pytestmark = pytest.mark.virtual_time

IMAGE = "reg.io/team/app:1"
USED = (
    f'Normal Pulled: Container image "{IMAGE}" already present on machine and can be accessed by '
    "the pod"
)
ABSENT = f'Container image "{IMAGE}" is not present with pull policy of Never'
REFUSED = (
    f'Container image "{IMAGE}" is on the node, but no pull has verified this pod\'s credentials '
    "for it, and the pull policy of Never allows no pull"
)


def pull_secret(password: str, namespace: str, name: str, uid: str) -> PullSecret:
    return PullSecret(namespace, name, uid, {"reg.io": {"username": "me", "password": password}})


RIGHT = pull_secret("right", "ns", "login", "uid-1")
COPY = pull_secret("right", "other", "copy", "uid-2")
WRONG = pull_secret("hunter2", "other", "wrong", "uid-3")


@dataclass
class Providers:
    """One provider that has a password for one account."""

    account: str = ""
    requested: int = 0

    async def keyring(self, repository: str, pod: Pod) -> Keyring:
        self.requested += 1
        name = pod.spec.get("serviceAccountName") or ""
        if name != self.account:
            return Keyring(())
        source = AccountSource(f"uid-{name}", pod.namespace, name) if name else None
        login = {"reg.io": {"username": "robot", "password": "right"}}
        return Keyring([({"auths": login}, source)])


@dataclass
class Node:
    root: Path
    policy: str = "NeverVerifyPreloadedImages"
    providers: Providers | None = None
    images: FakeImages = field(default_factory=FakeImages)
    events: Recorder = field(default_factory=Recorder)
    counts: Counts = field(default_factory=Counts)
    records: Any = None

    def agent(self, settings: PullSettings | None = None) -> ImageManager:
        store = RecordStore(RecordFiles(self.root), LoopClock(), RecordCounts())
        verification = Verification(VerificationPolicy(self.policy))
        self.records = PullRecords(store, verification, self.images.list_images, RecordCounts())
        return ImageManager(
            cast(Any, self.images),
            self.events,
            LoopClock(),
            self.counts,
            providers=self.providers,
            records=self.records,
            settings=settings or PullSettings(),
        )

    def pulled(self) -> list[str]:
        """Returns the users of the pulls since the last call."""
        users = [user for _, user in self.images.pulls]
        self.images.pulls.clear()
        return users


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.images.registry[IMAGE] = "right"
    return made


async def ensure(
    manager: ImageManager,
    *secrets: PullSecret,
    policy: str = "IfNotPresent",
    uid: str = "u1",
    account: str = "",
    image: str = IMAGE,
) -> LocalImage:
    metadata = {"name": "p", "namespace": "ns", "uid": uid}
    spec = {"containers": [{"name": "c"}], "serviceAccountName": account}
    pod = Pod(cast(Any, {"metadata": metadata, "spec": spec}))
    container: Any = {"name": "c", "image": image, "imagePullPolicy": policy}
    return await manager.ensure_image_exists(pod, container, ContainerKind.REGULAR, secrets)


async def failure(*args: Any, **kwargs: Any) -> ImageError:
    with pytest.raises(ImageError) as caught:
        await ensure(*args, **kwargs)
    return caught.value


@pytest.mark.parametrize(
    ("policy", "free"),
    [
        ("NeverVerify", True),
        ("NeverVerifyPreloadedImages", True),
        ("NeverVerifyAllowlistedImages", False),
        ("AlwaysVerify", False),
    ],
)
async def test_preloaded(node: Node, policy: str, free: bool) -> None:
    node.policy = policy
    node.images.add(IMAGE)
    agent = node.agent()
    if free:
        assert await ensure(agent)
        assert node.events.seen == [USED]
        assert node.counts.requests == [("IfNotPresent", True, False)]
    else:
        assert (await failure(agent)).code == "ErrImagePull"
        assert node.counts.requests == [("IfNotPresent", True, True)]
        assert await ensure(agent, RIGHT, uid="u2")
    assert node.pulled() == ([] if free else ["", "me"])


@pytest.mark.parametrize("policy", ["NeverVerifyPreloadedImages", "AlwaysVerify"])
async def test_pulled_with_a_secret(node: Node, policy: str) -> None:
    node.policy = policy
    await ensure(node.agent(), RIGHT)
    assert node.pulled() == ["me"]
    agent = node.agent()
    await ensure(agent, RIGHT, uid="u2")
    await ensure(agent, COPY, uid="u3")
    assert node.pulled() == []
    assert node.events.seen[-1] == USED
    error = await failure(agent, uid="u4")
    assert error.code == "ErrImagePull"
    assert node.counts.requests[-1] == ("IfNotPresent", True, True)
    assert (await failure(agent, WRONG, uid="u5")).code == "ErrImagePull"
    assert node.pulled() == ["", "me"]
    error = await failure(agent, policy="Never", uid="u6")
    assert (error.code, error.message) == ("ErrImageNeverPull", REFUSED)
    assert node.counts.requests[-1] == ("Never", True, True)
    await ensure(agent, RIGHT, policy="Never", uid="u7")
    assert node.pulled() == []
    assert "hunter2" not in "".join(node.events.seen)


async def test_refusals_name_their_cause(node: Node) -> None:
    """The remedy depends on whether the image is absent or reserved for others."""
    agent = node.agent()
    absent = await failure(agent, policy="Never")
    assert node.events.seen[-1] == f"Warning ErrImageNeverPull: {ABSENT}"
    await ensure(agent, RIGHT, uid="u2")
    refused = await failure(agent, policy="Never")
    assert (absent.code, absent.message) == ("ErrImageNeverPull", ABSENT)
    assert (refused.code, refused.message) == ("ErrImageNeverPull", REFUSED)
    assert node.events.seen[-1] == f"Warning ErrImageNeverPull: {REFUSED}"


async def test_public_images_are_everybodys(node: Node) -> None:
    node.images.registry[IMAGE] = ""
    node.policy = "AlwaysVerify"
    agent = node.agent()
    await ensure(agent)
    await ensure(agent, WRONG, uid="u2")
    await ensure(agent, policy="Never", uid="u3")
    assert node.pulled() == [""]


@pytest.mark.parametrize("account", ["", "robot"])
async def test_pulled_with_a_provider(node: Node, account: str) -> None:
    node.providers = Providers(account)
    agent = node.agent()
    await ensure(agent, account=account)
    await ensure(agent, uid="u2", account=account)
    assert node.pulled() == ["robot"]
    if account:
        assert node.providers.requested == 2, "once a container, for the check and the pull"
        assert (await failure(agent, uid="u3", account="other")).code == "ErrImagePull"
    else:
        assert node.providers.requested == 1, "what the node may pull, every pod may use"
        await ensure(agent, uid="u3", account="other")


@pytest.mark.parametrize("parallel", [1, 31, 32, 200])
async def test_credentials_are_verified_whatever_the_number_of_parallel_pulls(
    node: Node, parallel: int
) -> None:
    """behaviour.md, u: ka67. Each image is pulled once, and nobody uses another's pull."""
    names = [f"reg.io/team/{number}:1" for number in range(parallel)]
    node.images.registry |= dict.fromkeys(names, "right")
    node.images.pull_seconds = 1
    agent = node.agent(PullSettings(serialize=False, max_parallel=parallel, qps=0))
    await asyncio.gather(*(ensure(agent, RIGHT, image=name) for name in names))
    assert node.images.most_pulling == parallel
    assert node.pulled() == ["me"] * parallel
    problems = await asyncio.gather(
        *(failure(agent, WRONG, image=name, uid="u2") for name in names)
    )
    assert {each.code for each in problems} == {"ErrImagePull"}
    node.pulled()
    await asyncio.gather(*(ensure(agent, COPY, image=name, uid="u3") for name in names))
    assert node.pulled() == []


async def test_pod_secrets_come_before_providers(node: Node) -> None:
    node.providers = Providers()
    await ensure(node.agent(), WRONG)
    assert node.pulled() == ["me", "robot"]


async def test_another_pods_failure_does_not_free_an_image(node: Node) -> None:
    """The runtime disconnected in the middle of a pull that succeeded."""
    agent = node.agent()
    node.images.pull_error = Unavailable("PullImage", "socket closed")
    assert (await failure(agent, RIGHT)).code == "ErrImagePull"
    node.images.pull_error = None
    node.images.add(IMAGE)
    for uid in ("u2", "u3"):
        assert (await failure(agent, uid=uid)).code == "ErrImagePull"
    again = node.agent()
    assert (await failure(again, uid="u4")).code == "ErrImagePull"
    await ensure(again, RIGHT, uid="u5")


@pytest.mark.parametrize(
    "error",
    [
        CRIError("PullImage", "failed to write metadata"),
        Internal("PullImage", "snapshotter is busy"),
        NotFound("PullImage", "a blob of another image"),
    ],
)
async def test_an_error_after_the_image_arrived_grants_nobody(node: Node, error: CRIError) -> None:
    agent = node.agent()
    node.images.error_after_pull = error
    assert (await failure(agent, RIGHT)).code == "ErrImagePull"
    node.images.error_after_pull = None
    for one in (agent, node.agent()):
        assert (await failure(one, uid="u2")).code == "ErrImagePull"
    await ensure(agent, RIGHT, uid="u3")


@pytest.mark.parametrize("policy", ["Always", "IfNotPresent"])
async def test_a_failed_pull_without_effect_keeps_preloaded_images_free(
    node: Node, policy: str
) -> None:
    agent = node.agent()
    if policy == "Always":
        node.images.add(IMAGE)
    node.images.pull_error = CRIError("PullImage", "the registry is down")
    assert (await failure(agent, RIGHT, policy=policy)).code == "ErrImagePull"
    node.images.pull_error = None
    node.images.pulls.clear()
    node.images.add(IMAGE)
    await ensure(agent, uid="u2")
    assert node.pulled() == []


async def test_an_uncertain_pull_is_not_settled_by_the_next(node: Node) -> None:
    """One credential met a dead runtime, the next a refusal: the first pull may continue."""
    agent = node.agent()
    node.images.pull_errors = [Unavailable("PullImage", "socket closed")]
    assert (await failure(agent, RIGHT, WRONG)).code == "ErrImagePull"
    node.images.add(IMAGE)
    assert (await failure(agent, uid="u2")).code == "ErrImagePull"


async def test_records_follow_image_garbage_collection(node: Node) -> None:
    agent = node.agent()
    await ensure(agent, RIGHT)
    collector = ImageGarbageCollector(
        cast(Any, node.images),
        cast(Any, NoContainers()),
        node.events,
        LoopClock(),
        node.counts,
        node_name="n",
        policy=ImageGCPolicy(),
        on_remaining=node.records.prune,
    )
    folder = node.root / "image_manager" / "pulled"
    await asyncio.sleep(1)
    await collector.run()
    assert len(list(folder.iterdir())) == 1
    node.images.present.clear()
    await asyncio.sleep(300)
    await collector.run()
    assert list(folder.iterdir()) == []


async def test_a_record_outlives_a_round_that_did_not_see_its_image_arrive_again(
    node: Node,
) -> None:
    agent = node.agent()
    await ensure(agent, RIGHT)
    await asyncio.sleep(300)
    node.images.present.clear()  # crictl rmi
    listed_at = LoopClock().now()
    await asyncio.sleep(1)
    await ensure(agent, RIGHT)
    await node.records.prune(frozenset(), listed_at)
    assert (await failure(agent, WRONG, policy="Never")).message == REFUSED


class NoContainers:
    """A runtime without containers."""

    async def list_containers(self) -> list[Any]:
        return []

    async def status(self, *, verbose: bool = False) -> cri.StatusResponse:
        return cri.StatusResponse()
