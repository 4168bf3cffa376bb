"""The metrics of health checks count every run, for any client."""

from __future__ import annotations

from kubeletpy.metrics.registry import Metrics


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
