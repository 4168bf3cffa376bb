"""A real Prometheus scrapes the node as in deploy/: rules load, and dashboards show something.

Every query of every dashboard is sent. A panel that stays empty on such a node is in EMPTY, with
the reason; its queries are sent anyway.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.node.machine import Node
from tests.integration.node.pods import container, pod
from tools.env.prometheus import Prometheus, check_metrics
from tools.env.waiting import wait_until

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
DASHBOARDS = sorted((DEPLOY / "dashboards").glob("*.json"))
RATE_INTERVAL = "1m"
"""Value that Grafana puts in the place of its variable, four scrapes or more."""

EMPTY = {
    "starts: Mean time of each phase: 5 pull": "the images of the tests are there before",
    "starts: Pull": "the images of the tests are there before",
    "storage: CSI calls": "no CSI driver",
    "storage: The fullest claims": "no claims",
    "storage: Abnormal claims": "no claims",
    "storage: Removed images": "the disk is not full",
    "pressure: Evicted pods": "no pressure",
    "pressure: Age of the statistics": "no pressure",
    "pressure: Preempted pods": "no pod is critical",
    "pressure: Deferred resizes": "no resize",
    "pressure: Infeasible resizes": "no resize",
}
"""Queries without numbers on a node with few pods (the beginning of their names), and why."""


def queries(dashboard: Path) -> Iterator[tuple[str, str]]:
    """A dashboard's queries as Grafana sends them for all nodes, with panel and legend."""
    for panel in json.loads(dashboard.read_text())["panels"]:
        for target in panel.get("targets", ()):
            name = f"{dashboard.stem}: {panel['title']}: {target['legendFormat']}"
            requested = target["expr"].replace("$__rate_interval", RATE_INTERVAL)
            yield name, requested.replace("$node", ".*")


def reason(name: str) -> str:
    """Reason for which a query may have no numbers; "" if it must have some."""
    return next((why for start, why in EMPTY.items() if name.startswith(start)), "")


def has_numbers(series: list[dict[str, Any]]) -> bool:
    return any(not math.isnan(float(each["value"][1])) for each in series)


@pytest.fixture(scope="module")
def prometheus_of_node(
    node2: Node, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Scrapes the node's port as deploy/prometheus.yml does, by way of the API server."""
    directory = tmp_path_factory.mktemp("prometheus")
    kubeconfig = json.loads(node2.api.endpoint.admin_kubeconfig.read_text())
    (cluster,), (user,) = kubeconfig["clusters"], kubeconfig["users"]
    target = cluster["cluster"]["server"].removeprefix("https://")
    server = Prometheus(directory / "data", target)
    deployed = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    jobs = [
        {
            "job_name": name,
            "scheme": "https",
            "metrics_path": f"/api/v1/nodes/{node2.name}/proxy{path}",
            "authorization": {"credentials": user["user"]["token"]},
            "tls_config": {"ca_file": str(node2.directory / "api" / "pki" / "ca.crt")},
            "static_configs": [{"targets": [target]}],
        }
        for name, path in (("kubelet", "/metrics"), ("kubelet-resource", "/metrics/resource"))
    ]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(DEPLOY / name) for name in deployed["rule_files"]],
        "scrape_configs": jobs,
    }
    file = directory / "prometheus.json"
    file.write_text(json.dumps(config))
    server.start(file)
    try:
        server.wait_scraped()
        server.wait_for("count(up == 1) == 2")
        yield server
    finally:
        server.remove()


def test_the_alerts_load_and_none_fires(prometheus_of_node: Prometheus) -> None:
    assert prometheus_of_node.query('ALERTS{alertstate="firing"}') == []
    assert prometheus_of_node.query("time() - kubelet_pleg_last_seen_seconds < 60")


def test_every_panel_has_numbers_or_a_reason(
    node2: Node, namespace: str, prometheus_of_node: Prometheus
) -> None:
    server = prometheus_of_node
    volumes = [{"name": "v", "emptyDir": {}}]
    mounts = [{"name": "v", "mountPath": "/v"}]
    missing = [{"name": "v", "configMap": {"name": "missing"}}]
    too_large = {"requests": {"cpu": "1000"}}
    pods = [
        pod("runs", {**container(), "volumeMounts": mounts}, volumes=volumes),
        pod("ends", container("main", "echo done"), restartPolicy="Never"),
        pod("fails", {**container(), "command": ["/not/there"]}),
        pod("pulls", {**container(), "image": "127.0.0.1:1/x/y:1"}),
        pod("mounts", {**container(), "volumeMounts": mounts}, volumes=missing),
        pod("too-large", {**container(), "resources": too_large}, nodeName=node2.name),
    ]
    # once so that every series exists, and once more so that it grows
    for number in (1, 2):
        for each in pods:
            name = f"{each['metadata']['name']}-{number}"
            node2.apply({**each, "metadata": {"name": name}}, namespace=namespace)
        node2.wait_running(namespace, f"runs-{number}")
        server.wait_for(f"sum(kubelet_started_containers_errors_total) >= {number}")
    requested = dict(each for path in DASHBOARDS for each in queries(path))

    def empty() -> list[str]:
        return [name for name, query in requested.items() if not has_numbers(server.query(query))]

    def without_reason() -> list[str]:
        return [name for name in empty() if not reason(name)]

    try:
        wait_until(lambda: not without_reason(), "all numbers", timeout=20, interval=1)
    except TimeoutError:
        raise AssertionError(without_reason()) from None
    still = empty()
    filled = [start for start in EMPTY if not any(name.startswith(start) for name in still)]
    assert filled == [], "no longer empty"


def test_recording_rules_have_values(
    node2: Node, namespace: str, prometheus_of_node: Prometheus
) -> None:
    # rates and quantiles need a series that grows after it was scraped
    for number in (1, 2):
        name = f"counted-{number}"
        node2.apply(pod(name, container()), namespace=namespace)
        node2.wait_running(namespace, name)
        prometheus_of_node.wait_for(f"sum(kubelet_started_pods_total) >= {number}")
    for name in (
        "instance:kubelet_pod_start_total_duration_seconds:p99_5m",
        "instance_operation_type:kubelet_runtime_operations:rate5m",
        "instance:node_cpu_usage_seconds:rate5m",
        "namespace_pod:pod_memory_working_set_bytes:sum",
    ):
        prometheus_of_node.wait_for(f"{name} >= 0")


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
    assert node2.metric("kubeletpy_event_loop_longest_turn_seconds") > 0
    assert node2.metric("kubeletpy_event_loop_stalls_total") >= 0


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
