"""Limits of image garbage collection: ages, use and disk usage on both sides of each limit."""

from __future__ import annotations

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.images.gc_selection import (
    Disk,
    ImageGCPolicy,
    ImageRecord,
    bytes_to_free,
    eviction_order,
    may_free_space,
    pod_images,
    refresh,
    sandbox_images,
    too_old,
    used_image_ids,
)
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.pods import make_pod

A = ImageRecord("a", 10, False, first_detected=100)
AGING = ImageGCPolicy(max_age=100)


@pytest.mark.parametrize(
    ("now", "last_used", "goes"),
    [
        (200, 0, False),  # detected exactly as long ago as images may be unused
        (201, 0, True),
        (1001, 901, False),
        (1001, 900, True),
    ],
)
def test_too_old(now: float, last_used: float, goes: bool) -> None:
    image = replace(A, last_used=last_used)
    assert too_old([image], AGING, now) == ([image] if goes else [])


@pytest.mark.parametrize("max_age", [0, -1])
def test_without_an_age_nothing_is_too_old(max_age: float) -> None:
    assert too_old([A], ImageGCPolicy(max_age=max_age), 1e9) == []


def test_an_age_limit_of_a_second_applies() -> None:
    assert too_old([A], ImageGCPolicy(max_age=1), 1000) == [A]


DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("reference", "listed"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox", "busybox:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("r.example/a/b:1", "r.example/a/b:1"),
        (f"busybox@{DIGEST}", f"docker.io/library/busybox@{DIGEST}"),
        (f"busybox:1@{DIGEST}", f"docker.io/library/busybox@{DIGEST}"),
        ("localhost/Odd", "localhost/Odd"),
    ],
)
def test_images_of_volumes_are_used(reference: str, listed: str) -> None:
    digest = "@" in listed
    image = cri.Image(id="1", repo_tags=[] if digest else [listed])
    image.repo_digests.extend([listed] if digest else [])
    other = cri.Image(id="2", repo_tags=["docker.io/library/other:latest"])
    assert used_image_ids((), [image, other], [reference]) == {"1"}


def test_images_without_an_id_are_not_in_use() -> None:
    assert used_image_ids([cri.Container(image_id="a")], [cri.Image()]) == frozenset()


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ({}, set()),
        ({"config": '{"sandboxImage": "pause:1", "containerd": {}}'}, {"pause:1"}),
        ({"config": '{"sandboxImage": ""}'}, set()),
        ({"config": '{"sandboxImage": 1}'}, set()),
        ({"config": "[]"}, set()),
        ({"config": "not json"}, set()),
        ({"config": "[" * 100_000}, set()),
        ({"config": '{"sandboxImage": "a"}'.ljust(1 << 20)}, {"a"}),
        ({"config": '{"sandboxImage": "a"}'.ljust((1 << 20) + 1)}, set()),
    ],
)
def test_the_image_of_sandboxes(info: dict[str, str], found: set[str]) -> None:
    assert sandbox_images(info) == found


def test_images_are_used_by_volumes_of_all_pods_and_containers_of_active_ones() -> None:
    volumes = [
        {"name": "a", "image": {"reference": "x:1"}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "image": {}},
    ]
    mounts = make_pod(volumes=volumes, containers=[{"name": "c", "image": "y:1"}])
    starts = make_pod(
        "other",
        initContainers=[{"name": "i", "image": "i:1"}],
        containers=[{"name": "c", "image": "c:1"}, {"name": "d"}],
        ephemeralContainers=[{"name": "e", "image": "e:1"}],
    )
    assert pod_images([mounts, starts], [starts]) == {"x:1", "i:1", "c:1", "e:1"}


DIGEST = "sha256:" + "d" * 64


@pytest.mark.parametrize(
    "reference",
    ["app:1", "docker.io/library/app:1", f"app@{DIGEST}", f"app:2@{DIGEST}", "sha256:id"],
)
@pytest.mark.parametrize("prefix", ["docker.io/library/", ""])  # as runtimes list them
def test_a_pod_uses_an_image_by_any_of_its_names(reference: str, prefix: str) -> None:
    image = cri.Image(
        id="sha256:id", repo_tags=[f"{prefix}app:1"], repo_digests=[f"{prefix}app@{DIGEST}"]
    )
    other = cri.Image(id="sha256:other", repo_tags=["docker.io/library/other:1"])
    assert used_image_ids([], [image, other], [reference]) == {"sha256:id"}


@pytest.mark.parametrize(
    ("high", "max_age", "off"),
    [(99, 0, False), (100, 0, True), (101, 0, True), (100, 1, False), (100, -1, True)],
)
def test_settings_that_disable_collection(high: int, max_age: float, off: bool) -> None:
    assert ImageGCPolicy(high_threshold_percent=high, max_age=max_age).off is off


@pytest.mark.parametrize(
    ("available", "free"), [(160, 0), (159, 41), (150, 50), (149, 51), (0, 200), (2000, 0)]
)
def test_bytes_to_free(available: int, free: int) -> None:
    assert bytes_to_free(Disk(1000, available), ImageGCPolicy()) == free


@pytest.mark.parametrize(
    ("available", "percent"), [(999, 1), (995, 1), (990, 1), (1000, 0), (0, 100), (5000, 0)]
)
def test_a_started_percent_is_used(available: int, percent: int) -> None:
    assert Disk(1000, available).used_percent == percent


def test_nothing_to_free_when_the_thresholds_are_crossed() -> None:
    assert bytes_to_free(Disk(1000, 500), ImageGCPolicy(10, 90)) == 0


@pytest.mark.parametrize(
    ("now", "last_used", "may"),
    [(219, 0, False), (220, 0, True), (300, 300, False), (300, 299, True), (300, 301, False)],
)
def test_young_or_used_images_are_kept(now: float, last_used: float, may: bool) -> None:
    assert may_free_space(replace(A, last_used=last_used), ImageGCPolicy(), now) is may


def test_refresh_keeps_times_of_an_image() -> None:
    known = {"a": replace(A, last_used=150), "gone": replace(A, id="gone")}
    new = ImageRecord("b", 5, False, first_detected=200)
    listed = [replace(A, first_detected=200, size=11), new]
    assert refresh(known, listed, frozenset(), 200) == {
        "a": ImageRecord("a", 11, False, first_detected=100, last_used=150),
        "b": new,
    }
    used = refresh(known, listed, frozenset({"a", "b"}), 200)
    assert {image.last_used for image in used.values()} == {200}


def test_the_longest_unused_image_is_first_then_the_oldest() -> None:
    b, c = replace(A, id="b", first_detected=50), replace(A, id="c", last_used=1, first_detected=1)
    pinned, used = replace(A, id="p", pinned=True), replace(A, id="u")
    records = {image.id: image for image in (c, A, pinned, b, used)}
    assert eviction_order(records, frozenset({"u"})) == [b, A, c]


def test_the_defaults() -> None:
    policy = ImageGCPolicy()
    assert (policy.high_threshold_percent, policy.low_threshold_percent) == (85, 80)
    assert (policy.min_age, policy.max_age, A.last_used) == (120, 0, 0)
