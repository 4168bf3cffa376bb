"""Two agents side by side, and the requests that kube-apiserver counts."""

from __future__ import annotations

from bench.results import Results, Row
from bench.server import requests_of
from bench.turns import side_by_side

METRICS = """\
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",\
scope="resource",subresource="status",verb="PATCH",version="v1"} 7
apiserver_request_total{code="409",component="apiserver",dry_run="",group="",resource="pods",\
scope="resource",subresource="status",verb="PATCH",version="v1"} 1
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="events",\
scope="resource",subresource="",verb="POST",version="v1"} 1e+02
apiserver_request_total{code="0",component="apiserver",dry_run="",group="",resource="pods",\
scope="cluster",subresource="",verb="WATCH",version="v1"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="api",\
scope="",subresource="",verb="GET",version=""} 5
apiserver_request_duration_seconds_count{resource="pods",verb="PATCH"} 9
"""


def result(ratio: float, idle: float, patches: float) -> Results:
    rows = [
        Row("all removed", 60, "s", [ratio * 2], [2.0], aim=1.15),
        Row("agent idle CPU", 60, "% of a core", [idle]),
    ]
    return Results(2, rows, {"delete 60": {"PATCH pods/status": patches, "GET pods": 0.01}})


def test_requests_are_counted_by_verb_and_resource() -> None:
    assert requests_of(METRICS) == {"PATCH pods/status": 8, "POST events": 100}


def test_a_row_has_the_medians_of_both_agents_and_each_turn() -> None:
    turns = [
        (result(1.2, 0.5, 2.0), result(1.9, 5, 3.0)),
        (result(1.4, 0.7, 2.5), result(1.5, 7, 3.0)),
        (result(1.1, 0.6, 3.0), result(1.8, 6, 3.0)),
    ]
    lines = [" ".join(line.split()) for line in side_by_side(["ours", "Go"], turns).splitlines()]
    assert lines == [
        "pods ours Go aim turns: ours | Go",
        "all removed 60 x floor 1.2 1.8 1.15 1.2 1.4 1.1 | 1.9 1.5 1.8",
        "agent idle CPU 60 % of a core 0.6 6 0.5 0.7 0.6 | 5 7 6",
        "ours, calls per pod, delete 60: PATCH pods/status 2.5",
        "Go, calls per pod, delete 60: PATCH pods/status 3.0",
    ]
