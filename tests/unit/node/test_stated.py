"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED: dict[str, object] = {
    "node/build MAX_NAMES_PER_IMAGE": 5,
    "node/images LARGEST_SIZE": 9223372036854775807,
    "node/images LONGEST_NAME": 1024,
    "node/conditions RUNTIME_DOWN_AFTER_S": 30.0,
    "node/build RuntimeInfo.supplemental_groups_policy": False,
    "node/conditions NodeHealth.shutting_down": False,
    "node/options NodeOptions.register": True,
    "node/options NodeOptions.max_pods": 110,
    "node/options NodeOptions.pods_per_core": 0,
    "node/options NodeOptions.reserved_cpus": 0,
    "node/options NodeOptions.local_storage": True,
    "node/options NodeOptions.external_cloud_provider": False,
    "node/options NodeOptions.controller_attach_detach": True,
    "node/options NodeOptions.kubelet_port": 10250,
    "node/options NodeOptions.lease_duration_s": 40,
    "node/options NodeOptions.status_update_s": 10.0,
    "node/options NodeOptions.status_report_s": 300.0,
    "node/options NodeOptions.max_images": 50,
    "node/options NodeOptions.report_user_namespace": False,
    "node/facts MachineFacts.in_user_namespace": False,
    "node/resources _COMMON_PAGES": (1 << 30, 2 << 20),
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: object) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)
