"""The files in deploy/ are read by the programs that they are for."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeletpy.config.load import default_settings, load
from tools.env.containerd import programs
from tools.env.images import BUSYBOX
from tools.env.kubectl import kubectl
from tools.env.process import run
from tools.env.prometheus import check_rules, run_rule_tests

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def documents(name: str) -> list[dict[str, Any]]:
    """The YAML documents of a file."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


# The token and CA files of a cluster exist in pods only, so their presence is not checked.
@pytest.mark.parametrize(
    ("name", "options"), [("prometheus.yml", []), ("prometheus-cluster.yml", ["--syntax-only"])]
)
def test_prometheus_configuration(name: str, options: list[str]) -> None:
    run("promtool", "check", "config", *options, DEPLOY / name)
    assert documents(name)[0]["rule_files"] == ["alerts.yml", "recording-rules.yml"]


def test_the_node_of_this_machine_is_scraped_where_it_serves_by_default() -> None:
    settings = default_settings()
    where = f"{settings.healthz_bind_address}:{settings.healthz_port}"
    jobs = documents("prometheus.yml")[0]["scrape_configs"]
    assert all(job["static_configs"][0]["targets"] == [where] for job in jobs)
    assert {job["job_name"]: job.get("metrics_path", "/metrics") for job in jobs} == {
        "kubelet": "/metrics",
        "kubelet-resource": "/metrics/resource",
    }


@pytest.mark.parametrize("name", ["old", "new"])
def test_the_pod_with_prometheus_and_grafana_mounts_what_it_needs(
    name: str, work_dir: Path
) -> None:
    rendered = yaml.safe_load_all(kubectl(name).run(work_dir / "none", "kustomize", DEPLOY))
    objects = {(each["kind"], each["metadata"]["name"]): each for each in rendered}
    spec = objects.pop(("Pod", "monitoring"))["spec"]
    maps = [each["configMap"] for each in spec["volumes"] if "configMap" in each]
    assert {("ConfigMap", each["name"]) for each in maps} == objects.keys()
    prometheus = objects["ConfigMap", "monitoring-prometheus"]["data"].keys()
    assert prometheus == {"prometheus.yml", "alerts.yml", "recording-rules.yml"}
    dashboards = objects["ConfigMap", "monitoring-dashboards"]["data"].keys()
    assert dashboards == {path.name for path in (DEPLOY / "dashboards").iterdir()}


def test_alerts_fire_when_they_must(work_dir: Path) -> None:
    check_rules(DEPLOY / "alerts.yml")
    tests = (Path(__file__).parent / "alerts.test.yml").read_text()
    file = work_dir / "alerts.test.yml"
    file.write_text(tests.replace("  - ALERTS\n", f"  - {DEPLOY / 'alerts.yml'}\n"))
    run_rule_tests(file)


def test_recording_rules(work_dir: Path) -> None:
    check_rules(DEPLOY / "recording-rules.yml")
    tests = (Path(__file__).parent / "recording-rules.test.yml").read_text()
    file = work_dir / "recording-rules.test.yml"
    file.write_text(tests.replace("  - RULES\n", f"  - {DEPLOY / 'recording-rules.yml'}\n"))
    run_rule_tests(file)


@pytest.mark.parametrize(("generation", "version"), [(1, 2), (2, 3)])
def test_containerd_configuration(work_dir: Path, generation: int, version: int) -> None:
    config = (DEPLOY / f"containerd-config-v{version}.toml").read_text()
    file = work_dir / "config.toml"
    file.write_text(f'{config}\n[grpc]\n  address = "{work_dir}/c.sock"\n')
    dump = run(programs(generation) / "containerd", "--config", file, "config", "dump")
    assert f"version = {version}" in dump
    assert "restrict_oom_score_adj = true" in dump
    assert "disable_hugetlb_controller = false" in dump
    assert "registry.k8s.io/pause:3.10" in dump
    assert "/etc/containerd/certs.d" in dump


def test_kubelet_configuration() -> None:
    loaded = load((DEPLOY / "kubelet-config.yaml").read_text(), file_name="kubelet-config.yaml")
    assert loaded.warnings == ()


@pytest.mark.parametrize("name", ["kubeletpy.service", "kubelet.service.d/20-kubeletpy.conf"])
def test_stopping_the_unit_leaves_containers_alone(name: str) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((DEPLOY / name).read_text())
    service = unit["Service"]
    assert service["KillMode"] == "process"
    assert service["Restart"] == "always"
    own_mounts = {"ProtectSystem", "PrivateTmp", "ProtectHome", "PrivateMounts", "PrivateDevices"}
    assert not own_mounts & set(service), "mounts for pods must reach the runtime"


def test_sample_pod_needs_no_registry() -> None:
    (pod,) = documents("sample-pod.yaml")
    assert [c["image"] for c in pod["spec"]["containers"]] == [BUSYBOX, BUSYBOX]


@pytest.mark.parametrize(
    "name", ["rbac.yaml", "rbac-watch-volumes.yaml", "rbac-without-node-authorizer.yaml"]
)
def test_bindings_name_roles_that_exist(name: str) -> None:
    objects = documents(name)
    roles = {o["metadata"]["name"] for o in objects if o["kind"] == "ClusterRole"}
    bound = {o["roleRef"]["name"] for o in objects if o["kind"] == "ClusterRoleBinding"}
    assert bound <= roles | {"system:node"}
