"""Write deploy/dashboards/*.json: dashboards for Grafana 10 and later.

python tools/gen_dashboards.py            # writes the files
python tools/gen_dashboards.py --check    # exits 1 if a file is not what this program gives

Panels are data (DASHBOARDS); the JSON around them is the same for all: variables for data source
and node, a fixed uid, units, legends. Every query is tried against a real Prometheus that scraped a
node (tests/integration/node/test_dashboards.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "deploy" / "dashboards"
SCHEMA = 39
"""Of Grafana 10.4, which later versions read too."""
WIDTH, HEIGHT = 24, 8
"""Of a row, in Grafana's units; and of a panel that shows time."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

K = 'job="kubelet",instance=~"$node"'
"""Selects what the agents' /metrics said."""
R = 'job="kubelet-resource",instance=~"$node"'
"""Selects what the agents' /metrics/resource said."""
RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: queries with their legends, and the unit of their values (Grafana's names).

    Attributes:
        about: what the panel shows, and what is normal.
        stat: one number instead of a course over time.
    """

    title: str
    about: str
    unit: str
    queries: Sequence[tuple[str, str]]
    stat: bool = False
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, side by side."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One file: deploy/dashboards/NAME.json, uid kubeletpy-NAME."""

    name: str
    title: str
    about: str
    rows: Sequence[Row]


# -- queries ---------------------------------------------------------------------------------------


def quantiles(metric: str, by: str = "", more: str = "", of: Sequence[int] = (50, 99)) -> Any:
    """Quantiles of a histogram per node (and ``by``, a label)."""
    groups = ", ".join(each for each in ("instance", by, "le") if each)
    legend = f"{{{{instance}}}} {{{{{by}}}}}" if by else "{{instance}}"
    rate = f"sum by ({groups}) (rate({metric}_bucket{{{K}{more}}}{RATE}))"
    return [(f"histogram_quantile({each / 100:g}, {rate})", f"{legend} p{each}") for each in of]


def mean(metric: str, legend: str, more: str = "") -> tuple[str, str]:
    """The mean of a histogram over all chosen nodes."""
    parts = [f"sum(rate({metric}_{part}{{{K}{more}}}{RATE}))" for part in ("sum", "count")]
    return " / ".join(parts), legend


def rates(metric: str, by: str = "", more: str = "", selector: str = K) -> Any:
    """How often per second, per node (and ``by``, a label)."""
    groups = ", ".join(each for each in ("instance", by) if each)
    legend = f"{{{{instance}}}} {{{{{by}}}}}" if by else "{{instance}}"
    return [(f"sum by ({groups}) (rate({metric}{{{selector}{more}}}{RATE}))", legend)]


def values(metric: str, by: str = "", more: str = "", selector: str = K) -> Any:
    """What a gauge says, per node (and ``by``, a label)."""
    groups = ", ".join(each for each in ("instance", by) if each)
    legend = f"{{{{instance}}}} {{{{{by}}}}}" if by else "{{instance}}"
    return [(f"sum by ({groups}) ({metric}{{{selector}{more}}})", legend)]


def total(expression: str) -> Any:
    """One number."""
    return [(expression, "")]


# -- dashboards ------------------------------------------------------------------------------------

POD = "{{namespace}}/{{pod}}"
CALLS = "kubelet_runtime_operations"
NODE = Dashboard(
    "node",
    "kubeletpy / Node",
    "How nodes and their agents do: use, runtime, API.",
    [
        Row(
            "Now",
            [
                Panel(
                    "Agents up",
                    "Agents that answer scrapes. Alert: KubeletDown.",
                    "none",
                    total(f"sum(up{{{K}}})"),
                    stat=True,
                ),
                Panel(
                    "Running pods",
                    "Pods with a running sandbox.",
                    "none",
                    total(f"sum(kubelet_running_pods{{{K}}})"),
                    stat=True,
                ),
                Panel(
                    "Running containers",
                    "Containers that run now.",
                    "none",
                    total(f'sum(kubelet_running_containers{{{K},container_state="running"}})'),
                    stat=True,
                ),
                Panel(
                    "Versions",
                    "Agents by version.",
                    "none",
                    [
                        (
                            f"count by (git_version) (kubernetes_build_info{{{K}}})",
                            "{{git_version}}",
                        )
                    ],
                    stat=True,
                ),
            ],
        ),
        Row(
            "Use of the node",
            [
                Panel(
                    "CPU",
                    "Cores in use, by pods and everything else.",
                    "none",
                    rates("node_cpu_usage_seconds_total", selector=R),
                ),
                Panel(
                    "Memory",
                    "The working set, which eviction looks at.",
                    "bytes",
                    values("node_memory_working_set_bytes", selector=R),
                ),
                Panel(
                    "Swap",
                    "Swap in use.",
                    "bytes",
                    values("node_swap_usage_bytes", selector=R),
                ),
            ],
        ),
        Row(
            "The agent itself",
            [
                Panel(
                    "CPU of the agent",
                    "Cores.",
                    "none",
                    rates("process_cpu_seconds_total"),
                ),
                Panel(
                    "Memory of the agent",
                    "Resident.",
                    "bytes",
                    values("process_resident_memory_bytes"),
                ),
                Panel(
                    "Open files of the agent",
                    "One that only grows is a leak.",
                    "none",
                    values("process_open_fds"),
                ),
                Panel(
                    "Longest turn of the event loop",
                    "The longest time since the last scrape during which the agent did not answer.",
                    "s",
                    values("kubeletpy_event_loop_longest_turn_seconds"),
                ),
            ],
        ),
        Row(
            "The runtime",
            [
                Panel(
                    "Calls",
                    "CRI calls per second, by kind.",
                    "ops",
                    rates(f"{CALLS}_total", "operation_type"),
                ),
                Panel(
                    "Failing calls",
                    "Per second. Alerts: KubeletRuntimeErrors, KubeletImagePullErrors.",
                    "ops",
                    rates(f"{CALLS}_errors_total", "operation_type"),
                ),
                Panel(
                    "Duration of calls",
                    "99 % of the calls take less.",
                    "s",
                    quantiles(f"{CALLS}_duration_seconds", "operation_type", of=(99,)),
                ),
                Panel(
                    "Looks at all containers",
                    "How long a look takes. Alert: KubeletPLEGSlow.",
                    "s",
                    quantiles("kubelet_pleg_relist_duration_seconds"),
                ),
                Panel(
                    "Since the last look",
                    "After 180 s the node is NotReady. Alert: KubeletPLEGUnhealthy.",
                    "s",
                    [(f"time() - kubelet_pleg_last_seen_seconds{{{K}}}", "{{instance}}")],
                ),
            ],
        ),
        Row(
            "The API",
            [
                Panel(
                    "Requests to the API server",
                    "Per second, by status code.",
                    "reqps",
                    rates("rest_client_requests_total", "code"),
                ),
                Panel(
                    "Duration of requests to the API server",
                    "Without watches.",
                    "s",
                    quantiles("rest_client_request_duration_seconds", "verb", of=(99,)),
                ),
                Panel(
                    "Connections to the API server",
                    "Over HTTP/2 two carry everything; over HTTP/1.1 each watch has one.",
                    "none",
                    values("kubeletpy_api_connections", "protocol"),
                ),
                Panel(
                    "Lost connections to the API server",
                    "Per second: HTTP/2 connections that broke, or that the server ended.",
                    "cps",
                    rates("kubeletpy_api_connections_lost_total"),
                ),
                Panel(
                    "Requests to the node",
                    "What others ask the agent: scrapes, logs, exec.",
                    "reqps",
                    rates("kubelet_http_requests_total", "path"),
                ),
            ],
        ),
    ],
)

PODS = Dashboard(
    "pods",
    "kubeletpy / Pods",
    "What becomes of pods and containers, and what they use.",
    [
        Row(
            "Pods",
            [
                Panel(
                    "Wanted pods",
                    "Pods that should be on the node, static ones apart.",
                    "none",
                    values("kubelet_desired_pods", "static"),
                ),
                Panel(
                    "Pods at work",
                    "Pods that a worker looks after, by where they are in their lives.",
                    "none",
                    values("kubelet_working_pods", "lifecycle"),
                ),
                Panel(
                    "Containers",
                    "By state, as the runtime says.",
                    "none",
                    values("kubelet_running_containers", "container_state"),
                ),
            ],
        ),
        Row(
            "Starts and ends",
            [
                Panel(
                    "Started pods",
                    "Sandboxes per second, and those that failed. Alert: KubeletPodStartErrors.",
                    "ops",
                    [
                        *rates("kubelet_started_pods_total"),
                        (rates("kubelet_started_pods_errors_total")[0][0], "{{instance}} failed"),
                    ],
                ),
                Panel(
                    "Started containers",
                    "By type. Many without started pods are restarts. "
                    "Alert: KubeletContainersCrashLooping.",
                    "ops",
                    rates("kubelet_started_containers_total", "container_type"),
                ),
                Panel(
                    "Failed container starts",
                    "By code. Alert: KubeletContainerStartErrors.",
                    "ops",
                    rates("kubelet_started_containers_errors_total", "code"),
                ),
                Panel(
                    "Ended containers",
                    "By reason.",
                    "ops",
                    rates("kubelet_terminated_containers_total", "reason"),
                ),
                Panel(
                    "Rejected pods",
                    "Pods that the node did not admit, by reason.",
                    "ops",
                    rates("kubelet_admission_rejections_total", "reason"),
                ),
                Panel(
                    "Status to the API",
                    "From a change of a pod's status until the API has it.",
                    "s",
                    quantiles("kubelet_pod_status_sync_duration_seconds"),
                ),
            ],
        ),
        Row(
            "Use",
            [
                Panel(
                    "CPU, the ten busiest pods",
                    "Cores.",
                    "none",
                    [
                        (
                            "topk(10, sum by (namespace, pod) "
                            f"(rate(pod_cpu_usage_seconds_total{{{R}}}{RATE})))",
                            POD,
                        )
                    ],
                ),
                Panel(
                    "Memory, the ten largest pods",
                    "Working sets.",
                    "bytes",
                    [
                        (
                            "topk(10, sum by (namespace, pod) "
                            f"(pod_memory_working_set_bytes{{{R}}}))",
                            POD,
                        )
                    ],
                ),
                Panel(
                    "Logs, the ten largest",
                    "What container logs take of the disk.",
                    "bytes",
                    [
                        (
                            "topk(10, sum by (namespace, pod, container) "
                            f"(kubelet_container_log_filesystem_used_bytes{{{K}}}))",
                            f"{POD}/{{{{container}}}}",
                        )
                    ],
                ),
            ],
        ),
    ],
)

CREATED = ',operation_type="create_container"'
STARTED = ',operation_type="start_container"'
STARTS = Dashboard(
    "starts",
    "kubeletpy / Start latency",
    "How long pods take to start, and in which phase.",
    [
        Row(
            "Whole starts",
            [
                Panel(
                    "From creation until running",
                    "Until the watch shows all containers running, with pulls and init containers.",
                    "s",
                    quantiles("kubelet_pod_start_total_duration_seconds", of=(50, 90, 99)),
                ),
                Panel(
                    "The SLI",
                    "Without pulls, init containers and pods with volumes that outlive them.",
                    "s",
                    quantiles("kubelet_pod_start_sli_duration_seconds", of=(50, 90, 99)),
                ),
                Panel(
                    "On the node",
                    "From the first sight of a pod until it is Running.",
                    "s",
                    quantiles("kubelet_pod_start_duration_seconds", of=(50, 90, 99)),
                ),
            ],
        ),
        Row(
            "Phases",
            [
                Panel(
                    "Mean time of each phase",
                    "In the order of a start, of all chosen nodes. Pulls may overlap with others.",
                    "s",
                    [
                        mean(
                            "kubelet_pod_worker_start_duration_seconds", "1 until a worker has it"
                        ),
                        mean(
                            "kubelet_cgroup_manager_duration_seconds",
                            "2 cgroup",
                            ',operation_type="create"',
                        ),
                        mean(
                            "storage_operation_duration_seconds",
                            "3 volumes",
                            ',operation_name="volume_mount"',
                        ),
                        mean("kubelet_run_podsandbox_duration_seconds", "4 sandbox and network"),
                        mean("kubelet_image_pull_duration_seconds", "5 pull"),
                        mean(f"{CALLS}_duration_seconds", "6 create container", CREATED),
                        mean(f"{CALLS}_duration_seconds", "7 start container", STARTED),
                        mean("kubelet_pod_status_sync_duration_seconds", "8 status to the API"),
                    ],
                    stacked=True,
                ),
                Panel(
                    "Until a worker has it",
                    "From the watch's event to the pod's worker.",
                    "s",
                    quantiles("kubelet_pod_worker_start_duration_seconds"),
                ),
                Panel(
                    "Cgroup",
                    "Making the pod's cgroup.",
                    "s",
                    quantiles(
                        "kubelet_cgroup_manager_duration_seconds",
                        more=',operation_type="create"',
                    ),
                ),
                Panel(
                    "Volumes",
                    "Mounting one volume, by kind.",
                    "s",
                    quantiles(
                        "storage_operation_duration_seconds",
                        "volume_plugin",
                        ',operation_name="volume_mount"',
                        of=(99,),
                    ),
                ),
                Panel(
                    "Sandbox and network",
                    "RunPodSandbox, which waits for the network plugin.",
                    "s",
                    quantiles("kubelet_run_podsandbox_duration_seconds"),
                ),
                Panel(
                    "Pull",
                    "By size of the image.",
                    "s",
                    quantiles(
                        "kubelet_image_pull_duration_seconds", "image_size_in_bytes", of=(99,)
                    ),
                ),
                Panel(
                    "Create container",
                    "CreateContainer.",
                    "s",
                    quantiles(f"{CALLS}_duration_seconds", more=CREATED),
                ),
                Panel(
                    "Start container",
                    "StartContainer.",
                    "s",
                    quantiles(f"{CALLS}_duration_seconds", more=STARTED),
                ),
                Panel(
                    "Status to the API",
                    "From a change of a pod's status until the API has it.",
                    "s",
                    quantiles("kubelet_pod_status_sync_duration_seconds"),
                ),
            ],
        ),
    ],
)

CLAIM = "{{namespace}}/{{persistentvolumeclaim}}"
BY_CLAIM = "namespace, persistentvolumeclaim"


def of_claims(metric: str, of: str) -> Any:
    """The ten fullest claims: a part of a whole."""
    parts = [f"max by ({BY_CLAIM}) (kubelet_volume_stats_{each}{{{K}}})" for each in (metric, of)]
    return [(f"topk(10, {' / '.join(parts)})", CLAIM)]


STORAGE = Dashboard(
    "storage",
    "kubeletpy / Storage",
    "Volumes, claims, images.",
    [
        Row(
            "Volumes",
            [
                Panel(
                    "Volumes",
                    "By state: wanted, and mounted.",
                    "none",
                    values("volume_manager_total_volumes", "state"),
                ),
                Panel(
                    "Duration of operations",
                    "99 % take less.",
                    "s",
                    quantiles("storage_operation_duration_seconds", "operation_name", of=(99,)),
                ),
                Panel(
                    "Failing operations",
                    "Per second, by operation.",
                    "ops",
                    rates(
                        "storage_operation_duration_seconds_count",
                        "operation_name",
                        ',status!="success"',
                    ),
                ),
                Panel(
                    "CSI calls",
                    "99 % take less, by method.",
                    "s",
                    quantiles("csi_operations_seconds", "method_name", of=(99,)),
                ),
            ],
        ),
        Row(
            "Claims",
            [
                Panel(
                    "The fullest claims",
                    "Used bytes of capacity.",
                    "percentunit",
                    of_claims("used_bytes", "capacity_bytes"),
                ),
                Panel(
                    "The fullest claims, inodes",
                    "Used inodes of all.",
                    "percentunit",
                    of_claims("inodes_used", "inodes"),
                ),
                Panel(
                    "Abnormal claims",
                    "1: the CSI driver says that the volume is not healthy.",
                    "none",
                    [
                        (
                            f"max by ({BY_CLAIM}) "
                            f"(kubelet_volume_stats_health_status_abnormal{{{K}}})",
                            CLAIM,
                        )
                    ],
                ),
            ],
        ),
        Row(
            "Images and remains",
            [
                Panel(
                    "Pulls",
                    "Per second; with failures. Alert: KubeletImagePullErrors.",
                    "ops",
                    rates(f"{CALLS}_total", more=',operation_type="pull_image"'),
                ),
                Panel(
                    "Removed images",
                    "By garbage collection, by reason.",
                    "ops",
                    rates("kubelet_image_garbage_collected_total", "reason"),
                ),
                Panel(
                    "Directories of pods that are gone",
                    "Volumes in them that could not be cleaned up at the last look.",
                    "none",
                    values("kubelet_orphan_pod_cleaned_volumes_errors"),
                ),
            ],
        ),
    ],
)

PRESSURE = Dashboard(
    "pressure",
    "kubeletpy / Pressure",
    "Evictions, preemptions, rejections, resizes: where nodes are short of something.",
    [
        Row(
            "Evictions",
            [
                Panel(
                    "Evicted pods",
                    "Per second, by what was short.",
                    "ops",
                    rates("kubelet_evictions", "eviction_signal"),
                ),
                Panel(
                    "Age of the numbers",
                    "How old the numbers were by which an eviction was decided.",
                    "s",
                    quantiles("kubelet_eviction_stats_age_seconds", "eviction_signal", of=(99,)),
                ),
                Panel(
                    "Preempted pods",
                    "Per second: ended so that a more important pod fits.",
                    "ops",
                    rates("kubelet_preemptions", "preemption_signal"),
                ),
                Panel(
                    "Rejected pods",
                    "Per second, by reason.",
                    "ops",
                    rates("kubelet_admission_rejections_total", "reason"),
                ),
            ],
        ),
        Row(
            "What nodes have left",
            [
                Panel(
                    "Memory",
                    "The node's working set.",
                    "bytes",
                    values("node_memory_working_set_bytes", selector=R),
                ),
                Panel(
                    "CPUs for all",
                    "The shared pool of the CPU manager, in thousandths of a core.",
                    "none",
                    values("kubelet_cpu_manager_shared_pool_size_millicores"),
                ),
                Panel(
                    "CPUs given to one container each",
                    "Exclusive CPUs (the static policy).",
                    "none",
                    values("kubelet_cpu_manager_exclusive_cpu_allocation_count"),
                ),
            ],
        ),
        Row(
            "Resizes in place",
            [
                Panel(
                    "Waiting",
                    "Resizes that the node can't grant now, by reason.",
                    "none",
                    values("kubelet_pod_pending_resizes", "reason"),
                ),
                Panel(
                    "Under way",
                    "Granted, and not yet done.",
                    "none",
                    values("kubelet_pod_in_progress_resizes"),
                ),
                Panel(
                    "Impossible",
                    "Per second, by reason.",
                    "ops",
                    rates("kubelet_pod_infeasible_resizes_total", "reason_detail"),
                ),
            ],
        ),
    ],
)
DASHBOARDS = (NODE, PODS, STARTS, STORAGE, PRESSURE)


# -- JSON ------------------------------------------------------------------------------------------


def document(dashboard: Dashboard) -> dict[str, Any]:
    """A dashboard as Grafana imports it."""
    return {
        "uid": f"kubeletpy-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["kubeletpy"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [],
        "annotations": {"list": []},
        "templating": {"list": [_source_variable(), _node_variable()]},
        "panels": list(_panels(dashboard)),
    }


def _source_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "refresh": 1,
    }


