"""The machine of a test node: containers, logs, cgroups, metrics, leftovers."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from kubeletpy.base.api.types import JSON
from tests.integration.node.parts import Parts
from tools.env.cri import RawRuntime
from tools.env.process import run
from tools.env.sweep import cgroups


class MachineSide(Parts):
    """Access through the CRI, files and the agent's ports."""

    def log_lines(self) -> list[str]:
        """The agent's log."""
        return self.agent.log.read_text(errors="replace").splitlines()

    def containers(self, namespace: str, name: str) -> dict[str, Any]:
        """CRI records of a pod's containers by container name (the newest of each)."""
        with RawRuntime(self.containerd.socket) as raw:
            records = sorted(raw.containers(), key=lambda record: record.created_at)
        return {
            record.metadata.name: record
            for record in records
            if record.labels.get("io.kubernetes.pod.name") == name
            and record.labels.get("io.kubernetes.pod.namespace") == namespace
        }

    def sandboxes(self, namespace: str) -> list[Any]:
        """CRI records of the sandboxes of a namespace."""
        with RawRuntime(self.containerd.socket) as raw:
            return [
                record
                for record in raw.sandboxes()
                if record.labels.get("io.kubernetes.pod.namespace") == namespace
            ]

    def container_pid(self, container_id: str) -> int:
        """The process of a container or sandbox, from `containerd://ID` or ID."""
        with RawRuntime(self.containerd.socket) as raw:
            pid = raw.pid(bare_id(container_id))
        if not pid:
            raise LookupError(f"no process of {container_id}")
        return pid

    def descriptors(self) -> int:
        """How many files and sockets the agent has open."""
        return len(list(Path(f"/proc/{self.agent.pid}/fd").iterdir()))

    def created_at(self, container_id: str) -> int:
        """When a container was created, in nanoseconds; a list may have whole seconds only."""
        with RawRuntime(self.containerd.socket) as raw:
            return int(raw.container(bare_id(container_id)).created_at)

    def exec(self, container_id: str, *command: str) -> tuple[int, str]:
        """Run a command in a container by way of the CRI."""
        with RawRuntime(self.containerd.socket) as raw:
            return raw.exec(bare_id(container_id), *command)

    def logs(self, pod: JSON, container: str, attempt: int = 0) -> str:
        """A container's output, from its log: in the CRI's format, or Docker's behind a link."""
        path = self.log_dir(pod) / container / f"{attempt}.log"
        lines = path.read_text().splitlines()
        if path.is_symlink():
            return "".join(json.loads(line)["log"] for line in lines)
        return "".join(line.split(" ", 3)[3] + "\n" for line in lines)

    def log_dir(self, pod: JSON) -> Path:
        """The log directory of a pod."""
        about = pod["metadata"]
        return self.pod_logs / f"{about['namespace']}_{about['name']}_{about['uid']}"

    def http(self, path: str) -> tuple[int, str]:
        """GET from the health port."""
        try:
            url = f"http://127.0.0.1:{self.health_port}{path}"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; 0 when there is none."""
        total = 0.0
        for line in self.http("/metrics")[1].splitlines():
            match = re.fullmatch(rf"{re.escape(name)}(?:\{{(.*)\}})? (\S+)", line)
            desired = [f'{key}="{value}"' for key, value in labels.items()]
            if match and all(label in (match[1] or "") for label in desired):
                total += float(match[2])
        return total

    def leftovers(self) -> list[str]:
        """Traces of pods on the machine; the agent collects them once all pods are deleted."""
        with RawRuntime(self.containerd.socket) as raw:
            left = [f"sandbox {record.metadata.name}" for record in raw.sandboxes()]
            left += [f"container {record.metadata.name}" for record in raw.containers()]
        left += [f"link {path}" for path in self.log_links()]
        for folder in (self.pod_logs, self.root_dir / "pods"):
            left += [f"directory {path}" for path in (folder.iterdir() if folder.exists() else [])]
        left += [f"cgroup {path}" for path in self.pod_cgroups()]
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return left + [f"mount {line}" for line in lines if f" {self.root_dir}/" in line]

    def pod_cgroups(self) -> list[Path]:
        """The cgroups of pods below this node's cgroupRoot, in every hierarchy."""
        kubepods = f"{self.cgroup_root}/kubepods"
        groups = cgroups([kubepods, f"{kubepods}/burstable", f"{kubepods}/besteffort"])
        return [pod for group in groups for pod in group.glob("pod*")]

    def log_links(self) -> list[Path]:
        """The links in /var/log/containers that lead to logs of this node."""
        return links_into(self.pod_logs)


def bare_id(container_id: str) -> str:
    """The runtime's id in a status's containerID, such as `containerd://ID`."""
    return container_id.rpartition("/")[2]


def links_into(folder: Path) -> list[Path]:
    """The links in /var/log/containers that lead below a folder; other nodes' come and go."""
    found = []
    for path in Path("/var/log/containers").glob("*.log"):
        with contextlib.suppress(OSError):
            if path.readlink().is_relative_to(folder):
                found.append(path)
    return found


def program(*command: str | Path) -> str:
    """Run a program of the machine and return its output."""
    return run(*command)
