"""Which local storage limit a pod exceeds, and the message."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kubeletpy.node.eviction.decide import (
    CONTAINER_SIGNAL,
    POD_SIGNAL,
    VOLUME_SIGNAL,
    Limit,
    LimitPlace,
    LocalStorageEviction,
    LocalStorageLimits,
    Share,
    evicted_status,
    judge,
    limits_of,
    nearest,
    next_to_go,
)
from kubeletpy.node.stats.disk_plan import PodStorage
from kubeletpy.pods.pod import Pod
from tests.unit.podworkers.builders import make_pod

KI, MI = 1024, 1 << 20
MEBIBYTE = Limit(Decimal(MI), "1Mi")


def container(name: str = "main", limit: str | None = None, **more: Any) -> dict[str, Any]:
    limits = {} if limit is None else {"ephemeral-storage": limit}
    return {"name": name, "image": "img", "resources": {"limits": limits}, **more}


def volume(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, "emptyDir": source}


def judged(pod: Pod, use: PodStorage) -> LocalStorageEviction | None:
    limits = limits_of(pod)
    assert limits is not None
    return judge(limits, use)


def test_a_volume_over_its_size() -> None:
    pod = make_pod(volumes=[volume("cache", sizeLimit="4Mi"), volume("free")])
    assert judged(pod, PodStorage({"cache": 4 * MI, "free": 1 << 40}, {}, 1 << 41)) is None
    assert judged(pod, PodStorage({"cache": 4 * MI + 1})) == LocalStorageEviction(
        VOLUME_SIGNAL,
        'Usage of EmptyDir volume "cache" exceeds the limit "4Mi". ',
        Share("emptyDir cache", 4 * MI + 1, 4 * MI),
    )


def test_the_first_volume_in_the_spec_is_named() -> None:
    pod = make_pod(volumes=[volume("b", sizeLimit="1k"), volume("a", sizeLimit="1k")])
    verdict = judged(pod, PodStorage({"a": 5000, "b": 5000}))
    assert verdict is not None
    assert '"b"' in verdict.message


def test_a_container_over_its_limit() -> None:
    pod = make_pod(containers=[container("a", "1Mi"), container("b", "4Mi"), container("c")])
    assert judged(pod, PodStorage({}, {"a": MI, "b": 4 * MI, "c": 1 << 40}, 5 * MI)) is None
    assert judged(pod, PodStorage({}, {"a": MI + 1}, MI + 1)) == LocalStorageEviction(
        CONTAINER_SIGNAL,
        'Container a exceeded its local ephemeral storage limit "1Mi". ',
        Share("container a", MI + 1, MI),
    )


def test_a_pod_over_the_sum_of_its_containers() -> None:
    pod = make_pod(containers=[container("a", "1Mi"), container("b", "3Mi")])
    assert judged(pod, PodStorage({}, {"a": MI, "b": 3 * MI}, 4 * MI)) is None
    assert judged(pod, PodStorage({}, {}, 4 * MI + 1)) == LocalStorageEviction(
        POD_SIGNAL,
        "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ",
        Share("all of the pod", 4 * MI + 1, 4 * MI),
    )


def test_volumes_are_checked_before_the_pod_and_the_pod_before_containers() -> None:
    pod = make_pod(containers=[container("a", "1Mi")], volumes=[volume("v", sizeLimit="1Mi")])
    much = PodStorage({"v": 2 * MI}, {"a": 2 * MI}, 4 * MI)
    verdict = judged(pod, much)
    assert verdict is not None
    assert verdict.signal == VOLUME_SIGNAL
    verdict = judged(pod, PodStorage({"v": 0}, much.containers, much.total))
    assert verdict is not None
    assert verdict.signal == POD_SIGNAL


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (("1Gi",), "1Gi"),
        (("1024Mi",), "1Gi"),
        (("0", "1024Mi"), "1Gi"),
        (("0", "0Ki"), "0"),
        (("512Mi", "512Mi"), "1Gi"),
        (("1536Mi", "512Mi"), "2Gi"),
        (("1Gi", "1Mi"), "1025Mi"),
        (("1Gi", "1G"), "2073741824"),
        (("1Mi", "1024k"), "2024Ki"),
        (("1024k", "1Mi"), "2072576"),
        (("1G", "1500M"), "2500M"),
        (("500", "500"), "1k"),
        (("0", "1Gi"), "1Gi"),
        (("0", "1Ki", "1Ki"), "2Ki"),
        (("1500m",), "1500m"),
    ],
)
def test_how_a_sum_is_written(limits: tuple[str, ...], text: str) -> None:
    pod = make_pod(containers=[container(f"c{n}", each) for n, each in enumerate(limits)])
    found = limits_of(pod)
    assert found is not None
    assert found.pod is not None
    assert found.pod.text == text


def test_limits_of_init_containers_count_for_the_pod_only() -> None:
    sidecar = container("side", "1Mi", restartPolicy="Always")
    pod = make_pod(
        containers=[container("main", "1Mi")], initContainers=[sidecar, container("init", "9Mi")]
    )
    found = limits_of(pod)
    assert found is not None
    assert found.pod is not None
    assert found.pod.size == 10 * MI
    assert set(found.containers) == {"main", "side"}
    verdict = judge(found, PodStorage({}, {"side": 2 * MI}, 2 * MI))
    assert verdict is not None
    assert verdict.signal == CONTAINER_SIGNAL
    assert verdict.message == ('Container side exceeded its local ephemeral storage limit "1Mi". ')


def test_a_limit_of_one_container_limits_the_pod() -> None:
    pod = make_pod(containers=[container("a", "1Mi"), container("b")])
    verdict = judged(pod, PodStorage({}, {"b": 2 * MI}, 2 * MI))
    assert verdict is not None
    assert verdict.signal == POD_SIGNAL


def test_a_limit_of_zero() -> None:
    pod = make_pod(containers=[container("a", "0")])
    found = limits_of(pod)
    assert found is not None
    assert found.containers == {}
    assert found.pod is not None
    assert found.pod.size == Decimal(0)
    assert judge(found, PodStorage()) is None
    verdict = judge(found, PodStorage(total=1))
    assert verdict is not None
    assert verdict.message.endswith("limit of containers 0. ")


@pytest.mark.parametrize(
    "pod",
    [
        make_pod(),
        make_pod(volumes=[volume("v"), {"name": "c", "configMap": {"name": "c"}}]),
        make_pod(volumes=[volume("v", sizeLimit="1Mi", medium="Memory")]),
        make_pod(volumes=[volume("v", sizeLimit="0")]),
        make_pod(volumes=[volume("v", sizeLimit="-1")]),
        make_pod(volumes=[volume("v", sizeLimit="much")]),
        make_pod(volumes=[{"name": "v", "emptyDir": None}]),
        make_pod(containers=[{"name": "a", "image": "i", "resources": None}]),
        make_pod(containers=[container("a", "much")]),
    ],
    ids=(
        "nothing",
        "no size",
        "in memory",
        "zero",
        "negative",
        "unreadable volume",
        "empty source",
        "no resources",
        "unreadable container",
    ),
)
def test_pods_without_limits(pod: Pod) -> None:
    assert limits_of(pod) is None


def test_huge_pages_are_limited_like_a_disk() -> None:
    found = limits_of(make_pod(volumes=[volume("v", sizeLimit="2Mi", medium="HugePages")]))
    assert found is not None
    assert set(found.volumes) == {"v"}


def test_readable_limits_apply() -> None:
    found = limits_of(make_pod(containers=[container("a", "1Mi"), container("b", "much")]))
    assert found == LocalStorageLimits({}, {"a": MEBIBYTE}, None)
    found = limits_of(make_pod(volumes=[volume("v", sizeLimit="1")]))
    assert found == LocalStorageLimits({"v": Limit(Decimal(1), "1")})


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        (LocalStorageLimits({"v": MEBIBYTE}), False),
        (LocalStorageLimits({}, {"a": MEBIBYTE}), True),
        (LocalStorageLimits({}, {}, MEBIBYTE), True),
    ],
)
def test_which_limits_layers_count_for(limits: LocalStorageLimits, count: bool) -> None:
    assert limits.of_layers is count
    assert nearest(limits, PodStorage()).used == 0


def test_layers_are_measured_only_where_they_count() -> None:
    only_volumes = limits_of(make_pod(volumes=[volume("v", sizeLimit="1Mi")]))
    assert only_volumes is not None
    assert not only_volumes.of_layers
    containers = limits_of(make_pod(containers=[container("a", "1Mi")]))
    assert containers is not None
    assert containers.of_layers


def test_the_status_of_an_evicted_pod() -> None:
    ready: Any = {"type": "Ready", "status": "False"}
    old: Any = {"phase": "Running", "conditions": [ready], "hostIP": "10.0.0.1"}
    new = evicted_status(
        old, LocalStorageEviction(VOLUME_SIGNAL, "too much. ", Share("emptyDir v", 2, 1))
    )
    assert new == {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "too much. ",
        "conditions": [ready],
        "hostIP": "10.0.0.1",
    }
    assert old["phase"] == "Running", "what arrived is never changed"


@pytest.mark.parametrize(
    ("use", "share"),
    [
        (PodStorage({"v": 3 * MI}, {"a": MI}, 4 * MI), Share("emptyDir v", 3 * MI, 4 * MI)),
        (PodStorage({"v": MI}, {"a": 3 * MI}, 4 * MI), Share("container a", 3 * MI, 4 * MI)),
        (PodStorage({"v": MI}, {"a": MI}, 7 * MI), Share("all of the pod", 7 * MI, 8 * MI)),
        (PodStorage(), Share("emptyDir v", 0, 4 * MI)),
    ],
)
def test_the_limit_that_is_the_nearest(use: PodStorage, share: Share) -> None:
    pod = make_pod(
        containers=[container("a", "4Mi"), container("b", "4Mi")],
        volumes=[volume("v", sizeLimit="4Mi"), volume("free")],
    )
    limits = limits_of(pod)
    assert limits is not None
    assert nearest(limits, use) == share


def test_pods_closest_to_their_limits() -> None:
    def place(uid: str, used: int, limit: int) -> LimitPlace:
        return LimitPlace("ns", uid, uid, Share("emptyDir v", used, limit))

    places = [place("d", 9, 100), place("b", 5, 10), place("a", 50, 100), place("z", 1, 0)]
    assert [each.uid for each in next_to_go(places)] == ["z", "a", "b", "d"]
    assert len(next_to_go([place(str(n), n, 100) for n in range(9)])) == 5