def _node_variable() -> dict[str, Any]:
    query = 'label_values(up{job="kubelet"}, instance)'
    return {
        "name": "node",
        "label": "Node",
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "node"},
        "current": {"text": ["All"], "value": ["$__all"]},
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "sort": 1,
        "hide": 0,
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for row in dashboard.rows:
        number += 1
        at = {"h": 1, "w": WIDTH, "x": 0, "y": y}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": at, "panels": []}
        y += 1
        across = 4 if row.panels[0].stat else 3
        for index, panel in enumerate(row.panels):
            number += 1
            h = HEIGHT // 2 if panel.stat else HEIGHT
            x = index % across * (WIDTH // across)
            at = {"h": h, "w": WIDTH // across, "x": x, "y": y}
            yield _panel(panel, number, at)
            if index % across == across - 1 or index == len(row.panels) - 1:
                y += h


def _panel(panel: Panel, number: int, at: dict[str, int]) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + index),
            "datasource": SOURCE,
            "expr": expression,
            "legendFormat": legend,
            "range": not panel.stat,
            "instant": panel.stat,
        }
        for index, (expression, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": at,
        "targets": targets,
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _stat_options() if panel.stat else _time_options(),
    }


def _field(panel: Panel) -> dict[str, Any]:
    field: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if not panel.stat:
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        field["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 40 if panel.stacked else 10,
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": stacking,
        }
    return field


def _stat_options() -> dict[str, Any]:
    reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return {"colorMode": "none", "graphMode": "none", "reduceOptions": reduce, "textMode": "auto"}


def _time_options() -> dict[str, Any]:
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def render(dashboard: Dashboard) -> str:
    """The file."""
    return json.dumps(document(dashboard), indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    wanted = {OUT / f"{each.name}.json": render(each) for each in DASHBOARDS}
    if parser.parse_args().check:
        stale = {
            path for path, text in wanted.items() if not path.exists() or path.read_text() != text
        }
        stale |= set(OUT.glob("*")) - set(wanted)
        for path in sorted(stale):
            shown = path.relative_to(ROOT)
            print(f"out of date: {shown}; run tools/gen_dashboards.py", file=sys.stderr)
        return 1 if stale else 0
    OUT.mkdir(exist_ok=True)
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
