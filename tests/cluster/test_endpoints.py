"""The servers of a Go kubelet and of the agent show the same, on one node, one after the other.

Every family of /metrics, /metrics/cadvisor, /metrics/resource, /metrics/probes and /metrics/slis
that the kubelet shows is compared by type and names of labels, and every field of /stats/summary.
The fact tables list what may differ. Collected where a Go kubelet is built, as test_preflight.py.
"""

from __future__ import annotations

import fnmatch
import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.node.stats.cadvisor import FAMILIES
from tests.cluster.conftest import built_kubelet
from tests.cluster.kubelet_node import FOREVER, KubeletNode, kubelet_node_of
from tools.control_plane.plane import ControlPlane
from tools.env.kernel_limits import VERSION
from tools.rulebook.differences import allowed, listed
from tools.rulebook.tables import rows

pytestmark = pytest.mark.timeout(400)

SCRAPES = ("", "/cadvisor", "/resource", "/probes", "/slis")
LABEL = re.compile(r'(\w+)="')
PROBE = {"exec": {"command": ["true"]}, "periodSeconds": 1}


@dataclass(frozen=True)
class Shown:
    """A node's metrics: the families of each scrape as type and label names, and a document."""

    families: dict[str, dict[str, tuple[str, frozenset[str]]]]
    fields: frozenset[str]


@pytest.fixture
def kubelet_node(
    short_dir: Path, plane: ControlPlane, request: pytest.FixtureRequest
) -> Iterator[KubeletNode]:
    with kubelet_node_of(short_dir / "e", plane, built_kubelet(request.config)) as made:
        yield made


def read(node: KubeletNode, name: str) -> Shown:
    """Read everything, once a new pod is in all of it."""
    mounts = {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    container: JSON = {**mounts, "resources": {"limits": {"cpu": "100m", "memory": "32Mi"}}}
    container |= {"livenessProbe": PROBE, "readinessProbe": PROBE, "startupProbe": PROBE}
    node.apply(node.pod(name, FOREVER, container, volumes=[{"name": "data", "emptyDir": {}}]))
    node.wait_ready(name)

    def get(path: str) -> str:
        return node.kubectl("get", "--raw", f"/api/v1/nodes/{node.name}/proxy{path}")

    def complete() -> bool:
        pods: list[JSON] = json.loads(get("/stats/summary"))["pods"]
        measured = [each for each in pods if each["podRef"]["name"] == name and each.get("volume")]
        return bool(
            measured
            and "usageNanoCores" in measured[0]["containers"][0].get("cpu", {})
            and f'pod="{name}"' in get("/metrics/cadvisor")
            and f'pod="{name}"' in get("/metrics/probes")
        )

    node.until(complete, "the pod is measured")
    write = "dd", "if=/dev/zero", "of=/data/written", "bs=64k", "count=4", "conv=fsync"
    node.kubectl("exec", name, "--", *write)
    node.kubectl("logs", name)
    scrapes = {f"/metrics{each}": families(get(f"/metrics{each}")) for each in SCRAPES}
    return Shown(scrapes, frozenset(fields(json.loads(get("/stats/summary")))))


def families(scrape: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Name -> type and names of labels, of all its samples."""
    found: dict[str, tuple[str, frozenset[str]]] = {}
    name = ""
    for line in scrape.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            found[name] = kind, frozenset()
        elif not line.startswith("#"):
            labels = frozenset(LABEL.findall(line)) - {"le", "quantile"}
            found[name] = found[name][0], found[name][1] | labels
    return found


def fields(value: object, path: str = "") -> Iterator[str]:
    """The paths of all fields in a document."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from fields(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for item in value:
            yield from fields(item, f"{path}[]")
    else:
        yield path


def is_known(endpoint: str, name: str) -> bool:
    """Whether the agent can show a family, or a table states why not.

    It may have no sample yet: nothing failed, or the machine does not count it. The unit tests hold
    that each row of metrics.csv is served, or explained.
    """
    if endpoint != "/metrics/cadvisor":
        known = name in {row["name"] for row in rows("metrics.csv")}
        return known or allowed("metrics.csv", name) or name.startswith(("go_", "process_"))
    texts = [each.here for each in listed("server.csv") if each.row == endpoint]
    absent = {word for text in texts for word in re.findall(r"[a-z]+_[a-z0-9_*]+", text)}
    return name in FAMILIES or any(fnmatch.fnmatch(name, each) for each in absent)


def of_version_2(path: str) -> bool:
    """Whether a field of the summary is that of cgroup v2, where the kubelet shows 0 on v1."""
    return ".psi." in path or path.endswith(".io.time")


def test_both_show_the_same(kubelet_node: KubeletNode, request: pytest.FixtureRequest) -> None:
    node = kubelet_node
    kubelet = read(node, "first")
    node.agent.kill(signal.SIGTERM)
    node.start()
    agent = read(node, "second")

    problems = []
    for endpoint, theirs in kubelet.families.items():
        ours = agent.families[endpoint]
        for name in sorted(theirs.keys() ^ ours.keys()):
            if not is_known(endpoint, name):
                side = "kubelet" if name in theirs else "agent"
                problems.append(f"{endpoint}: {name} is only the {side}'s")
        for name in sorted(theirs.keys() & ours.keys()):
            (kind, labels), (our_kind, our_labels) = theirs[name], ours[name]
            if kind != our_kind or (labels and our_labels and labels != our_labels):
                problems.append(f"{endpoint}: {name} is {ours[name]}, the kubelet's {theirs[name]}")
    problems += [
        f"/stats/summary: the agent has no {path}"
        for path in sorted(kubelet.fields - agent.fields)
        if not allowed("server.csv", path, "not filled")
        and not (VERSION == 1 and of_version_2(path))
    ]
    assert not problems, "\n".join(problems)
