"""A real Prometheus scrapes the node; what fails moves the metrics that the alerts watch."""

from __future__ import annotations

import re
from collections.abc import Callable

from kubeletpy.base.kubernetes_version import NEWEST
from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tools.env.containerd import Containerd
from tools.env.prometheus import Prometheus, check_metrics


def test_health(node2: Node) -> None:
    assert node2.http("/healthz") == (200, "ok")
    code, text = node2.http("/healthz?verbose")
    assert code == 200
    assert "[+]syncloop ok" in text
    assert text.endswith("healthz check passed\n")
    assert node2.http("/healthz/ping")[0] == 200
    assert node2.http("/healthz/nothing")[0] == 404
    assert node2.http("/")[0] == 404


def test_the_exposition_is_good(node2: Node, namespace: str) -> None:
    node2.apply(pod("one"), namespace=namespace)
    node2.wait_running(namespace, "one")
    code, text = node2.http("/metrics")
    assert code == 200
    # the names are the kubelet's, where promtool would have chosen others
    naming = re.compile(
        r"\S+ .*should (have|not have) \"?\w+\"? suffix|\S+ .*base unit.*|"
        r"kubelet_topology_manager_admission_duration_ms .*abbreviated units"
    )
    problems = check_metrics(text.encode())
    assert not [line for line in problems if not naming.fullmatch(line)], problems
    for name in (
        "kubelet_node_name",
        "kubelet_running_pods",
        "kubelet_running_containers",
        "kubelet_started_pods_total",
        "kubelet_started_containers_total",
        "kubelet_runtime_operations_total",
        "kubelet_runtime_operations_duration_seconds_bucket",
        "kubelet_pod_start_duration_seconds_bucket",
        "kubelet_pod_worker_duration_seconds_bucket",
        "kubelet_pleg_last_seen_seconds",
        "kubernetes_build_info",
        "process_cpu_seconds_total",
        "rest_client_requests_total",
    ):
        assert f"\n{name}" in text, name


def test_prometheus_sees_a_failing_start(
    node2: Node, namespace: str, prometheus: Callable[[str], Prometheus]
) -> None:
    server = prometheus(f"127.0.0.1:{node2.health_port}")
    server.wait_scraped()
    code = 'code="RunContainerError"'
    before = node2.metric("kubelet_started_containers_errors_total", code="RunContainerError")
    node2.apply(
        pod("good"),
        pod("bad", {**container(), "command": ["/not/there"]}),
        pod("pulls", {**container(), "image": "127.0.0.1:1/x/y:1"}),
        namespace=namespace,
    )
    node2.wait_running(namespace, "good")
    node2.wait_event(namespace, "bad", "Failed: Error: ")
    node2.wait_event(namespace, "pulls", "Failed: Failed to pull image")
    server.wait_for(f"kubelet_started_containers_errors_total{{{code}}} > {before}")
    server.wait_for('kubelet_runtime_operations_errors_total{operation_type="pull_image"} > 0')
    server.wait_for("kubelet_started_pods_total > 0")
    # at the moment of the scrape, not of some scrape
    node2.until(
        lambda: node2.metric("kubelet_running_containers", container_state="running") >= 1,
        "running containers",
    )


def test_starts_are_counted_once(node2: Node, namespace: str) -> None:
    names = {
        "pods": ("kubelet_started_pods_total", {}),
        "containers": ("kubelet_started_containers_total", {"container_type": "container"}),
        "inits": ("kubelet_started_containers_total", {"container_type": "init_container"}),
        "pod errors": ("kubelet_started_pods_errors_total", {}),
    }
    before = {key: node2.metric(name, **labels) for key, (name, labels) in names.items()}
    node2.apply(
        pod("counted", container("a"), container("b"), initContainers=[container("i", "true")]),
        namespace=namespace,
    )
    node2.wait_running(namespace, "counted")
    after = {key: node2.metric(name, **labels) for key, (name, labels) in names.items()}
    grown = {key: after[key] - before[key] for key in names}
    assert grown == {"pods": 1, "containers": 2, "inits": 1, "pod errors": 0}


def test_start_durations(node2: Node, namespace: str) -> None:
    sli, whole = (f"kubelet_pod_start_{which}_duration_seconds" for which in ("sli", "total"))
    measured = {name: node2.metric(f"{name}_count") for name in (sli, whole)}
    scratch = [{"name": "v", "emptyDir": {}}]
    stateful = [{"name": "v", "hostPath": {"path": "/tmp"}}]
    node2.apply(
        pod("scratch", volumes=scratch), pod("stateful", volumes=stateful), namespace=namespace
    )
    node2.wait_running(namespace, "scratch")
    node2.wait_running(namespace, "stateful")
    node2.until(lambda: node2.metric(f"{whole}_count") == measured[whole] + 2, "both are counted")
    assert node2.metric(f"{sli}_count") == measured[sli] + 1
    assert 0 < node2.metric("kubelet_first_network_pod_start_sli_duration_seconds") < 30
    assert node2.metric("kubelet_containers_per_pod_count_count") >= 2
    steps = ("pre_kubelet", "registration", "pre_registration")
    pre_kubelet, *rest = (
        node2.metric(f"kubelet_node_startup_{step}_duration_seconds") for step in steps
    )
    assert all(0 < seconds < 60 for seconds in rest), rest
    assert pre_kubelet + sum(rest) <= node2.metric("kubelet_node_startup_duration_seconds") + 0.1


def test_requests_to_the_api_have_sizes(node2: Node) -> None:
    of_get = {"verb": "GET", "host": f"127.0.0.1:{node2.api.port}"}
    for name in ("request_size_bytes", "response_size_bytes", "rate_limiter_duration_seconds"):
        assert node2.metric(f"rest_client_{name}_count", **of_get) > 0, name
    assert node2.metric("rest_client_response_size_bytes_sum", **of_get) > 100


def test_a_runtime_without_runtime_config_is_losing_support(
    node2: Node, make_node: Callable[..., Node], session_containerd16: Containerd
) -> None:
    name = "kubelet_cri_losing_support"
    old = make_node(session_containerd16)
    old.start()
    assert old.metric(name, version=NEWEST.next_release) == 1
    assert f"\n{name}" not in node2.http("/metrics")[1]


def test_feature_gates_are_shown(node2: Node) -> None:
    text = node2.http("/metrics")[1]
    for gate in ('name="UserNamespacesSupport",stage=""} 1', 'name="AllAlpha",stage="ALPHA"} 0'):
        assert f"\nkubernetes_feature_enabled{{{gate}\n" in text
    assert "# HELP kubernetes_feature_enabled [BETA] " in text
