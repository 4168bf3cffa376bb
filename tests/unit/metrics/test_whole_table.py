"""Each metric of the kubelet is served as the kubelet does, or listed with a reason."""

from __future__ import annotations

import re

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.stats import log_metrics, resource
from kubeletpy.stats.usage import Disks, PodDisk
from tests.unit.metrics.test_registry import LABEL, SAMPLE, with_all_series
from tests.unit.stats.readings import REF, pod, reading, use
from tools.rulebook.differences import allowed
from tools.rulebook.tables import rows

ROWS = {(row["endpoint"], row["name"]): row for row in rows("metrics.csv")}

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


def scrapes() -> dict[str, bytes]:
    """What each endpoint shows."""
    metrics: Metrics = with_all_series()
    metrics.health.counted({"ping": lambda: ""})["ping"]()
    disks = Disks(pods={REF.uid: PodDisk(logs={"main": use(7)})})
    return {
        "/metrics": metrics.render() + log_metrics.render(disks, {REF.uid: REF}),
        "/metrics/probes": metrics.render_probes(),
        "/metrics/slis": metrics.render_slis(),
        "/metrics/resource": resource.render(reading(pod())),
    }


SCRAPES = scrapes()
SERVED = {endpoint: families(scrape) for endpoint, scrape in SCRAPES.items()}


def levels() -> dict[str, str]:
    """Name -> level of stability in its help text, of all endpoints together."""
    text = b"".join(SCRAPES.values()).decode()
    found = [HELP.match(line) for line in text.splitlines() if line.startswith("# HELP ")]
    return {each[1]: each[2] or "" for each in found if each}


LEVELS = levels()


@pytest.mark.parametrize(("endpoint", "name"), ROWS)
def test_it_is_served_or_explained(endpoint: str, name: str) -> None:
    row = ROWS[endpoint, name]
    explained = allowed("metrics.csv", name, "not served")
    served = SERVED[endpoint].get(name)
    assert explained == (served is None), "docs/reference/differences.csv says which are not there"
    if served is not None:
        assert served == (row["type"], set(filter(None, row["labels"].split("|"))))


@pytest.mark.parametrize(
    ("name", "level"),
    [(name, row["stability"]) for (_, name), row in ROWS.items() if row["stability"]],
)
def test_help_says_how_stable_a_metric_is(name: str, level: str) -> None:
    assert LEVELS.get(name, level) == level


def test_endpoints_of_their_own_say_when_the_process_started() -> None:
    assert "process_start_time_seconds" in SERVED["/metrics/probes"]
    assert "process_start_time_seconds" in SERVED["/metrics/slis"]
