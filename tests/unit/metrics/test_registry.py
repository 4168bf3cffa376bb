"""The metrics are the kubelet's: names, types, labels and buckets, as a scrape shows them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from prometheus_client import REGISTRY

from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.metrics.families import MAX_SERIES
from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.resources import size_bucket
from kubeletpy.remote.generated.operations import OPERATIONS

MEGABYTE = 1024 * 1024


def with_all_series(version: KubernetesVersion = NEWEST) -> Metrics:
    """Metrics with a series in each family."""
    metrics = Metrics(version)
    for group in vars(metrics).values():
        found = [each for each in vars(group).values() if not isinstance(each, dict)]
        by_name = [each for each in vars(group).values() if isinstance(each, dict)]
        for family in (*found, *(family for each in by_name for family in each.values())):
            names = getattr(family, "_labelnames", ())
            if names:
                family.labels(*(f"{name}-value" for name in names))
    return metrics


def test_no_series_of_openmetrics() -> None:
    assert b"_created" not in with_all_series().render()


def test_counters_without_total_keep_their_names() -> None:
    metrics = Metrics()
    metrics.pleg.discard_events.inc(2)
    text = metrics.render().decode()
    assert "# TYPE kubelet_pleg_discard_events counter\nkubelet_pleg_discard_events 2\n" in text
    assert "kubelet_pleg_discard_events_total" not in text


def test_buckets_have_the_format_of_go() -> None:
    metrics = Metrics()
    metrics.runtime.call_done("version", 0.01, failed=False)
    metrics.dra.called("driver", "method", "OK", 0.1)
    text = metrics.render().decode()
    assert 'kubelet_containers_per_pod_count_bucket{le="1"} 0' in text
    assert 'kubelet_runtime_operations_duration_seconds_bucket{le="0.0125",' in text
    assert 'grpc_status_code="OK",le="0.153413",' in text
    assert 'kubelet_runtime_operations_total{operation_type="version"} 1\n' in text


def test_label_values_are_escaped() -> None:
    metrics = Metrics()
    metrics.node.node_name.labels('a"b\\c\nd').set(1)
    assert 'kubelet_node_name{node="a\\"b\\\\c\\nd"} 1\n' in metrics.render().decode()


def test_families_without_series_are_left_out() -> None:
    assert b"kubelet_runtime_operations_total" not in Metrics().render()


def test_labels_from_outside_are_bounded() -> None:
    metrics = Metrics()
    ended = metrics.starts.terminated_containers
    for code in range(MAX_SERIES + 100):
        ended.labels("container", str(code), "Error").inc()
    ended.labels("container", "0", "Error").inc()
    text = metrics.render().decode()
    assert text.count("\nkubelet_terminated_containers_total{") == MAX_SERIES + 1
    assert 'container_type="other",exit_code="other",reason="other"} 100\n' in text
    assert 'container_type="container",exit_code="0",reason="Error"} 2\n' in text


def test_two_agents_do_not_share() -> None:
    one, two = Metrics(), Metrics()
    one.starts.started_pods.inc()
    assert "kubelet_started_pods_total 0\n" in two.render().decode()
    assert not any("kubelet" in name for name in REGISTRY._names_to_collectors)


def test_runtime_calls() -> None:
    metrics = Metrics()
    for operation in set(OPERATIONS.values()):
        metrics.runtime.call_done(operation, 0.5, failed=operation == "exec_sync")
    metrics.runtime.sandbox_done("gvisor", 0.3, failed=True)
    text = metrics.render().decode()
    assert text.count("\nkubelet_runtime_operations_total{") == len(set(OPERATIONS.values()))
    assert text.count("\nkubelet_runtime_operations_errors_total{") == 1
    assert 'kubelet_run_podsandbox_errors_total{runtime_handler="gvisor"} 1\n' in text


@pytest.mark.parametrize(
    ("size", "label"),
    [
        (0, "N/A"),
        (1, "0-10MB"),
        (10 * MEGABYTE, "0-10MB"),
        (10 * MEGABYTE + 1, "10MB-100MB"),
        (1024 * MEGABYTE, "500MB-1GB"),
        (100 * 1024 * MEGABYTE, "60GB-100GB"),
        (101 * 1024 * MEGABYTE, "GT100GB"),
    ],
)
def test_image_size_bucket(size: int, label: str) -> None:
    assert size_bucket(size) == label


def test_images() -> None:
    metrics = Metrics()
    metrics.images.image_requested("IfNotPresent", True, None)
    metrics.images.image_pulled(4, 3 * 1024 * 1024)
    metrics.images.image_garbage_collected("age")
    text = metrics.render().decode()
    assert 'present_locally="true",pull_policy="ifnotpresent",pull_required="unknown"} 1' in text
    assert 'kubelet_image_pull_duration_seconds_sum{image_size_in_bytes="0-10MB"} 4\n' in text
    assert 'kubelet_image_garbage_collected_total{reason="age"} 1\n' in text


def test_build() -> None:
    metrics = Metrics()
    metrics.process.set_build("v1.36.0-kubeletpy.1")
    metrics.process.set_features({"SidecarContainers": ("GA", True), "Some": ("Alpha", False)})
    text = metrics.render().decode()
    assert 'git_version="v1.36.0-kubeletpy.1",go_version="",major="1",minor="36"' in text
    assert 'kubernetes_feature_enabled{name="SidecarContainers",stage=""} 1\n' in text
    assert 'kubernetes_feature_enabled{name="Some",stage="ALPHA"} 0\n' in text
    assert "\nprocess_start_time_seconds 1" in text


def test_api_requests() -> None:
    metrics = Metrics()
    client = metrics.rest_client
    client.held_back("GET", "api:6443", 0)
    client.tried(429, "GET", "api:6443", 0.2, 0, again=False)
    client.tried(200, "GET", "api:6443", 0.2, 0, again=True)
    client.answered("GET", "api:6443", 5000)
    client.tried(None, "POST", "api:6443", 3, 300, again=False)
    text = metrics.render().decode()
    of_get = 'host="api:6443",verb="GET"'
    for line in (
        'rest_client_requests_total{code="429",host="api:6443",method="GET"} 1',
        'rest_client_requests_total{code="<error>",host="api:6443",method="POST"} 1',
        f'rest_client_request_retries_total{{code="200",{of_get}}} 1',
        f"rest_client_request_duration_seconds_count{{{of_get}}} 2",
        f"rest_client_rate_limiter_duration_seconds_count{{{of_get}}} 1",
        f"rest_client_rate_limiter_duration_seconds_sum{{{of_get}}} 0",
        f"rest_client_response_size_bytes_sum{{{of_get}}} 5000",
        'rest_client_request_size_bytes_sum{host="api:6443",verb="POST"} 300',
    ):
        assert f"\n{line}\n" in text
    assert text.count("\nrest_client_request_retries_total{") == 1


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_finds_only_the_kubelets_own_oddities() -> None:
    ran = subprocess.run(
        ["promtool", "check", "metrics"],
        input=with_all_series().render(),
        capture_output=True,
        check=False,
    )
    odd = {
        *(
            f"kubelet_pod_resources_endpoint_{what}_{method}"
            for what in ("requests", "errors")
            for method in ("list", "get", "get_allocatable")
        ),
        "kubelet_pleg_discard_events",
        "kubelet_evented_pleg_connection_error_count",
        "kubelet_evented_pleg_connection_success_count",
        "kubelet_evictions",
        "kubelet_preemptions",
        "kubelet_certificate_manager_client_expiration_renew_errors",
        "kubelet_server_expiration_renew_errors",
        "kubelet_pod_resize_duration_milliseconds",
        "kubelet_container_aligned_compute_resources_count",
        "kubelet_container_aligned_compute_resources_failure_count",
        "kubelet_cpu_manager_exclusive_cpu_allocation_count",
        "kubelet_cpu_manager_shared_pool_size_millicores",
        "kubelet_topology_manager_admission_duration_ms",
    }
    complaints = ran.stderr.decode().splitlines()
    assert [line for line in complaints if line.split()[0] not in odd] == []
    assert ran.returncode in {0, 3}


def test_restarts_of_pods_are_shown_before_there_are_any() -> None:
    text = Metrics().render().decode()
    for static in ("", "true"):
        assert f'kubelet_restarted_pods_total{{static="{static}"}} 0' in text
