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
from tools.env.process import run
from tools.env.prometheus import check_rules, run_rule_tests

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def documents(name: str) -> list[dict[str, Any]]:
    """The YAML documents of a file."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_prometheus_configuration() -> None:
    # The token and CA files exist in pods only, so their presence is not checked.
    run("promtool", "check", "config", "--syntax-only", DEPLOY / "prometheus.yml")
    rule_files = documents("prometheus.yml")[0]["rule_files"]
    assert rule_files == ["alerts.yml", "recording-rules.yml"]


def test_the_node_of_this_machine_is_scraped_where_it_serves_by_default() -> None:
    (job,) = (
        job
        for job in documents("prometheus.yml")[0]["scrape_configs"]
        if job["job_name"] == "kubelet-local"
    )
    settings = default_settings()
    where = f"{settings.healthz_bind_address}:{settings.healthz_port}"
    assert job["static_configs"][0]["targets"] == [where]
    assert job.get("metrics_path", "/metrics") == "/metrics"


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
