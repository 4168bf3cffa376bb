"""Readings of a pod, completed with the runtime's reports."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.node.stats.usage import (
    CriContainer,
    CriSandbox,
    CriStats,
    GroupStats,
    Interface,
    Layer,
    Network,
    PodReading,
    TreeUse,
    completed,
    mount_points,
)
from tests.unit.node.stats.readings import NOW, SPACE, container, pod

READ, REPORTED = GroupStats(1, cpu_ns=10, rss=30), GroupStats(2, cpu_ns=11, memory=40)
OURS, THEIRS = Network(1, (Interface("eth0", 1),)), Network(2, (Interface("eth0", 2),))
EITHER = GroupStats(1, cpu_ns=10, rss=30, memory=40), GroupStats(2, cpu_ns=11, rss=30, memory=40)


def read(sandbox: bool = True, **more: Any) -> PodReading:
    bare = container(stats=READ, layer=None)
    supplied = pod(containers=(bare,), **more)
    group = replace(supplied.group, stats=READ)
    return replace(supplied, group=group, sandbox=supplied.sandbox if sandbox else None)


def reported_stats(layer: Layer | None = None, **sandbox: Any) -> CriStats:
    values: dict[str, Any] = {"network": None, "processes": None, **sandbox}
    return CriStats(
        {"id-main": CriContainer(REPORTED, layer)},
        {"sb": CriSandbox(REPORTED, **values)},
    )


@pytest.mark.parametrize("prefer_runtime", [False, True])
def test_the_preferred_source_of_stats(prefer_runtime: bool) -> None:
    done = completed(read(), reported_stats(), {}, prefer_runtime=prefer_runtime)
    expected = EITHER[prefer_runtime]
    assert (done.group.stats, done.containers[0].stats) == (expected, expected)


@pytest.mark.parametrize(
    ("ours", "theirs", "prefer_runtime", "expected"),
    [
        (OURS, THEIRS, False, OURS),
        (OURS, THEIRS, True, THEIRS),
        (None, THEIRS, False, THEIRS),
        (OURS, None, True, OURS),
        (None, None, True, None),
        (None, None, False, None),
    ],
)
def test_the_source_of_network_stats(
    ours: Network | None, theirs: Network | None, prefer_runtime: bool, expected: Network | None
) -> None:
    reported = reported_stats(network=theirs)
    done = completed(read(network=ours), reported, {}, prefer_runtime=prefer_runtime)
    assert done.network == expected


@pytest.mark.parametrize(("ours", "expected"), [(None, 7), (0, 0), (3, 3)])
def test_processes_are_counted_here_if_they_can_be(ours: int | None, expected: int) -> None:
    done = completed(read(processes=ours), reported_stats(processes=7), {}, prefer_runtime=True)
    assert done.processes == expected


@pytest.mark.parametrize("sandbox", [True, False])
def test_without_a_report_of_the_sandbox_the_pod_stays(sandbox: bool) -> None:
    supplied = read(sandbox)
    of_containers = CriStats(reported_stats().containers, {})
    done = completed(supplied, of_containers, {}, prefer_runtime=True)
    assert done.containers[0].stats == EITHER[True]
    assert replace(done, containers=supplied.containers) == supplied
    assert completed(supplied, CriStats({}, {}), {}, prefer_runtime=True) == supplied


LAYER = Layer(NOW, 5, 6, "/var/lib/x", uncounted=True)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (None, None),
        (LAYER, TreeUse(NOW, 5, 6, SPACE, uncounted=True)),
        (replace(LAYER, uncounted=False), TreeUse(NOW, 5, 6, SPACE)),
        (replace(LAYER, mountpoint="/other"), TreeUse(NOW, 5, 6, None, uncounted=True)),
    ],
)
def test_layers_are_the_runtimes(layer: Layer | None, expected: TreeUse | None) -> None:
    done = completed(read(), reported_stats(layer), {"/var/lib/x": SPACE}, prefer_runtime=False)
    (group,) = done.containers
    assert group.layer == expected


def test_mount_points_that_are_named() -> None:
    layers = (None, LAYER, LAYER, replace(LAYER, mountpoint="/y"), replace(LAYER, mountpoint=""))
    of = {str(i): CriContainer(REPORTED, layer) for i, layer in enumerate(layers)}
    assert mount_points(CriStats(of, {})) == {"/var/lib/x", "/y"}
