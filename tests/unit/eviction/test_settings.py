"""What the settings make of the limits of local storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from kubeletpy.config.load import default_settings
from kubeletpy.launch.storage import storage_meter
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.stats.pod_storage import StorageMeter


def meter(**changes: Any) -> StorageMeter | None:
    settings = replace(default_settings(), **changes)
    make = storage_meter(settings, cast(Any, None), "/root")
    return cast(StorageMeter, make(PodManager(), PodStatusCache())) if make is not None else None


def test_off() -> None:
    assert meter(local_storage_capacity_isolation=False) is None


@pytest.mark.parametrize(
    ("period", "between"), [(60.0, 10.0), (300.0, 10.0), (5.0, 5.0), (0.0, 10.0), (-1.0, -1.0)]
)
def test_how_often_trees_are_measured(period: float, between: float) -> None:
    made = meter(volume_stats_agg_period=period)
    assert made is not None
    assert made._from.disks._between == between
