"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "config/decoders _INT32": 2**31 - 1,
    "config/decoders _INT64": 2**63 - 1,
    "config/fields ConfigField.pointer": False,
    "config/flags NodeFlags.exit_on_lock_contention": False,
    "config/flags NodeFlags.experimental_allocatable_ignore_eviction": False,
    "config/flags NodeFlags.help": False,
    "config/flags NodeFlags.keep_kernel_settings": False,
    "config/flags NodeFlags.maximum_dead_containers": -1,
    "config/flags NodeFlags.maximum_dead_containers_per_container": 1,
    "config/flags NodeFlags.minimum_container_ttl_duration": 0.0,
    "config/flags NodeFlags.no_cluster_dns": False,
    "config/problems _SHOWN_LENGTH": 100,
    "config/yaml_depth MAX_DEPTH": 100,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)
