"""Limits of this package, defaults of fields, and fields that no log may show."""

from __future__ import annotations

import pytest

from tests.stated import is_shown, stated

STATED: dict[str, object] = {
    "pods/event_time PLAUSIBLE_EVENT_AGE": 604_800_000_000_000,
    "pods/event_time PLAUSIBLE_EVENT_LEAD": 1_000_000_000,
    "pods/sync_results SyncIntent.ends": False,
    "pods/sync_results SyncIntent.new_sandbox": False,
    "pods/cgroup_units MIN_SHARES": 2,
    "pods/cgroup_units MAX_SHARES": 262_144,
    "pods/cgroup_units MIN_QUOTA_US": 1_000,
    "pods/defaults _FILE_MODE": 0o644,
    "pods/environment MAX_ENVIRONMENT": 8 << 20,
    "pods/expansion MAX_EXPANDED": 1 << 20,
    "pods/expansion MAX_TOTAL": 6 << 20,
    "pods/hostname _MAX_SUBDOMAIN": 253,
    "pods/hostname MAX_HOSTNAME": 63,
    "pods/hostname MAX_FQDN": 64,
    "pods/limits UNLIMITED": -1,
    "pods/memory_qos PAGE": 4096,
    "pods/pod MAX_GRACE_S": 2**31 - 1,
    "pods/qos CRITICAL_PRIORITY": 2_000_000_000,
    "pods/shape _MAX_NAME": 253,
    "pods/start_errors MOST_QUOTED": 64,
    "pods/decision Decision.failed": False,
    "pods/granted Placement.no_cfs_quota": False,
    "pods/memory_qos MemoryQoS.tiered": False,
    "pods/memory_qos MemoryQoS.throttling_factor": 0.9,
    "pods/memory_qos MemoryQoS.allocatable": 0,
    "pods/mount Mount.readonly": False,
    "pods/mount Mount.selinux_relabel": False,
    "pods/mount Mount.recursive_read_only": False,
    "pods/mount Mount.index": 0,
    "pods/runtime_status ContainerStatus.created_at": 0,
    "pods/runtime_status ContainerStatus.started_at": 0,
    "pods/runtime_status ContainerStatus.finished_at": 0,
    "pods/runtime_status ContainerStatus.exit_code": 0,
    "pods/runtime_status ContainerStatus.restart_count": 0,
    "pods/runtime_status SandboxStatus.attempt": 0,
    "pods/runtime_status SandboxStatus.created_at": 0,
    "pods/runtime_status SandboxStatus.host_network": False,
    "pods/runtime_status SandboxStatus.has_network": True,
    "pods/runtime_status PodRuntimeStatus.observed_at": 0,
    "pods/sync_results PodSyncResult.ended": False,
    "pods/cgroup_units _PAGE_UNITS": ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")),
    "pods/defaults _PROBE": {
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    },
}
UNSHOWN = ("pods/pull_secret PullSecret.docker_config",)


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: object) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("place", UNSHOWN)
def test_not_shown(place: str) -> None:
    assert not is_shown(place)
