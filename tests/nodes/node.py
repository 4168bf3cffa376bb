"""A virtual node that is a Kubernetes node: deploy's unit, an embedded API, containerd, kubectl.

Tests judge it with kubectl and by the node's kernel, never by the agent's own account.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kubeletpy.api.types import JSON
from tests.nodes.setup import (
    ADMIN,
    API_UNIT,
    CONFIG,
    LIBRARY,
    PROGRAM,
    STATE,
    kubelet_config,
)
from tools.env.debian import unpacked
from tools.env.images import PAUSE, busybox_image, pause_image, write_archive
from tools.env.kubectl import kubectl
from tools.lab.containerd import (
    CONTAINERD_CONFIG,
    DEPLOY,
    NETWORK,
    NETWORK_CONFIG,
    containerd_config,
)
from tools.lab.image import CHECKOUT
from tools.lab.machine import Machine
from tools.lab.recipe import SITE
from tools.lab.requests import GuestError
from tools.lab.versions import containerd_generation, versions_of

WITHIN_S = 600
"""Timeout for changes that take seconds on a quiet machine, and a minute per pod at worst."""
GROUPS = "/sys/fs/cgroup"
SLEEPS = "while :; do sleep 1000 & wait $!; done"
"""The rest of a script that runs until a trap ends it."""
_PACKAGES = ("kubeletpy", "up/kubeletpy_up")


class VirtualNode:
    """One node, on a machine that has booted. Times are in seconds."""

    def __init__(self, machine: Machine, directory: Path, suite: str = "bookworm") -> None:
        """``directory``: for what is copied to it and from it; ``suite``: its Debian."""
        self.machine = machine
        self.versions = versions_of(machine)
        self._suite = suite
        self._directory = directory
        self._settings: tuple[str, str, JSON] | None = None

    # --- commands ---

    def shell(self, script: str, timeout: float = WITHIN_S) -> str:
        """The output of a shell script; raises GuestError when it fails."""
        done = self.machine.run("bash", "-c", script, timeout=timeout)
        if done.status:
            raise GuestError(f"{script}\nexit code {done.status}: {done.output}")
        return done.output.strip()

    def until(self, condition: str, timeout: float = WITHIN_S, say: str = "true") -> None:
        """Wait until a shell command succeeds there; a timeout shows the output of ``say``."""
        end = f"SECONDS=0; until {{ {condition}; }} >/dev/null 2>&1; do sleep 0.3; "
        end += f"[ $SECONDS -lt {timeout:.0f} ] || exit 1; done"
        done = self.machine.run("bash", "-c", end, timeout=timeout + 60)
        if done.status:
            there = self.machine.run("bash", "-c", say).output
            raise GuestError(f"not within {timeout} s: {condition}\n{there}")

    def write(self, path: str, text: str) -> None:
        """Write a file there."""
        file = self._directory / "text"
        file.write_text(text)
        self.shell(f"mkdir -p {Path(path).parent}")
        self.machine.copy_in(file, path)

    def read(self, path: str) -> str:
        """A file's text, without the end of its last line."""
        return self.shell(f"cat {path}")

    def kubectl(self, *words: str, timeout: float = WITHIN_S) -> str:
        """The output of kubectl, as the cluster's administrator; raises GuestError."""
        done = self.machine.run("kubectl", f"--kubeconfig={ADMIN}", *words, timeout=timeout)
        if done.status:
            raise GuestError(f"kubectl {' '.join(words)}: {done.output}")
        return done.output.strip()

    # --- making it a node ---

    def install(self) -> None:
        """Install everything; nothing runs yet but containerd."""
        archive = self._directory / "packages.tar"
        with tarfile.open(archive, "w") as packed:
            for package in _PACKAGES:
                # with bytecode: it is good for the same Python
                packed.add(CHECKOUT / package, Path(package).name)
            packed.add(DEPLOY, "kubeletpy/deploy")  # as in an installed package
            packed.add(Path(__file__).with_name("guest_api.py"), "guest_api.py")
        self.machine.copy_in(archive, "/tmp/packages.tar")
        images = write_archive(self._directory / "images.tar", pause_image(), busybox_image())
        self.machine.copy_in(images, "/tmp/images.tar")
        self.machine.copy_in(kubectl("new").program, "/usr/local/bin/kubectl")
        # from Debian 13 on, /sbin of a package is below /usr
        (parser,) = unpacked("apparmor", self._suite).glob("**/sbin/apparmor_parser")
        self.machine.copy_in(parser, "/usr/sbin/apparmor_parser")
        # containerd reads the parser's version, before which it warns when this file is missing
        self.write("/etc/apparmor/parser.conf", "")
        self.write("/opt/kubeletpy/.venv/bin/kubeletpy", PROGRAM)
        self.write(NETWORK_CONFIG, NETWORK)
        self.write("/etc/systemd/system/lab-api.service", API_UNIT)
        unit = (DEPLOY / "kubeletpy.service").read_text()
        self.write("/etc/systemd/system/kubeletpy.service", unit)
        self.shell(
            f"mkdir -p {LIBRARY} /etc/kubernetes/manifests /var/log/journal"
            " && ln -s /opt/kubeletpy/.venv/bin/kubeletpy /usr/local/bin/"
            " && chmod +x /opt/kubeletpy/.venv/bin/kubeletpy"
            f" && tar -C {LIBRARY} -xf /tmp/packages.tar && rm /tmp/packages.tar"
            f" && python3 -m compileall -q {LIBRARY}"
            f" && printf '{LIBRARY}\\n{SITE}\\n' >"
            " $(python3 -c 'import site; print(site.getsitepackages()[0])')/kubeletpy.pth"
            f" && ln -sf {STATE}/api/node.kubeconfig /etc/kubernetes/kubelet.conf"
            " && systemctl daemon-reload && systemctl restart systemd-journald containerd"
            " && ctr -n k8s.io images import /tmp/images.tar && rm /tmp/images.tar"
            " && systemctl enable --now lab-api && sync",
            timeout=600,
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

    def configure_containerd(self, driver: str) -> None:
        """Write containerd's configuration, which a restart of containerd loads."""
        generation = containerd_generation(self.versions["containerd"])
        self.write(CONTAINERD_CONFIG, containerd_config(driver, generation, PAUSE))

    def forget_settings(self) -> None:
        """Make the next `configure` write its settings in any case."""
        self._settings = None

    def wait_ready(self) -> None:
        """Wait until the agent has started and the node is Ready, as kubectl sees it."""
        jsonpath = '{.status.conditions[?(@.type=="Ready")].status}'
        shown = f"kubectl --kubeconfig={ADMIN} get node node -o jsonpath='{jsonpath}'"
        journal = "journalctl -u kubeletpy -n 30 --no-pager"
        started = "systemctl is-active kubeletpy"
        self.until(f'{started} && [ "$({shown})" = True ]', say=f"{shown} 2>&1; {journal}")

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

    def wait_pods(self, *names: str, condition: str = "condition=Ready") -> None:
        """Wait until pods are Ready, or meet another `kubectl wait --for` condition."""
        words = [f"pod/{name}" for name in names]
        try:
            self.kubectl("wait", f"--for={condition}", f"--timeout={WITHIN_S}s", *words,
                         timeout=WITHIN_S + 30)  # fmt: skip
        except GuestError as error:
            story = self.kubectl("describe", *words)
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

    def remove_pods(self) -> None:
        """Delete all pods, and wait until they have ended."""
        self.kubectl("delete", "pods", "--all", f"--timeout={WITHIN_S - 10}s")

    # --- the kernel's files ---

    def groups_of(self, uid: str) -> list[str]:
        """The cgroups of a pod, without those below them, relative to the root."""
        names = f"-name '*pod{uid}*' -o -name '*pod{uid.replace('-', '_')}*'"
        found = self.shell(f"cd {GROUPS}; find . -type d \\( {names} \\) -prune")
        return [path.removeprefix("./") for path in found.splitlines()]

    def group_of(self, pod: JSON) -> str:
        """The one cgroup of a pod."""
        (group,) = self.groups_of(pod["metadata"]["uid"])
        return group

    def container_group(self, pod: JSON, name: str = "") -> str:
        """The cgroup of the process of a running container, as the kernel has it.

        ``name``: of the container, unless it is the only one.
        """
        (container,) = (
            each["containerID"]
            for each in pod["status"]["containerStatuses"]
            if name in ("", each["name"])
        )
        identity = container.partition("://")[2]
        line = self.shell(
            f"ctr -n k8s.io tasks list | awk '$1 == \"{identity}\" {{print $2}}'"
            " | { read pid; cat /proc/$pid/cgroup; }"
        )
        return line.partition("::")[2].strip("/")

    def kernel(self, group: str, *files: str) -> dict[str, str]:
        """Values of a cgroup's files."""
        script = "; ".join(f"echo {file}=$(cat {GROUPS}/{group}/{file})" for file in files)
        lines = self.shell(script).splitlines()
        return dict(line.split("=", 1) for line in lines)

    # --- what a failing test leaves ---

    def leave(self, directory: Path) -> None:
        """Copy its console, its journal and the flight recorder's file."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "console.log").write_text(self.machine.console)
        self._copy(
            "journalctl --no-pager -o short-precise > /tmp/journal.log",
            "/tmp/journal.log",
            directory / "journal.log",
        )
        self._copy(
            "rm -f /tmp/record; kubeletpy record -o /tmp/record",
            "/tmp/record",
            directory / "flight-record",
        )

    def _copy(self, script: str, source: str, target: Path) -> None:
        """Copy a script's file from the node, or write the error in its place."""
        try:
            self.shell(script)
            self.machine.copy_out(source, target)
        except GuestError as error:
            target.write_text(f"{error}\n")


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
