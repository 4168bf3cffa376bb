"""A whole node for tests: embedded API, real agent process, real containerd, real kubectl."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubeletpy.api.types import JSON
from tests.integration.node.api import ApiServer
from tools.env.containerd import Containerd
from tools.env.cri import RawRuntime
from tools.env.kubectl import Kubectl
from tools.env.process import Daemon, run
from tools.env.registry import free_port
from tools.env.sweep import cgroups, remove_cgroup
from tools.env.waiting import NotReadyError, wait_until

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT = 40.0


class Node:
    """One node; `directory` holds all of it and must be short (sockets).

    Attributes:
        api: the embedded API, on a thread of this process.
        agent: the process `kubeletpy run`.
        containerd: what it runs on.
    """

    def __init__(
        self,
        directory: Path,
        containerd: Containerd,
        kubectls: dict[str, Kubectl],
        name: str = "test-node",
        config: JSON | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.name = name
        self.containerd = containerd
        self.api = ApiServer(directory / "api", name)
        self.agent = Daemon("agent", directory)
        self.pod_logs = directory / "pod-logs"
        self.root_dir = directory / "kubelet"
        self.manifests = directory / "manifests"
        self.health_port = free_port()
        self.port = free_port()
        self.cgroup_root = f"/kpt-{os.getpid()}-{os.urandom(3).hex()}"
        self._kubectls = kubectls
        self._config = config or {}

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the API and the agent, and wait until the node is Ready."""
        self.api.start()
        self.start_agent()
        self.wait_ready()

    def start_agent(self, *flags: str) -> None:
        """Start the agent process (returns at once)."""
        self.manifests.mkdir(exist_ok=True)
        file = self.directory / "config.json"
        file.write_text(json.dumps(self.config()))
        command = [sys.executable, "-m", "kubeletpy.cli.main", "run"]
        command += [f"--kubeconfig={self.api.endpoint.node_kubeconfig}", f"--config={file}"]
        command += [f"--root-dir={self.root_dir}", f"--hostname-override={self.name}", *flags]
        self.agent.start(command, env={**os.environ, "PYTHONPATH": str(ROOT)})

    def config(self) -> JSON:
        """The KubeletConfiguration of the agent."""
        pki = self.directory / "api" / "pki"
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": self.containerd.endpoint,
            "podLogsDir": str(self.pod_logs),
            "staticPodPath": str(self.manifests),
            "fileCheckFrequency": "1s",
            "healthzPort": self.health_port,
            "port": self.port,
            "authentication": {"x509": {"clientCAFile": str(pki / "ca.crt")}},
            "tlsCertFile": str(pki / "kubelet-server.crt"),
            "tlsPrivateKeyFile": str(pki / "kubelet-server.key"),
            "failSwapOn": False,
            "failCgroupV1": False,
            "registryPullQPS": 0,
            "cgroupRoot": self.cgroup_root,
            **self._config,
        }

    def wait_ready(self, timeout: float = TIMEOUT) -> None:
        """Wait until the API says that the node is Ready."""
        self.wait_condition("Ready", "True", timeout)

    def wait_condition(self, kind: str, status: str, timeout: float = TIMEOUT) -> JSON:
        """Wait for a condition of the node object; returns the condition."""

        def reached() -> JSON | None:
            condition = self.condition(kind)
            if condition.get("status") != status:
                raise OSError(f"{kind} is {condition}")
            return condition

        found = wait_until(
            reached, f"node {kind}={status}", timeout=timeout, give_up=self.agent.died
        )
        assert found is not None
        return found

    def condition(self, kind: str) -> JSON:
        """A condition of the node object; empty when it has none yet."""
        node = self.api.find("nodes", "", self.name) or {}
        conditions = (node.get("status") or {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == kind), {})

    def kill(self) -> None:
        """kill -9 the agent."""
        self.agent.kill(signal.SIGKILL)

    def terminate(self, number: int = signal.SIGTERM) -> float:
        """Ask the agent to stop; returns how many seconds it took."""
        began = time.monotonic()
        self.agent.kill(number)
        return time.monotonic() - began

    def remove(self) -> list[str]:
        """End everything; returns what the agent left on the machine that it should not have."""
        self.containerd.resume()
        self.containerd.start()
        left: list[str] = []
        if self.agent.pid is not None:
            with contextlib.suppress(NotReadyError):
                wait_until(lambda: not self.leftovers(), "nothing left of the pods", timeout=20)
            left = self.leftovers()
            left += self.agent.log_tail(20).splitlines() if left else []
            self.agent.kill(signal.SIGKILL)
        self.api.close()
        with RawRuntime(self.containerd.socket) as raw:
            raw.remove_all()
        for link in self.log_links():
            link.unlink()
        left += [f"cgroup {path}" for path in remove_cgroup(self.cgroup_root, kill=True)]
        return left

    def leftovers(self) -> list[str]:
        """What is on the machine of pods, when all pods are deleted: the agent collects it."""
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

    # -- the user's side ---------------------------------------------------------------------

    def kubectl(
        self,
        *arguments: str | Path,
        namespace: str = "",
        version: str = "new",
        timeout: float = 60.0,
    ) -> str:
        """Run kubectl as the administrator. Raises CommandError with what it said."""
        where = ("--namespace", namespace) if namespace else ()
        kubeconfig = self.api.endpoint.admin_kubeconfig
        return self._kubectls[version].run(kubeconfig, *where, *arguments, timeout=timeout)

    def kubectl_program(self, version: str = "new") -> tuple[Path, dict[str, str]]:
        """kubectl and its environment, for a process that a test watches."""
        tool = self._kubectls[version]
        return tool.program, tool.environment(self.api.endpoint.admin_kubeconfig)

    def apply(self, *objects: JSON, namespace: str, version: str = "new") -> str:
        """`kubectl apply -f` of objects."""
        file = self.directory / f"apply-{os.urandom(4).hex()}.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
        try:
            return self.kubectl("apply", "-f", file, namespace=namespace, version=version)
        finally:
            file.unlink()

    def pod(self, namespace: str, name: str) -> JSON:
        """A pod as it is stored; empty when there is none."""
        return self.api.find("pods", namespace, name) or {}

    def wait_pod(
        self,
        namespace: str,
        name: str,
        check: Callable[[JSON], Any],
        what: str,
        timeout: float = TIMEOUT,
    ) -> JSON:
        """Wait until a stored pod ({} when there is none) passes a check; returns the pod.

        The failure shows the pod's status, its events and the end of the agent's log.
        """

        def passes() -> tuple[JSON] | None:
            pod = self.pod(namespace, name)
            return (pod,) if check(pod) else None

        passed: tuple[JSON] = self.until(
            passes, f"pod {namespace}/{name} {what}", namespace, name, timeout=timeout
        )
        return passed[0]

    def until(
        self,
        check: Callable[[], Any],
        what: str,
        namespace: str = "",
        name: str = "",
        *,
        timeout: float = TIMEOUT,
    ) -> Any:
        """`wait_until` whose failure tells what the node knows."""
        try:
            return wait_until(check, what, timeout=timeout, interval=0.03)
        except NotReadyError as error:
            raise NotReadyError(f"{error}\n{self.story(namespace, name)}") from error

    def wait_running(self, namespace: str, name: str, timeout: float = TIMEOUT) -> JSON:
        """Wait until a pod is Ready."""
        return self.wait_pod(namespace, name, is_ready, "Ready", timeout)

    def wait_gone(self, namespace: str, name: str, timeout: float = TIMEOUT) -> None:
        """Wait until the API has no such pod."""
        self.wait_pod(namespace, name, lambda pod: not pod, "gone", timeout)

    def wait_phase(self, namespace: str, name: str, phase: str, timeout: float = TIMEOUT) -> JSON:
        """Wait for a phase."""
        return self.wait_pod(
            namespace, name, lambda pod: status(pod).get("phase") == phase, phase, timeout
        )

    def wait_waiting(self, namespace: str, name: str, reason: str, container: str = "") -> JSON:
        """Wait until a container waits for a reason; returns its status."""

        def waits(pod: JSON) -> bool:
            return waiting(container_status(pod, container)).get("reason") == reason

        return container_status(
            self.wait_pod(namespace, name, waits, f"waiting with {reason}"), container
        )

    def events(self, namespace: str, name: str = "") -> list[str]:
        """Events as "Reason: message", oldest first."""
        found = [
            event
            for event in self.api.all("events", namespace)
            if not name or event["involvedObject"].get("name") == name
        ]
        found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [f"{event.get('reason')}: {event.get('message')}" for event in found]

    def wait_event(self, namespace: str, name: str, pattern: str, timeout: float = 15.0) -> str:
        """Wait for an event that matches a regular expression from its start."""

        def found() -> str | None:
            return next((e for e in self.events(namespace, name) if re.match(pattern, e)), None)

        event = self.until(found, f"event {pattern}", namespace, name, timeout=timeout)
        assert isinstance(event, str)
        return event

    def story(self, namespace: str, name: str) -> str:
        """What is known about a pod, for a failure."""
        lines = [json.dumps(status(self.pod(namespace, name)), indent=1)] if name else []
        lines += self.events(namespace, name) if namespace else []
        return "\n".join([*lines, "the end of the agent's log:", self.agent.log_tail(40)])

    # -- the machine's side ------------------------------------------------------------------

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
        """The process of a container, from `containerd://ID` or ID."""
        name = container_id.removeprefix("containerd://")
        for line in self.containerd.ctr("tasks", "list").splitlines():
            if line.startswith(name):
                return int(line.split()[1])
        raise LookupError(f"no task {name}")

    def exec(self, container_id: str, *command: str) -> tuple[int, str]:
        """Run a command in a container by way of the CRI."""
        with RawRuntime(self.containerd.socket) as raw:
            return raw.exec(container_id.removeprefix("containerd://"), *command)

    def logs(self, pod: JSON, container: str, attempt: int = 0) -> str:
        """What a container wrote, from its CRI log."""
        path = self.log_dir(pod) / container / f"{attempt}.log"
        return "".join(line.split(" ", 3)[3] + "\n" for line in path.read_text().splitlines())

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
            wanted = [f'{key}="{value}"' for key, value in labels.items()]
            if match and all(label in (match[1] or "") for label in wanted):
                total += float(match[2])
        return total


