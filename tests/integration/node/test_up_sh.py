"""`./up.sh` as a new user types it: start, a pod, Ctrl-C, start again, down; nothing is left."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.node.machine_side import links_into
from tests.integration.node.seen import container_status, is_ready, status
from tools.env import sweep
from tools.env.kubectl import Kubectl
from tools.env.ports import free_port
from tools.env.process import run, start_time
from tools.env.runtime_choice import private_containerd
from tools.env.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]


class UpSh:
    """One state directory of up.sh, and the process that serves it."""

    def __init__(self, home: Path, kubectl: Kubectl) -> None:
        self.home = home
        self.port = free_port()
        self._kubectl = kubectl
        self._config = home.parent / "config.yaml"
        self.cgroup = f"/kpt-up-{os.getpid()}"
        self._config.write_text(
            json.dumps(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "failSwapOn": False,
                    "failCgroupV1": False,
                    # how full this machine is must not matter
                    "evictionHard": {},
                    "healthzPort": free_port(),
                    "port": free_port(),
                    "cgroupRoot": self.cgroup,
                }
            )
        )
        self._environment = {
            **os.environ,
            "KUBELETPY_HOME": str(home),
            "KUBELETPY_RUNTIME": "private",
        }
        self.process: subprocess.Popen[str] | None = None
        self.stated: list[str] = []
        self._lines: Queue[str] = Queue()

    def start(self) -> None:
        """Run `./up.sh` in a session of its own, and wait until it has registered the node."""
        command = ["./up.sh", f"--port={self.port}", f"--config={self._config}", "--node-name=up"]
        self.process = process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.stated = []
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        self.wait_line(r"node up registered ")
        self.kubectl("wait", "--for=condition=Ready", "node/up", "--timeout=30s")

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)

    def wait_line(self, pattern: str, timeout: float = 110.0) -> str:
        """Wait for a line of its output that matches from its start."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0.01))
            except Empty:
                raise AssertionError(f"no line {pattern} in:\n{''.join(self.stated)}") from None
            self.stated.append(line)
            if re.match(pattern, line):
                return line

    def ctrl_c(self) -> None:
        """SIGINT to everything in its terminal, which ends it.

        It comes twice, as from ``timeout -s INT``.
        """
        assert self.process is not None
        for _ in range(2):
            os.killpg(self.process.pid, signal.SIGINT)
        assert self.process.wait(20) == 0

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another `./up.sh` in another terminal, to its end."""
        return subprocess.run(
            ["./up.sh", *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    def kubectl(self, *arguments: str | Path) -> str:
        """kubectl with the kubeconfig that it printed."""
        return self._kubectl.run(self.home / "node" / "api" / "admin.kubeconfig", *arguments)

    def pod(self, name: str) -> JSON:
        """A pod of the default namespace."""
        found: JSON = json.loads(self.kubectl("get", "pod", name, "-o", "json"))
        return found


@pytest.fixture
def up_sh(kubectl_versions: dict[str, Kubectl]) -> Iterator[UpSh]:
    """An `./up.sh` that is not started; it is taken down and removed afterwards in any case."""
    directory = Path(tempfile.mkdtemp(prefix="kpu-", dir="/tmp"))
    made = UpSh(directory / "home", kubectl_versions["new"])
    yield made
    if made.home.exists():
        made.run("down")
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    shutil.rmtree(directory, ignore_errors=True)
    sweep.remove_cgroup(made.cgroup)


@pytest.mark.timeout(300)
def test_a_node_from_nothing_and_back(up_sh: UpSh) -> None:
    up_sh.start()
    output = "".join(up_sh.stated)
    assert re.search(r"^\[1/5\] Python environment … ready", output, re.MULTILINE)
    assert f"export KUBECONFIG={up_sh.home}/node/api/admin.kubeconfig\n" in output

    # a sample pod runs and answers
    up_sh.kubectl("apply", "-f", ROOT / "deploy" / "sample-pod.yaml")
    up_sh.kubectl("wait", "--for=condition=Ready", "pod/sample", "--timeout=60s")
    before = up_sh.pod("sample")
    address = status(before)["podIP"]

    def answers() -> bool:
        with urllib.request.urlopen(f"http://{address}:8080", timeout=2) as reply:
            return bool(reply.read() == b"Hello from sample\n")

    wait_until(answers, "the sample pod's answer")

    # errors of the runtime, with what they hold of secrets, are root's to read
    logs = list(up_sh.home.rglob("containerd.log"))
    assert [stat.S_IMODE(log.stat().st_mode) for log in logs] == [0o600]

    # a second one beside it is refused, Ctrl-C leaves the containers
    refused = up_sh.run()
    assert refused.returncode == 1
    assert "the node runs already" in refused.stderr
    up_sh.ctrl_c()
    assert answers()

    # the second start finds everything
    up_sh.start()
    after = up_sh.pod("sample")
    assert is_ready(after)
    for name in ("web", "visitor"):
        was, now = container_status(before, name), container_status(after, name)
        assert (now["containerID"], now["state"]) == (was["containerID"], was["state"])
        assert now["restartCount"] == 0

    # its runtime dies: explain names what starts it, which does
    containerd = private_containerd(up_sh.home)
    containerd.kill()
    socket = up_sh.home / "node" / "kubelet" / "explain.sock"
    explain = [sys.executable, "-m", "kubeletpy.cli.main", "explain", f"--socket={socket}"]
    wait_until(lambda: "run ./up.sh again" in run(*explain), "what starts the runtime")
    assert "run ./up.sh again" in run(*explain, "sample")
    assert "its containerd had died, and runs again" in up_sh.run().stdout

    # down, with the agent still running, removes all of it
    network, pid = containerd.network, containerd.pid
    uid = after["metadata"]["uid"]
    assert Path(f"/var/log/pods/default_sample_{uid}").is_dir()
    down = up_sh.run("down")
    assert (down.returncode, down.stderr) == (0, "")
    assert down.stdout.endswith("all removed\n")
    assert up_sh.process is not None
    assert up_sh.process.wait(20) is not None
    assert not up_sh.home.exists()
    assert pid is not None
    assert start_time(pid) is None, "its containerd"
    assert sweep.leftovers(up_sh.home / "containerd", network.name, network.bridge) == []
    assert not Path(f"/var/log/pods/default_sample_{uid}").exists()
    assert not links_into(Path(f"/var/log/pods/default_sample_{uid}"))
    assert str(up_sh.home) not in Path("/proc/self/mountinfo").read_text()
    assert uid not in run("ps", "-e", "-o", "args", "-ww")
    assert not [path for path in cgroups_of(up_sh.cgroup) if uid in path]
    again = up_sh.run("down")
    assert again.returncode == 0
    assert f"nothing to remove: there is no node in {up_sh.home} " in again.stdout


def cgroups_of(name: str) -> list[str]:
    """Every cgroup below one."""
    return [
        str(path) for tree in sweep.cgroups([name]) for path in tree.rglob("*") if path.is_dir()
    ]
