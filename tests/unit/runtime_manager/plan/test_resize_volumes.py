"""Which volumes in memory are remounted, before and after memory limits are changed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.plan.resize import (
    InEffect,
    VolumeResizePlan,
    VolumeUpdate,
    plan_resize,
    plan_volume_resizes,
    resize_in_progress,
)
from tests.kit.records import container, make_pod

MI = 1 << 20
ON = RuntimeSettings(resizes_memory_volumes=True)


def in_memory(**sizes: str) -> Pod:
    volumes = [
        {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}
        for name, size in sizes.items()
    ]
    return make_pod(container("app"), volumes=volumes)


@pytest.mark.parametrize(
    ("known", "recorded", "plan"),
    [
        ({"v": "64Mi"}, True, VolumeResizePlan()),
        ({"v": "65536Ki"}, True, VolumeResizePlan()),
        ({"v": "32Mi"}, True, VolumeResizePlan((VolumeUpdate("v", "64Mi", 64 * MI, "32Mi"),))),
        ({"v": "1Gi"}, True, VolumeResizePlan((VolumeUpdate("v", "64Mi", 64 * MI, "1Gi", True),))),
        ({}, True, VolumeResizePlan((VolumeUpdate("v", "64Mi", 64 * MI),))),
        ({}, False, VolumeResizePlan(adopted=(("v", "64Mi"),))),
    ],
)
def test_sizes_are_compared_with_those_last_applied(
    known: Mapping[str, str], recorded: bool, plan: VolumeResizePlan
) -> None:
    assert plan_volume_resizes(in_memory(v="64Mi"), known, recorded=recorded) == plan


def test_shrinking_volumes_are_separate_from_growing_and_unknown_ones() -> None:
    known = {"a": "2Mi", "b": "1Mi"}
    plan = plan_volume_resizes(in_memory(a="1Mi", b="2Mi", c="1Mi"), known, recorded=True)
    assert [each.name for each in plan.shrinking] == ["a"]
    assert [each.name for each in plan.growing] == ["b", "c"]
    assert [(each.what, each.why) for each in plan.decisions] == [
        ("resize volume a", "sizeLimit 2Mi -> 1Mi"),
        ("resize volume b", "sizeLimit 1Mi -> 2Mi"),
        ("resize volume c", "sizeLimit unknown -> 1Mi"),
    ]


def test_a_size_that_is_no_quantity_changes_nothing() -> None:
    assert (
        plan_volume_resizes(in_memory(v="much"), {"v": "1Mi"}, recorded=True) == VolumeResizePlan()
    )


@pytest.mark.parametrize(
    ("known", "settings", "waits"),
    [
        ({"v": "32Mi"}, ON, True),
        ({"v": "64Mi"}, ON, False),
        ({"other": "1Mi"}, ON, False),
        ({"v": "32Mi"}, RuntimeSettings(), False),
    ],
)
def test_a_resize_is_in_progress_until_a_known_size_is_as_allocated(
    known: Mapping[str, str], settings: RuntimeSettings, waits: bool
) -> None:
    status = PodRuntimeStatus("uid-1", "web", "prod")
    found = InEffect(volumes=known, settings=settings)
    assert resize_in_progress(in_memory(v="64Mi"), status, found) is waits


def test_without_the_gate_nothing_is_planned() -> None:
    plan = plan_resize(in_memory(v="1Mi"), (), (), InEffect(volumes={"v": "2Mi"}))
    assert plan.empty
    assert plan.volumes == VolumeResizePlan()