def links_into(folder: Path) -> list[Path]:
    """The links in /var/log/containers that lead below a folder; other nodes' come and go."""
    found = []
    for path in Path("/var/log/containers").glob("*.log"):
        with contextlib.suppress(OSError):
            if path.readlink().is_relative_to(folder):
                found.append(path)
    return found


# -- reading pods ------------------------------------------------------------------------------


def status(pod: JSON) -> JSON:
    """A pod's status, {} when it has none."""
    found: JSON = pod.get("status") or {}
    return found


def condition(pod: JSON, kind: str) -> JSON:
    """A condition of a pod, {} when it has none."""
    return next((c for c in status(pod).get("conditions") or [] if c["type"] == kind), {})


def is_ready(pod: JSON) -> bool:
    """Whether the pod is Ready."""
    return condition(pod, "Ready").get("status") == "True"


def container_status(pod: JSON, name: str = "") -> JSON:
    """The status of a container of any kind (the first one without a name), {} when none."""
    for field in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for entry in status(pod).get(field) or []:
            if name in ("", entry["name"]):
                found: JSON = entry
                return found
    return {}


def waiting(entry: JSON) -> JSON:
    """What a container status says about waiting, {} when it does not wait."""
    found: JSON = (entry.get("state") or {}).get("waiting") or {}
    return found


def terminated(entry: JSON, field: str = "state") -> JSON:
    """What a container status says about an end (`field`: state or lastState)."""
    found: JSON = (entry.get(field) or {}).get("terminated") or {}
    return found


def running(entry: JSON) -> JSON:
    """What a container status says about running, {} when it does not run."""
    found: JSON = (entry.get("state") or {}).get("running") or {}
    return found


def program(*command: str | Path) -> str:
    """Run a program of the machine and return its output."""
    return run(*command)
