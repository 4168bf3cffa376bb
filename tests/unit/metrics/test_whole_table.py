"""Each metric of the kubelet is served as by the kubelet, or listed with a reason."""

from __future__ import annotations

import re

import pytest

from kubeletpy.base.kubernetes_version import NEWEST, OLDEST, SUPPORTED, KubernetesVersion, within
from kubeletpy.config.gates import resolve
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.stats import scrapes as log_metrics
from kubeletpy.node.stats import scrapes as resource
from kubeletpy.node.stats.usage import Disks, PodDisk
from tests.kit.stats import REF, pod, reading, use
from tests.unit.metrics.test_registry import with_all_series
from tools.rulebook.differences import allowed
from tools.rulebook.tables import rows

TABLE = [{key: cell or "" for key, cell in row.items()} for row in rows("metrics.csv")]


def in_version(row: dict[str, str], version: KubernetesVersion) -> bool:
    """Whether a row of metrics.csv is about a metric that the version has."""
    return within(version, since=row["since"], until=row["until"])


def of_version(row: dict[str, str], version: KubernetesVersion) -> dict[str, str]:
    """Row as it applies to the version; column earlier is ``LAST VERSION: column=value``."""
    last, _, change = row["earlier"].partition(": ")
    column, _, value = change.partition("=")
    return {**row, column: value} if last and within(version, until=last) else row


ROWS = {(row["endpoint"], row["name"]): row for row in TABLE if in_version(row, NEWEST)}
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? ")
LABEL = re.compile(r'(\w+)="([^"]*)"')
HELP = re.compile(r"# HELP (\w+) (?:\[(\w+)\] )?\w")


def families(scrape: bytes) -> dict[str, tuple[str, set[str]]]:
    """Name -> (type, names of labels)."""
    found: dict[str, tuple[str, set[str]]] = {}
    name, kind = "", ""
    for line in scrape.decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
        elif not line.startswith("#"):
            sample = SAMPLE.match(line)
            assert sample is not None, line
            names = {label for label, _ in LABEL.findall(sample[2] or "")} - {"le"}
            found.setdefault(name, (kind, names))
    return found


def scrapes(version: KubernetesVersion = NEWEST) -> dict[str, bytes]:
    """Output of each endpoint."""
    metrics: Metrics = with_all_series(version)
    metrics.health.counted({"ping": lambda: ""})["ping"]()
    disks = Disks(pods={REF.uid: PodDisk(logs={"main": use(7)})})
    return {
        "/metrics": metrics.render() + log_metrics.render_log_metrics(disks, {REF.uid: REF}),
        "/metrics/probes": metrics.render_probes(),
        "/metrics/slis": metrics.render_slis(),
        "/metrics/resource": resource.render_resource_metrics(reading(pod())),
    }


SCRAPES = scrapes()
SERVED = {endpoint: families(scrape) for endpoint, scrape in SCRAPES.items()}


def levels(scrapes: dict[str, bytes]) -> dict[str, str]:
    """Name -> stability level in its help text, from all endpoints."""
    text = b"".join(scrapes.values()).decode()
    found = [HELP.match(line) for line in text.splitlines() if line.startswith("# HELP ")]
    return {each[1]: each[2] or "" for each in found if each}


@pytest.mark.parametrize("version", SUPPORTED, ids=str)
def test_a_scrape_has_the_metrics_of_the_version(version: KubernetesVersion) -> None:
    found = scrapes(version)
    served = {endpoint: families(scrape) for endpoint, scrape in found.items()}
    desired: dict[str, dict[str, tuple[str, set[str]]]] = {endpoint: {} for endpoint in found}
    for row in (of_version(each, version) for each in TABLE if in_version(each, version)):
        if not allowed("metrics.csv", row["name"], "not served"):
            labels = set(filter(None, row["labels"].split("|")))
            desired[row["endpoint"]][row["name"]] = (row["type"], labels)
            level = levels(found)[row["name"]]
            assert level == (row["stability"] or level), row["name"]
    for endpoint, metrics in served.items():
        started = {"process_start_time_seconds"} - desired[endpoint].keys()
        rest = {name: shape for name, shape in metrics.items() if name not in started}
        assert rest == desired[endpoint]


def test_labels_that_a_version_lacks_are_added_up() -> None:
    pending = {("deferred", "high"): 2, ("deferred", "normal"): 1, ("infeasible", "normal"): 4}
    oldest, newest = Metrics(OLDEST), Metrics()
    for metrics in (oldest, newest):
        metrics.resizes.now({("infeasible", "low"): 9}, 1)
        metrics.resizes.now(pending, 0)
    name = "kubelet_pod_pending_resizes"
    lines = [line for line in oldest.render().decode().splitlines() if line.startswith(name)]
    assert lines == [f'{name}{{reason="deferred"}} 3', f'{name}{{reason="infeasible"}} 4']
    text = newest.render().decode()
    assert f'{name}{{priority_bucket="high",reason="deferred"}} 2' in text
    assert text.count(f"\n{name}{{") == 3


def test_a_metric_of_another_version_can_be_counted() -> None:
    metrics = Metrics(OLDEST)
    metrics.workers.pod_admitted("", "BestEffort")
    assert b"kubelet_pod_level_resources_admission_total" not in metrics.render()


def test_separate_endpoints_contain_the_process_start_time() -> None:
    assert "process_start_time_seconds" in SERVED["/metrics/probes"]
    assert "process_start_time_seconds" in SERVED["/metrics/slis"]


def test_gates_that_are_off_hide_their_metrics() -> None:
    gates = resolve({"MemoryQoS": False, "PodLevelResources": False})
    reported = Metrics(gates.version, gates.enabled).render().decode()
    assert "kubelet_memory_qos_node_memory_min_bytes" not in reported
    assert "kubelet_pod_level_resources_admission_total" not in reported
    assert "kubelet_image_volume_requested_total" in reported


# The metrics of health checks count every run, for any client.


def test_runs_are_counted_and_a_scrape_runs_all() -> None:
    metrics = Metrics()
    problems = {"syncloop": "", "ping": ""}
    checks = metrics.health.counted(
        {"ping": lambda: problems["ping"], "syncloop": lambda: problems["syncloop"]}
    )
    assert checks["ping"]() == ""
    text = metrics.render_slis().decode()
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1\n' in text
    ping = 'kubernetes_healthchecks_total{name="ping",status="success",type="healthz"}'
    assert f"{ping} 2\n" in text
    problems["syncloop"] = "stuck"
    assert checks["syncloop"]() == "stuck"
    text = metrics.render_slis().decode()
    assert 'kubernetes_healthcheck{name="syncloop",type="healthz"} 0\n' in text
    failed = 'kubernetes_healthchecks_total{name="syncloop",status="error",type="healthz"}'
    assert f"{failed} 2\n" in text
    assert "# TYPE kubernetes_healthchecks_total counter\n" in text
    assert "kubernetes_healthcheck" not in metrics.render().decode()


def test_the_source_of_container_metrics() -> None:
    metrics = Metrics()
    metrics.http.metrics_come_from("cadvisor")
    metrics.http.metrics_come_from("cri")
    text = metrics.render().decode()
    assert 'kubelet_metrics_provider{provider="cri"} 1\n' in text
    assert 'provider="cadvisor"' not in text
