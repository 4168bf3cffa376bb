"""A virtual node that is a Kubernetes node: deploy's unit, an embedded API, containerd, kubectl.

Tests judge it with kubectl and by the node's kernel, never by the agent's own account.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kubeletpy.base.api.types import JSON
from tests.nodes.guest import WITHIN_S, LimitedConnection
from tests.nodes.setup import ADMIN, API_UNIT, CONFIG, LIBRARY, STATE, kubelet_config
from tools.env.kubectl import kubectl
from tools.lab.machine import Machine
from tools.lab.recipe import RUNC
from tools.lab.requests import GuestError

SLEEPS = "while :; do sleep 1000 & wait $!; done"
"""The rest of a script that runs until a trap ends it."""


class VirtualNode(LimitedConnection):
    """One node, on a machine that has booted. Times are in seconds."""

    def __init__(
        self, machine: Machine, directory: Path, suite: str = "bookworm", oci: str = RUNC
    ) -> None:
        """``directory``: for what is copied to it and from it; ``suite``: its Debian."""
        super().__init__(machine, directory, suite, oci)
        self._settings: tuple[str, str, JSON] | None = None

    # --- commands ---

    def kubectl(self, *parts: str, timeout: float = WITHIN_S) -> str:
        """The output of kubectl, as the cluster's administrator; raises GuestError."""
        done = self.machine.run("kubectl", f"--kubeconfig={ADMIN}", *parts, timeout=timeout)
        if done.status:
            raise GuestError(f"kubectl {' '.join(parts)}: {done.output}")
        return done.output.strip()

    # --- making it a node ---

    def install(self) -> None:
        """Install everything; nothing runs yet but containerd and the embedded API."""
        self.install_agent()
        self.machine.copy_in(kubectl("new").program, "/usr/local/bin/kubectl")
        self.machine.copy_in(Path(__file__).with_name("guest_api.py"), f"{LIBRARY}/guest_api.py")
        self.write("/etc/systemd/system/lab-api.service", API_UNIT)
        self.shell(
            f"ln -sf {STATE}/api/node.kubeconfig /etc/kubernetes/kubelet.conf"
            " && systemctl daemon-reload && systemctl enable --now lab-api && sync",
            timeout=WITHIN_S,
        )

    def configure(self, driver: str = "systemd", *, runtime: str = "", **fields: Any) -> None:
        """Configure the runtime and the agent, and wait until the node is Ready.

        ``runtime`` is the runtime's cgroup driver when it is not the agent's.
        """
        settings = (driver, runtime or driver, fields)
        if self._settings == settings:
            return
        self._settings = settings
        self.configure_containerd(runtime or driver)
        self.write(CONFIG, kubelet_config(driver, fields))
        self.shell(
            "systemctl stop kubeletpy; systemctl restart containerd;"
            " systemctl enable --now kubeletpy"
        )
        self.wait_ready()

    def forget_settings(self) -> None:
        """Make the next `configure` write its settings in any case."""
        self._settings = None

    def wait_ready(self) -> None:
        """Wait until the agent has started and the node is Ready, as kubectl sees it."""
        journal = "journalctl -u kubeletpy -n 30 --no-pager"
        self.until("systemctl is-active kubeletpy", say=journal)
        self.wait_node("condition=Ready")

    def wait_node(self, condition: str) -> None:
        """Wait until the node meets a condition of `kubectl wait --for`.

        kubectl watches: a loop of commands would take the only processor from the agent.
        """
        wait = f"kubectl --kubeconfig={ADMIN} wait node/node --for={shlex.quote(condition)}"
        # it fails before the API answers, and before the node exists
        self.until(
            f"{wait} --timeout={WITHIN_S}s",
            say=f"{wait} --timeout=1s 2>&1; journalctl -u kubeletpy -n 30 --no-pager",
        )

    # --- pods ---

    def apply(self, *objects: JSON) -> None:
        """`kubectl apply` of objects, in namespace default."""
        document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.write("/tmp/objects.json", json.dumps(document))
        self.kubectl("apply", "-f", "/tmp/objects.json")

    def run_pods(self, *pods: JSON) -> None:
        """Apply pods and wait until they are Ready."""
        self.apply(*pods)
        self.wait_pods(*(pod["metadata"]["name"] for pod in pods))

    def pods(self) -> dict[str, JSON]:
        """All pods of the default namespace by name."""
        return {item["metadata"]["name"]: item for item in self.get("pods")["items"]}

    def wait_pods(self, *names: str, condition: str = "condition=Ready") -> None:
        """Wait until pods are Ready, or meet another `kubectl wait --for` condition."""
        parts = [f"pod/{name}" for name in names]
        try:
            self.kubectl("wait", f"--for={condition}", f"--timeout={WITHIN_S}s", *parts,
                         timeout=WITHIN_S + 30)  # fmt: skip
        except GuestError as error:
            story = self.kubectl("describe", *parts)
            raise GuestError(f"{error}\n{story}") from error

    def get(self, kind: str, name: str = "") -> JSON:
        """An object, or a list of all."""
        found: JSON = json.loads(self.kubectl("get", kind, *([name] if name else []), "-o", "json"))
        return found

    def logged(self, *names: str) -> dict[str, list[str]]:
        """The lines that pods have written before one that is ``done``."""
        found = {}
        for name in names:
            self.until(f"kubectl --kubeconfig={ADMIN} logs {name} | grep -qx done")
            found[name] = self.kubectl("logs", name).splitlines()[:-1]
        return found

    def wait_not_created(self, name: str, context: JSON, text: str) -> None:
        """Create a pod, and wait until status and event have the text why it has no container."""
        self.apply(pod(name, container(securityContext=context)))
        reason = "jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerError"
        self.wait_pods(name, condition=reason)
        waiting = self.get("pod", name)["status"]["containerStatuses"][0]["state"]["waiting"]
        assert text in waiting["message"]
        events = [
            each["message"]
            for each in self.get("events")["items"]
            if (each["reason"], each["involvedObject"]["name"]) == ("Failed", name)
        ]
        assert any(text in each for each in events), events

    def remove_pods(self) -> None:
        """Delete all pods, and wait until they have ended."""
        self.kubectl("delete", "pods", "--all", f"--timeout={WITHIN_S - 10}s")


def clear(directory: Path) -> None:
    """Remove what an earlier run left."""
    shutil.rmtree(directory, ignore_errors=True)


def container(
    name: str = "main",
    script: str = f"trap 'exit 0' TERM; {SLEEPS}",
    limits: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    **more: Any,
) -> JSON:
    """A container that runs a shell script, until it is stopped."""
    from tools.env.images import BUSYBOX

    resources = {
        key: dict(value)
        for key, value in (("limits", limits), ("requests", requests))
        if value is not None
    }
    return {
        "name": name,
        "image": BUSYBOX,
        "command": ["sh", "-c", script],
        "resources": resources,
        **more,
    }


def pod(name: str, *containers: JSON, **spec: Any) -> JSON:
    """A pod; keywords are fields of its spec."""
    listed: Sequence[JSON] = containers or (container(),)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            "containers": list(listed),
            **spec,
        },
    }
