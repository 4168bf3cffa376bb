"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED: dict[str, object] = {
    "placement/hints MAX_NODES": 8,
    "placement/cpu_options CpuOptions.full_cores": False,
    "placement/cpu_options CpuOptions.across_numa": False,
    "placement/cpu_options CpuOptions.by_socket": False,
    "placement/cpu_options CpuOptions.across_cores": False,
    "placement/cpu_options CpuOptions.strict": False,
    "placement/cpu_options CpuOptions.by_uncore": False,
    "placement/memory_state Table.total": 0,
    "placement/memory_state Table.system_reserved": 0,
    "placement/memory_state Table.allocatable": 0,
    "placement/memory_state Table.reserved": 0,
    "placement/memory_state Table.free": 0,
    "placement/pick_cpus PickOptions.group": 0,
    "placement/pick_cpus PickOptions.across_cores": False,
    "placement/pick_cpus PickOptions.align_uncore": False,
    "placement/topology_options TopologyOptions.closest": False,
    "placement/reserved_memory UNITS": (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)),
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: object) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)
