"""deploy/: queries ask for metrics that there are, and alerts and runbooks go together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.rulebook.promql import (
    OF_KUBE_STATE_METRICS,
    OF_PROMETHEUS,
    exported,
    labels,
    labels_of,
    metrics_of,
)

ROOT = Path(__file__).resolve().parents[2]
DEPLOY, RUNBOOKS = ROOT / "deploy", ROOT / "docs" / "runbooks"
HEADINGS = ["Meaning", "Checks", "Remedy"]
DASHBOARDS = {
    path.stem: json.loads(path.read_text()) for path in sorted((DEPLOY / "dashboards").iterdir())
}
SCHEMA = 39
"""The dashboard schema of Grafana 10.4, which later versions read too."""
WIDTH = 24
"""Columns of Grafana's grid."""


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels that show something: all but the headings of rows."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def groups(name: str) -> dict[str, list[dict[str, Any]]]:
    return {
        each["name"]: each["rules"]
        for each in yaml.safe_load((DEPLOY / name).read_text())["groups"]
    }


ALERTS = groups("alerts.yml")
RECORDED = groups("recording-rules.yml")
RULES = [rule for group in RECORDED.values() for rule in group]


def queries() -> Iterator[tuple[str, str]]:
    """Where a query stands, and the query."""
    for group, rules in [*ALERTS.items(), *RECORDED.items()]:
        for rule in rules:
            yield f"{group}: {rule.get('alert') or rule['record']}", rule["expr"]
    for name, dashboard in DASHBOARDS.items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield f"{name}: {panel['title']}", target["expr"]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("up", {"up"}),
        ('sum by (instance, le) (rate(a_bucket{job="kubelet",b!~"c|d"}[5m])) > 2 + 4 * b', None),
        ("histogram_quantile(0.5, l:m_bucket:rate5m)", {"l:m_bucket:rate5m"}),
        ('time() - last{x="b (c)"} > bool 1 and on (a, b) other offset 5m', {"last", "other"}),
    ],
)
def test_metrics_of_an_expression(expression: str, names: set[str] | None) -> None:
    assert metrics_of(expression) == (names or {"a_bucket", "b"})


@pytest.mark.parametrize(
    ("where", "expression"), [pytest.param(*each, id=each[0]) for each in queries()]
)
def test_every_metric_is_one_that_there_is(where: str, expression: str) -> None:
    there = exported() | OF_PROMETHEUS
    if where.startswith("cluster: "):
        there |= OF_KUBE_STATE_METRICS
    if where.startswith("kubelet-"):
        there |= {rule["record"] for rule in RULES}
    assert metrics_of(expression)
    assert metrics_of(expression) - there == set()


OF_SCRAPES = {"job", "instance", "le"}
"""Labels that Prometheus adds, and that of buckets."""


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_label_of_a_dashboard_is_one_that_the_metric_has(name: str) -> None:
    known = labels()
    for panel in panels(DASHBOARDS[name]):
        for target in panel["targets"]:
            metrics = metrics_of(target["expr"])
            there = {
                label
                for name, each in known.items()
                if metrics & {name, *(f"{name}_{part}" for part in ("bucket", "sum", "count"))}
                for label in each
            }
            in_legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            used = labels_of(target["expr"]) | in_legend
            assert used <= there | OF_SCRAPES, panel["title"]


def test_each_alert_has_a_runbook_and_each_runbook_an_alert() -> None:
    alerts = [rule for rules in ALERTS.values() for rule in rules]
    assert {rule["alert"] for rule in alerts} == {page.stem for page in RUNBOOKS.glob("*.md")}
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"runbooks/{rule['alert']}.html"


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_a_runbook_says_what_it_means_where_to_look_and_what_to_do(page: Path) -> None:
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert re.findall(r"^## (.*)$", text, re.M) == HEADINGS
    looks = text.partition("## Checks")[2].partition("## Remedy")[0]
    assert "```console\n" in looks
    mentioned = re.findall(r"\*kubeletpy / (\w+)\*: (.*)", text)
    for title, names in mentioned:
        (dashboard,) = (
            each for each in DASHBOARDS.values() if each["title"] == f"kubeletpy / {title}"
        )
        there = {panel["title"] for panel in panels(dashboard)}
        assert set(re.findall(r"\*([^*]+)\*", names)) <= there


def test_alerts_that_dashboards_name() -> None:
    alerts = {rule["alert"] for rules in ALERTS.values() for rule in rules}
    named = {
        word
        for dashboard in DASHBOARDS.values()
        for panel in panels(dashboard)
        for word in re.findall(r"\bKube[a-z]*[A-Z]\w+", panel["description"])
    }
    assert named
    assert named <= alerts


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard(name: str) -> None:
    dashboard = DASHBOARDS[name]
    text = json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"
    assert (DEPLOY / "dashboards" / f"{name}.json").read_text() == text, "not as Grafana exports it"
    assert (dashboard["uid"], dashboard["schemaVersion"]) == (f"kubeletpy-{name}", SCHEMA)
    assert "id" not in dashboard, "the number that one Grafana gave it"
    assert [each["name"] for each in dashboard["templating"]["list"]] == ["datasource", "node"]
    assert "http" not in text.replace("http_requests", "")
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_no_panel_lies_on_another(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARDS[name]["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, f"{panel['title']} lies on another panel"
        assert at["x"] + at["w"] <= WIDTH
        taken |= cells


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_say_what_they_show_of_the_chosen_nodes(name: str) -> None:
    for panel in panels(DASHBOARDS[name]):
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            assert "$node" in target["expr"]
            assert target["legendFormat"] or panel["type"] == "stat"
            assert target["datasource"]["uid"] == "${datasource}"
