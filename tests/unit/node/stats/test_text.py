"""The metrics endpoints, read by Prometheus' own parser."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kubeletpy.base.structs import replace
from kubeletpy.node.stats import cadvisor, scrapes
from kubeletpy.node.stats.cadvisor import FAMILIES
from kubeletpy.node.stats.scrapes import Scrape, labels
from kubeletpy.node.stats.usage import Disks, PodDisk, PodRef, Reading, TreeUse
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.stats import NOW, SECOND, container, machine_info, pod, reading, stats

MACHINE = machine_info(2, 1, 1, 4096, 0)
NAMES = {"container", "id", "image", "name", "namespace", "pod"}
MAIN = {"container": "main", "namespace": "shop", "pod": "web"}


def families(body: bytes) -> dict[str, tuple[str, dict[frozenset[tuple[str, str]], float]]]:
    """Sample name -> (type, labels -> value)."""
    found: dict[str, tuple[str, dict[frozenset[tuple[str, str]], float]]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            # the parser calls every counter ..._total, which this one of cAdvisor's is not
            name = sample.name.replace("_failcnt_total", "_failcnt")
            _, values = found.setdefault(name, (family.type, {}))
            key = frozenset(sample.labels.items())
            assert key not in values, (sample.name, sample.labels)
            values[key] = sample.value
    return found


def one(body: bytes, name: str, /, **desired: str) -> float:
    values = families(body)[name][1]
    (found,) = [v for key, v in values.items() if set(desired.items()) <= key]
    return found


def cadvisor_of(supplied: Reading) -> bytes:
    return cadvisor.render(supplied, MACHINE, {(254, 0): "/dev/vda"})


def test_every_family_is_there_with_its_type() -> None:
    found = families(cadvisor_of(reading(pod())))
    named = {name for name in FAMILIES if not name.endswith("reservation_limit_bytes")}
    assert named - set(found) == set()
    for name, (kind, _) in found.items():
        assert kind == FAMILIES[name][0], name


def test_every_series_of_a_container_has_the_same_labels() -> None:
    for name, (_, values) in families(cadvisor_of(reading(pod()))).items():
        if name.startswith("container_") and name != "container_scrape_error":
            shapes = {frozenset(label for label, _ in key) for key in values}
            assert len(shapes) == 1, name
            assert next(iter(shapes)) >= NAMES, name


@pytest.mark.parametrize(
    ("name", "more", "value"),
    [
        ("container_cpu_usage_seconds_total", {"cpu": "total"}, 4.0),
        ("container_cpu_user_seconds_total", {}, 3.0),
        ("container_cpu_cfs_throttled_seconds_total", {}, 0.5),
        ("container_cpu_cfs_periods_total", {}, 10),
        ("container_memory_working_set_bytes", {}, 700),
        ("container_memory_failures_total", {"failure_type": "pgfault", "scope": "hierarchy"}, 60),
        ("container_memory_failures_total", {"failure_type": "pgfault", "scope": "container"}, 50),
        ("container_spec_memory_limit_bytes", {}, 1024),
        ("container_spec_memory_swap_limit_bytes", {}, 1040),
        ("container_spec_cpu_quota", {}, 50_000),
        ("container_fs_usage_bytes", {"device": "/dev/vda"}, 70),
        ("container_fs_writes_bytes_total", {"device": "/dev/vda"}, 20),
        ("container_pressure_cpu_waiting_seconds_total", {}, 5.0),
        ("container_pressure_io_stalled_seconds_total", {}, 2.0),
        ("container_processes", {}, 2),
        ("container_file_descriptors", {}, 11),
        ("container_start_time_seconds", {}, 1_699_999_992),
    ],
)
def test_values_of_a_container(name: str, more: dict[str, str], value: float) -> None:
    assert one(cadvisor_of(reading(pod())), name, **MAIN, **more) == value


def test_a_container_has_no_inodes_of_its_own_to_run_out_of() -> None:
    """Disk series are shown once, for the machine, as in the kubelet."""
    for name in ("container_fs_inodes_free", "container_fs_inodes_total"):
        (key,) = families(cadvisor_of(reading(pod())))[name][1]
        assert ("id", "/") in key


def test_the_network_is_the_sandboxes() -> None:
    body = cadvisor_of(reading(pod()))
    found = {"name": "sb", "container": "", "interface": "eth0", "pod": "web"}
    assert one(body, "container_network_receive_bytes_total", **found) == 1
    assert one(body, "container_network_receive_errors_total", **found) == 2
    assert one(body, "container_network_transmit_packets_dropped_total", **found) == 8


def test_a_container_without_a_quota_has_no_throttling_series() -> None:
    free = pod(containers=(container(stats=stats(quota_us=None, limit=None, swap_limit=None)),))
    body = cadvisor_of(reading(free))
    values = families(body)["container_cpu_cfs_periods_total"][1]
    assert not any(("container", "main") in key for key in values)
    assert one(body, "container_spec_memory_limit_bytes", **MAIN) == 0
    assert one(body, "container_spec_memory_swap_limit_bytes", **MAIN) == 0


def test_a_pod_without_cgroup_and_a_runtime_that_failed() -> None:
    lone = pod(group=replace(pod().group, path="", stats=None))
    body = cadvisor_of(reading(lone, problem="down"))
    assert one(body, "container_scrape_error") == 1
    found = one(body, "container_memory_working_set_bytes", pod="web", id="", name="")
    assert found == 700


def test_daemons_in_one_cgroup_are_one_series() -> None:
    supplied = reading()
    daemon = supplied.node.system[0]
    both = replace(supplied.node, system=(daemon, replace(daemon, name="runtime")))
    body = cadvisor_of(replace(supplied, node=both))
    assert one(body, "container_memory_rss", id=daemon.path) == 500


def test_resource_metrics() -> None:
    body = scrapes.render_resource_metrics(reading(pod()))
    assert one(body, "container_cpu_usage_seconds_total", **MAIN) == 4.0
    assert one(body, "container_swap_limit_bytes", **MAIN) == 16
    assert one(body, "container_swap_usage_bytes", **MAIN) == 8
    assert one(body, "container_start_time_seconds", **MAIN) == 1_699_999_992
    assert one(body, "pod_cpu_usage_seconds_total", pod="web", namespace="shop") == 6.0
    assert one(body, "pod_swap_usage_bytes", pod="web") == 8
    assert one(body, "node_swap_usage_bytes") == 8
    assert one(body, "node_memory_working_set_bytes") == 700
    assert one(body, "resource_scrape_error") == 0
    assert f" {NOW // 1_000_000}\n" in body.decode(), "samples carry the time of the reading"
    failed = scrapes.render_resource_metrics(reading(problem="down"))
    assert one(failed, "resource_scrape_error") == 1
    for name, (kind, _) in families(body).items():
        assert kind == scrapes.RESOURCE_FAMILIES[name][0]


@pytest.mark.parametrize(
    ("text", "escaped"), [("a", "a"), ("\\", "\\\\"), ("\n", "\\n"), ('"', '\\"')]
)
def test_escaping_of_label_values(text: str, escaped: str) -> None:
    assert labels({"l": text}) == f'l="{escaped}"'


def test_hostile_texts_stay_inside_their_quotes() -> None:
    scrape = Scrape({"m": ("gauge", "text")})
    evil = 'a"} 1\nother{x="\\'
    scrape.add("m", labels({"l": evil}), 1)
    assert families(scrape.render()) == {"m": ("gauge", {frozenset({("l", evil)}): 1.0})}


def metric(name: str, *values: str, number: int = 7, at: int = 0) -> cri.Metric:
    return cri.Metric(
        name=name,
        timestamp=at,
        metric_type=cri.COUNTER,
        label_values=values,
        value=cri.UInt64Value(value=number),
    )


def test_metrics_of_the_runtime_itself() -> None:
    descriptors = [
        cri.MetricDescriptor(name="container_x_total", help="x\ny", label_keys=["id", "cpu"]),
        cri.MetricDescriptor(name="bad name", help="", label_keys=[]),
    ]
    one_pod = cri.PodSandboxMetrics(
        pod_sandbox_id="sb",
        metrics=[metric("container_x_total", "sb", "0"), metric("bad name"), metric("unknown")],
        container_metrics=[
            cri.ContainerMetrics(
                container_id="c",
                metrics=[
                    metric("container_x_total", "c", "1", number=9, at=5 * SECOND),
                    metric("container_x_total", "too few"),
                ],
            )
        ],
    )
    body = scrapes.render_cri_metrics(descriptors, [one_pod])
    assert families(body) == {
        "container_x_total": (
            "counter",
            {
                frozenset({("id", "sb"), ("cpu", "0")}): 7.0,
                frozenset({("id", "c"), ("cpu", "1")}): 9.0,
            },
        )
    }
    assert b'{id="c",cpu="1"} 9 5000\n' in body


def test_fractions_replace_the_whole_number_of_a_metric() -> None:
    """Source: the CRI of 1.38.0-beta.0, Metric.double_value: runtimes set both."""
    pressure = metric("pressure_total", number=0)
    pressure.double_value.value = 0.25
    descriptor = cri.MetricDescriptor(name="pressure_total")
    body = scrapes.render_cri_metrics([descriptor], [cri.PodSandboxMetrics(metrics=[pressure])])
    assert families(body) == {"pressure_total": ("counter", {frozenset(): 0.25})}


def test_log_usage_of_known_pods() -> None:
    disks = Disks(
        pods={
            "u": PodDisk((), {"c": TreeUse(1, 70, 1)}, ()),
            "gone": PodDisk((), {"c": TreeUse(1, 90, 1)}, ()),
        }
    )
    text = scrapes.render_log_metrics(disks, {"u": PodRef("u", "web", "shop")}).decode()
    name = "kubelet_container_log_filesystem_used_bytes"
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        f'{name}{{container="c",namespace="shop",pod="web",uid="u"}} 70'
    ]
