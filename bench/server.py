"""The API server of a stand: the embedded one, a control plane of a release, or any other."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.api import READY
from tools.control_plane.building import programs
from tools.control_plane.plane import ControlPlane
from tools.env.kubectl import kubectl
from tools.env.process import Daemon
from tools.env.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
_REQUESTS = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>[0-9.e+]+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The API server of a stand.

    Attributes:
        admin: the kubeconfig that the bench creates and deletes pods with.
        node: the agent's kubeconfig.
        process: the server, None where it is not ours.
        counts: its metrics count requests by verb and resource, as those of kube-apiserver do.
    """

    admin: Path
    node: Path
    process: Daemon | None
    counts: bool

    def requests(self) -> Counter[str]:
        """The requests of all clients until now, such as "PATCH pods/status"; empty if unknown."""
        if not self.counts:
            return Counter()
        return requests_of(kubectl("new").run(self.admin, "get", "--raw", "/metrics"))


def requests_of(metrics: str) -> Counter[str]:
    """The requests in kube-apiserver's metrics, but for watches and discovery."""
    found: Counter[str] = Counter()
    for line in metrics.splitlines():
        if (match := _REQUESTS.match(line)) is None:
            continue
        labels = dict(_LABEL.findall(match["labels"]))
        resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
        if labels["version"] and labels["verb"] != "WATCH":  # discovery has no version
            found[f"{labels['verb']} {resource}"] += round(float(match["count"]))
    return found


@contextmanager
def embedded(directory: Path, node: str) -> Iterator[ApiServer]:
    """The embedded API as a process with its data in ``directory``, and a node's kubeconfig."""
    process = Daemon("api", directory.parent)
    process.start([sys.executable, "-m", "bench.api", directory, node], environment())
    try:
        wait_until((directory / READY).exists, "the API", give_up=process.died)
        yield ApiServer(
            directory / "admin.kubeconfig", directory / "node.kubeconfig", process, counts=False
        )
    finally:
        process.stop()


@contextmanager
def of_release(release: str, directory: Path, node: str) -> Iterator[ApiServer]:
    """A control plane of a Kubernetes release ("1.37.2"), and a node's kubeconfig.

    Its programs are built first, which takes minutes once. Raises CommandError or
    NotReadyError: they cannot be built, or do not become ready.
    """
    plane = ControlPlane(directory, programs(release))
    try:
        plane.start()
        kubeconfig = plane.node_kubeconfig(node)
        yield ApiServer(plane.admin, kubeconfig, plane.api_server, counts=True)
    finally:
        plane.stop()


def existing(kubeconfig: Path) -> ApiServer:
    """Any control plane, of which the bench and the agent use the same kubeconfig."""
    return ApiServer(kubeconfig, kubeconfig, None, counts=True)


def environment() -> dict[str, str]:
    """The environment of programs of this checkout."""
    paths = [str(ROOT), str(ROOT / "up"), *filter(None, [os.environ.get("PYTHONPATH")])]
    # an installed agent has its bytecode; recompiling all modules doubles the startup time
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}
