"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "runtime_manager/config/security_context MAX_APPARMOR_NAME": 4095,
    "runtime_manager/config/container_config PATH_MAX": 4096,
    "runtime_manager/config/dns MAX_NAMESERVERS": 3,
    "runtime_manager/config/dns MAX_SEARCHES": 32,
    "runtime_manager/config/dns MAX_SEARCH_CHARS": 2048,
    "runtime_manager/config/dns MAX_SEARCH_ITEM": 253,
    "runtime_manager/config/resources GUARANTEED_OOM_SCORE": -997,
    "runtime_manager/config/resources BEST_EFFORT_OOM_SCORE": 1000,
    "runtime_manager/config/resources NO_QUOTA": -1,
    "runtime_manager/config/sandbox_config MAX_METADATA": (256 << 10) + 1024,
    "runtime_manager/config/security_context MAX_UID": 2**31 - 1,
    "runtime_manager/names/labels MAX_HANDLER": 4096,
    "runtime_manager/names/labels _MAX_COUNT": 2**31 - 2,
    "runtime_manager/names/log_paths MAX_FILE_NAME": 255,
    "runtime_manager/names/log_paths _MIN_ID": 6,
    "runtime_manager/plan/crash_loop BASE_SECONDS": 10.0,
    "runtime_manager/plan/crash_loop MAX_ENDS": 8192,
    "runtime_manager/plan/crash_loop SET_BY_SECONDS": 0.05,
    "runtime_manager/plan/crash_loop MAX_SECONDS": 300.0,
    "runtime_manager/plan/crash_loop MOST_DOUBLINGS": 32,
    "runtime_manager/plan/crash_loop QUIET_SECONDS": 600.0,
    "runtime_manager/plan/gc_selection SHOWN": 2,
    "runtime_manager/plan/grace MINIMUM": 2,
    "runtime_manager/act/stop_records MAX_BYTES": 4096,
    "runtime_manager/plan/resume_stop WITHDRAWN_S": 60.0,
    "runtime_manager/plan/resume_stop ResumedStop.anew": False,
    "runtime_manager/plan/resume_stop ResumedStop.elapsed": 0.0,
    "runtime_manager/plan/resize_steps _ENDLESS": 1 << 63,
    "runtime_manager/read/abandoned_start MESSAGE_TAIL": 512,
    "runtime_manager/read/abandoned_start START_ERROR_CODE": 128,
    "runtime_manager/read/own_starts MOST_FAILED": 1000,
    "runtime_manager/read/secret_values SHORTEST": 4,
    "runtime_manager/read/secret_values MAX_CHARACTERS": 1 << 20,
    "runtime_manager/read/secret_values MAX_PARTS": 20_000,
    "runtime_manager/read/status_reader MAX_RESTART_COUNT": 2**31 - 1,
    "runtime_manager/config/namespaces UserNamespaceRange.length": 65536,
    "runtime_manager/config/settings RuntimeSettings.seccomp_default": False,
    "runtime_manager/config/settings RuntimeSettings.cpu_cfs_quota": True,
    "runtime_manager/config/settings RuntimeSettings.cpu_cfs_period_us": 100_000,
    "runtime_manager/config/settings RuntimeSettings.memory_capacity": 0,
    "runtime_manager/config/settings RuntimeSettings.swap_capacity": 0,
    "runtime_manager/config/settings RuntimeSettings.limited_swap": False,
    "runtime_manager/config/settings RuntimeSettings.swap_controller": False,
    "runtime_manager/config/settings RuntimeSettings.cgroup_v2": False,
    "runtime_manager/config/settings RuntimeSettings.single_process_oom_kill": False,
    "runtime_manager/config/settings RuntimeSettings.selinux_enabled": False,
    "runtime_manager/config/settings RuntimeSettings.stop_signals": False,
    "runtime_manager/names/labels AnnotatedContainerInfo.restart_count": 0,
    "runtime_manager/plan/gc_selection GCPolicy.min_age": 0,
    "runtime_manager/plan/gc_selection GCPolicy.max_per_container": 1,
    "runtime_manager/plan/gc_selection GCPolicy.max_total": -1,
    "runtime_manager/plan/gc_selection DeadContainer.unstarted": False,
    "runtime_manager/plan/gc_selection DeadContainer.attempt": 0,
    "runtime_manager/plan/regular_containers ContainerVerdict.keep": False,
    "runtime_manager/plan/resizable Resizable.cpu_request": 0,
    "runtime_manager/plan/resizable Resizable.cpu_limit": 0,
    "runtime_manager/plan/resizable Resizable.memory_request": 0,
    "runtime_manager/plan/resizable Resizable.memory_limit": 0,
    "runtime_manager/plan/resize ContainerUpdate.new_memory_limit": 0,
    "runtime_manager/plan/resize ContainerResize.restart": False,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)
