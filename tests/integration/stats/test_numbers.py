"""Usage in the node's reports, compared with the kernel's numbers of the same moment."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import datetime

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tests.integration.node.seen import container_status
from tests.integration.stats import reading
from tools.env import kernel_limits

BURN = "while :; do :; done"
HOLD = "dd if=/dev/zero of=/dev/shm/held bs=1M count=48 2>/dev/null; " + FOREVER
FILES = "dd if=/dev/zero of=/work/file bs=1M count=8 2>/dev/null; echo said; "
HELD = 48 << 20
FOLDER = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
LIMITS = {"resources": {"limits": {"cpu": "500m", "memory": "128Mi"}}}

USAGE = ("cpu.time", "cpu.usageCoreNanoSeconds", "memory.time", "memory.usageBytes")
MEMORY = ("workingSetBytes", "rssBytes", "pageFaults", "majorPageFaults")
FS = ("time", "availableBytes", "capacityBytes", "usedBytes", "inodesFree", "inodes", "inodesUsed")
INTERFACE = ("name", "rxBytes", "rxErrors", "txBytes", "txErrors")


@pytest.fixture
def busy(node: Node, namespace: str) -> JSON:
    """A pod with one container that burns cpu and one that holds memory and files."""
    node.apply(
        pod(
            "busy",
            container("burns", BURN, **LIMITS),
            container("holds", FILES + HOLD, **FOLDER, **LIMITS),
            volumes=[{"name": "work", "emptyDir": {}}],
        ),
        namespace=namespace,
    )
    node.wait_running(namespace, "busy")
    found = node.pod(namespace, "busy")
    path = reading.group(
        node, found["metadata"]["uid"], container_status(found, "holds")["containerID"]
    )
    node.until(lambda: kernel_limits.working_set(path) > HELD, "memory is held", namespace, "busy")
    return found


def test_usage_beside_the_kernels_own(node: Node, namespace: str, busy: JSON) -> None:
    uid = busy["metadata"]["uid"]
    paths = {
        name: reading.group(node, uid, container_status(busy, name)["containerID"])
        for name in ("burns", "holds")
    }
    started = whole_second(container_status(busy, "burns")["state"]["running"]["startedAt"])
    groups = {"burns": paths["burns"], "busy": paths["burns"].rpartition("/")[0]}
    begins = {"burns": started, "busy": whole_second(busy["status"]["startTime"])}
    least = {name: reading.cpu_seconds(path) for name, path in groups.items()}
    asked = time.time()
    before = reading.pod_of(reading.summary(node), namespace, "busy")
    answered = time.time()
    most = {name: reading.cpu_seconds(path) for name, path in groups.items()}
    kept = kernel_limits.working_set(paths["holds"])
    reported = {each["name"]: each for each in before["containers"]}
    assert reported["holds"]["memory"]["workingSetBytes"] == pytest.approx(kept, rel=0.05)
    for name, each in (("burns", reported["burns"]), ("busy", before)):
        used = each["cpu"]["usageCoreNanoSeconds"] / 1e9
        assert least[name] <= used <= most[name], "read between the two of the test"
        # the first rate is that since the start, whose time is known to the second
        rate = each["cpu"]["usageNanoCores"] / 1e9
        assert (
            least[name] / (answered - begins[name])
            <= rate
            <= most[name] / max(asked - started - 1, 0.1)
        )
    assert before["memory"]["workingSetBytes"] >= reported["holds"]["memory"]["workingSetBytes"]
    limit = (
        reported["holds"]["memory"]["availableBytes"]
        + reported["holds"]["memory"]["workingSetBytes"]
    )
    assert limit == 128 << 20

    labels = {"namespace": namespace, "pod": "busy"}
    for path, burns, holds in (
        ("/metrics/cadvisor", {"container": "burns", "cpu": "total"}, {"container": "holds"}),
        ("/metrics/resource", {"container": "burns"}, {"container": "holds"}),
    ):
        low = reading.cpu_seconds(paths["burns"])
        text = reading.raw(node, path)
        high = reading.cpu_seconds(paths["burns"])
        counted = reading.value(text, "container_cpu_usage_seconds_total", **labels, **burns)
        assert low - 0.6 <= counted <= high, path
        held = reading.value(text, "container_memory_working_set_bytes", **labels, **holds)
        assert held == pytest.approx(kernel_limits.working_set(paths["holds"]), rel=0.05), path
    time.sleep(1.1)  # shorter and it would be the same answer
    low = reading.throttled_periods(paths["burns"])
    text = reading.raw(node, "/metrics/cadvisor")
    throttled = "container_cpu_cfs_throttled_periods_total"
    counted = reading.value(text, throttled, container="burns", **labels)
    assert low <= counted <= reading.throttled_periods(paths["burns"])


def whole_second(text: str) -> float:
    """A time of the API in Unix seconds: what it stands for is less than a second later."""
    return datetime.fromisoformat(text).timestamp()


def test_the_summary_has_every_field_of_this_machine(
    node: Node, namespace: str, busy: JSON
) -> None:
    document = reading.summary(node)
    document["pods"] = [reading.pod_of(document, namespace, "busy")]
    whole = [
        *(f"{at}.{name}" for at in ("node", "pods[]", "pods[].containers[]") for name in USAGE),
        *(f"pods[].memory.{name}" for name in MEMORY),
        *(f"node.memory.{name}" for name in (*MEMORY, "availableBytes")),
        *(f"pods[].containers[].memory.{name}" for name in (*MEMORY, "availableBytes")),
        *(f"{at}.cpu.usageNanoCores" for at in ("node", "pods[]", "pods[].containers[]")),
        *(f"pods[].volume[].{name}" for name in (*FS, "name")),
        *(f"pods[].containers[].{at}.{name}" for at in ("rootfs", "logs") for name in FS),
        *(
            f"node.{at}.{name}"
            for at in ("fs", "runtime.imageFs", "runtime.containerFs")
            for name in FS
        ),
        *(f"pods[].ephemeral-storage.{name}" for name in FS),
        *(f"{at}.network.{name}" for at in ("pods[]", "node") for name in INTERFACE),
        *(f"pods[].network.interfaces[].{name}" for name in INTERFACE),
        *(f"{at}.swap.swapUsageBytes" for at in ("node", "pods[]", "pods[].containers[]")),
        *(f"node.rlimit.{name}" for name in ("time", "maxpid", "curproc")),
        *("node.nodeName", "node.startTime", "pods[].startTime", "pods[].containers[].startTime"),
        *("pods[].podRef.uid", "pods[].process_stats.process_count", "pods[].network.time"),
        *(
            f"node.systemContainers[].{name}"
            for name in ("name", "startTime", "cpu.usageNanoCores", *USAGE)
        ),
    ]
    assert reading.missing(document, whole) == []
    names = {each["name"] for each in document["node"]["systemContainers"]}
    assert {"kubelet", "runtime", "pods"} <= names
    (reported,) = document["pods"]
    (volume,) = [each for each in reported["volume"] if each["name"] == "work"]
    assert 8 << 20 <= volume["usedBytes"] < 9 << 20
    assert reported["ephemeral-storage"]["usedBytes"] >= volume["usedBytes"]
    assert reported["network"]["name"] == "eth0"
    assert reported["process_stats"]["process_count"] >= 3

    short = reading.summary(node, "?only_cpu_and_memory=true")
    assert set(short["node"]) == {
        "nodeName",
        "systemContainers",
        "startTime",
        "cpu",
        "memory",
        "swap",
    }
    short_pod = reading.pod_of(short, namespace, "busy")
    assert set(short_pod) == {"podRef", "startTime", "containers", "cpu", "memory", "swap"}
    for each in short_pod["containers"]:
        assert set(each) == {"name", "startTime", "cpu", "memory", "swap"}


def test_the_scrape_has_the_labels_of_cadvisor(node: Node, namespace: str, busy: JSON) -> None:
    text = reading.raw(node, "/metrics/cadvisor")
    found = reading.samples(text)
    of_pod = {"namespace": namespace, "pod": "busy"}
    for labels in (labels for name, labels in found if name == "container_memory_rss"):
        assert {name for name, _ in labels} == {
            "container",
            "id",
            "image",
            "name",
            "namespace",
            "pod",
        }
    received = reading.value(
        text, "container_network_receive_bytes_total", interface="eth0", container="", **of_pod
    )
    assert received >= 0
    assert reading.value(text, "container_spec_cpu_quota", container="burns", **of_pod) == 50_000
    limit = "container_spec_memory_limit_bytes"
    assert reading.value(text, limit, container="holds", **of_pod) == 128 << 20
    assert reading.value(text, "container_fs_usage_bytes", container="holds", **of_pod) >= 0
    assert reading.value(text, "machine_cpu_cores") >= 1
    assert reading.value(text, "container_scrape_error") == 0
    assert reading.value(text, "container_memory_usage_bytes", id="/") > 0
    kubepods = f"{node.cgroup_root}/kubepods"
    assert reading.value(text, "container_memory_usage_bytes", id=kubepods) > HELD
    slis = reading.raw(node, "/metrics/slis")
    assert reading.value(slis, "kubernetes_healthcheck", name="syncloop", type="healthz") == 1
    runs = "kubernetes_healthchecks_total"
    assert reading.value(slis, runs, name="ping", status="success", type="healthz") >= 1
    assert 'kubelet_metrics_provider{provider="cadvisor"} 1' in reading.raw(node, "/metrics")


@pytest.mark.parametrize("version", ["old", "new"], ids=["kubectl-old", "kubectl-new"])
def test_kubectl_top(node: Node, namespace: str, busy: JSON, version: str) -> None:
    def top(*arguments: str) -> str:
        return node.kubectl("top", "pod", *arguments, namespace=namespace, version=version)

    _, line = top().splitlines()
    reported, cpu, memory = line.split()
    assert reported == "busy"
    # since its start, perhaps a moment ago: a limit of CPU is one for each tenth of a second
    assert 0 < int(cpu.removesuffix("m")) <= 1000 * (os.cpu_count() or 1)
    assert HELD >> 20 <= int(memory.removesuffix("Mi")) <= 100
    nodes = node.kubectl("top", "node", version=version).splitlines()
    assert re.match(r"NAME +CPU\(cores\) +CPU", nodes[0])
    name, cpu, _, memory, share = nodes[1].split()
    assert name == node.name
    assert int(cpu.removesuffix("m")) > 0
    assert int(memory.removesuffix("Mi")) > HELD >> 20
    assert share.endswith("%")
    lines = top("busy", "--containers").splitlines()[1:]
    by_name = {line.split()[1]: line.split() for line in lines}
    assert set(by_name) == {"burns", "holds"}
    burnt, held = (int(by_name[each][2].removesuffix("m")) for each in ("burns", "holds"))
    assert held < burnt
    node.kubectl("label", "pod", "busy", "kind=busy", "--overwrite", namespace=namespace)
    assert "busy" in top("-l", "kind=busy")
    everywhere = node.kubectl("top", "pod", "-A", version=version)
    assert re.search(rf"^{namespace} +busy ", everywhere, re.MULTILINE)
    one = json.loads(
        node.kubectl(
            "get", "--raw", f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/busy"
        )
    )
    assert one["kind"] == "PodMetrics"
    assert re.fullmatch(r"\d+\.\d{3}s", one["window"])
