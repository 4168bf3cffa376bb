"""A tour of a virtual node: ``python -m tools.lab.tour trixie testing``.

Boots a node of each suite, starts ``kubeletpy up`` beside its own containerd with systemd's cgroup
driver, and checks what an operator tries first. The node becomes Ready, a pod runs, exec and logs
answer, and limits are in the kernel. A container is killed for its memory, pods survive ``kill -9``
of the agent, and nothing is left of a deleted pod. It needs root and ``apt-get install mmdebstrap
user-mode-linux``.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.env.debian import cache_dir
from tools.env.kubectl import kubectl
from tools.env.process import CommandError
from tools.env.waiting import NotReadyError
from tools.lab.image import CHECKOUT, build, default_recipe
from tools.lab.kinds import KINDS, UML, make_machine
from tools.lab.machine import Machine
from tools.lab.recipe import SITE, SUITES
from tools.lab.requests import GuestError
from tools.lab.versions import containerd_generation, versions_of

HOME = "/var/lib/kubeletpy"
KUBECONFIG = f"{HOME}/node/api/admin.kubeconfig"
UNIT = "kubeletpy-up"
_ENVIRONMENT = {
    "PYTHONPATH": f"/checkout:/checkout/up:{SITE}",
    "PYTHONPYCACHEPREFIX": "/var/cache/pycache",
    "KUBELETPY_CACHE": "/cache",
    "KUBELETPY_HOME": HOME,
}
_LAUNCHER = """\
#!/usr/bin/python3
from kubeletpy.cli.main import main
raise SystemExit(main())
"""
_HUNGRY = """\
apiVersion: v1
kind: Pod
metadata: {name: hungry}
spec:
  restartPolicy: Never
  dnsPolicy: Default
  containers:
  - name: hungry
    image: kubeletpy.local/busybox:1
    command: [tail, /dev/zero]
    resources: {limits: {memory: 32Mi}, requests: {memory: 16Mi}}
"""
_NETWORK = {
    "cniVersion": "0.4.0",
    "name": "node",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "ipMasq": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]},
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
_UML_KERNELS = {"testing": "trixie"}
"""Suite -> the suite of its kernel: later user-mode Linux has no NAT, which the network needs."""
_SAMPLE_LIMIT = 64 << 20
"""Memory limit of each container of deploy/sample-pod.yaml."""


class TourError(Exception):
    """A check failed."""


@dataclass
class Tour:
    """One node and what was found on it."""

    node: Machine
    suite: str
    runtime: str = "runc"
    found: dict[str, str] = field(default_factory=dict)
    """Check -> what was seen."""

    def walk(self) -> None:
        """Every check in turn. Raises TourError or GuestError at the first that fails."""
        begin = time.monotonic()
        with self._check("boot"):
            self.node.boot()
            self._prepare()
        with self._check("node Ready"):
            self._start()
            self._ready()
        self.found["from power on to node Ready"] = f"{time.monotonic() - begin:.0f} s"
        for title, check in (
            ("sample pod Ready", self._sample),
            ("exec and logs", self._exec_and_logs),
            ("limits in the kernel", self._limits),
            ("OOM kill", self._oom),
            ("kill -9 of the agent", self._kill),
            ("deletion", self._delete),
            ("log of the agent", self._log),
        ):
            with self._check(title):
                check()

    @contextmanager
    def _check(self, title: str) -> Iterator[None]:
        begin = time.monotonic()
        print(f"{self.suite}: {title} …", end=" ", flush=True)
        try:
            yield
        except (TourError, GuestError, NotReadyError):
            print("failed", flush=True)
            raise
        took = f"{time.monotonic() - begin:.0f} s"
        self.found[title] = f"{self.found[title]} ({took})" if title in self.found else took
        print(self.found[title], flush=True)

    def sh(self, script: str, timeout: float = 120.0) -> str:
        """Output of a shell script on the node. Raises TourError: its status is not 0."""
        done = self.node.run("bash", "-ec", script, timeout=timeout)
        if done.status:
            raise TourError(f"`{script}` exited with {done.status}: {done.output[-2000:]}")
        return done.output.strip()

    def kubectl(self, arguments: str, timeout: float = 120.0) -> str:
        """Output of kubectl on the node. Raises TourError."""
        return self.sh(f"kubectl --kubeconfig {KUBECONFIG} {arguments}", timeout)

    def _prepare(self) -> None:
        for source, target in zip(shares(), ("/checkout", "/cache"), strict=True):
            self.node.mount_host(source, target)
        self.sh(f"cat >/usr/bin/kubeletpy <<'EOF'\n{_LAUNCHER}EOF\nchmod 755 /usr/bin/kubeletpy")
        self.found |= versions_of(self.node)
        self.found["controllers"] = self.sh("cat /sys/fs/cgroup/cgroup.controllers")
        self.found["runtime"] = self.sh(f"{self.runtime} --version | head -n 1")
        generation = containerd_generation(self.found["containerd"])
        text = (CHECKOUT / f"deploy/containerd-config-v{generation}.toml").read_text()
        program = f'SystemdCgroup = true\nBinaryName = "/usr/bin/{self.runtime}"'
        text = text.replace("SystemdCgroup = false", program)
        self.sh(f"mkdir -p /etc/containerd; cat >/etc/containerd/config.toml <<'EOF'\n{text}EOF")
        network = json.dumps(_NETWORK)
        self.sh(f"mkdir -p /etc/cni/net.d; echo '{network}' >/etc/cni/net.d/10-node.conflist")
        self.sh("systemctl restart containerd")

    def _start(self) -> None:
        variables = " ".join(f"--setenv={name}={value}" for name, value in _ENVIRONMENT.items())
        self.sh(
            f"systemd-run --unit={UNIT} --property=KillMode=process {variables} "
            "python3 -m tools.env.up"
        )

    def _ready(self) -> None:
        self.sh(
            f"until [ -s {KUBECONFIG} ] && kubectl --kubeconfig {KUBECONFIG} get node -o name "
            f"| grep -q .; do systemctl is-active --quiet {UNIT}; sleep 0.5; done",
            timeout=300,
        )
        self.kubectl("wait --for=condition=Ready node --all --timeout=120s", timeout=150)

    def _sample(self) -> None:
        self.kubectl("apply -f /checkout/deploy/sample-pod.yaml")
        self.kubectl("wait --for=condition=Ready pod/sample --timeout=180s", timeout=200)

    def _exec_and_logs(self) -> None:
        page = self.kubectl("exec sample -c web -- cat /www/index.html")
        if page != "Hello from sample":
            raise TourError(f"exec showed {page!r}")
        self.sh(
            f"until kubectl --kubeconfig {KUBECONFIG} logs sample -c visitor "
            "| grep -q 'Hello from sample'; do sleep 0.5; done"
        )

    def _pod(self, name: str) -> dict[str, Any]:
        pod: dict[str, Any] = json.loads(self.kubectl(f"get pod {name} -o json"))
        return pod

    def _slice(self, pod: dict[str, Any]) -> str:
        uid = pod["metadata"]["uid"].replace("-", "_")
        above = "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice"
        return f"{above}/kubepods-burstable-pod{uid}.slice"

    def _limits(self) -> None:
        pod = self._pod("sample")
        statuses = pod["status"]["containerStatuses"]
        ids = [each["containerID"].removeprefix("containerd://") for each in statuses]
        folder = self._slice(pod)
        files = {f"{folder}/memory.max": str(_SAMPLE_LIMIT * len(ids))}
        for each in ids:
            files[f"{folder}/cri-containerd-{each}.scope/memory.max"] = str(_SAMPLE_LIMIT)
        for path, desired in files.items():
            held = self.sh(f"cat {path}")
            if held != desired:
                raise TourError(f"{path} is {held}, not {desired}")
        self.sh("systemctl daemon-reload")
        held = self.sh(f"cat {folder}/memory.max")
        if held != files[f"{folder}/memory.max"]:
            raise TourError(f"after systemctl daemon-reload, memory.max of {folder} is {held}")

    def _oom(self) -> None:
        self.sh(
            f"kubectl --kubeconfig {KUBECONFIG} apply -f - <<'EOF'\n{_HUNGRY}EOF",
        )
        path = "{.status.phase}"
        self.kubectl(f"wait --for=jsonpath='{path}'=Failed pod/hungry --timeout=120s", 150)
        ended = self._pod("hungry")["status"]["containerStatuses"][0]["state"]["terminated"]
        killed = self.sh("dmesg | grep -c 'oom-kill:constraint=CONSTRAINT_MEMCG' || true")
        if ended["exitCode"] != 137 or killed == "0":
            raise TourError(f"the container that takes too much memory ended with {ended}")
        # containerd 2.1 on a slow machine may miss the kernel's event, and reports Error
        self.found["OOM kill"] = f"reason {ended['reason']}"

    def _kill(self) -> None:
        before = self._pod("sample")["status"]["containerStatuses"]
        self.sh(f"systemctl kill --signal=KILL {UNIT}; systemctl reset-failed {UNIT} || true")
        self.sh(f"while systemctl is-active --quiet {UNIT}; do sleep 0.2; done")
        self.sh(f"systemctl reset-failed {UNIT} 2>/dev/null || true")
        self._start()
        self.sh(
            f"until kubectl --kubeconfig {KUBECONFIG} exec sample -c web -- true 2>/dev/null; "
            "do sleep 0.5; done",
            timeout=180,
        )
        self.kubectl("wait --for=condition=Ready node --all --timeout=120s", timeout=150)
        self.kubectl("wait --for=condition=Ready pod/sample --timeout=120s", timeout=150)
        after = self._pod("sample")["status"]["containerStatuses"]
        if [(c["containerID"], c["restartCount"]) for c in before] != [
            (c["containerID"], c["restartCount"]) for c in after
        ]:
            raise TourError(f"containers changed with the agent: {before} -> {after}")

    def _delete(self) -> None:
        folder = self._slice(self._pod("sample"))
        self.kubectl("delete pod --all --timeout=120s", timeout=150)
        self.sh(f"for i in $(seq 60); do [ -e {folder} ] || exit 0; sleep 0.5; done; exit 1")

    def _log(self) -> None:
        log = self.sh(f"journalctl --no-pager --output=cat --unit={UNIT}")
        bad = [line for line in log.splitlines() if "Traceback" in line or "Warning: " in line]
        if bad:
            raise TourError(f"the agent's log has: {bad[:5]}")
        errors = [line for line in log.splitlines() if " ERROR " in line or line.startswith("E")]
        self.found["log of the agent"] = f"{len(errors)} errors in {len(log.splitlines())} lines"

    def evidence(self) -> str:
        """The end of what the node logged."""
        done = self.node.run("bash", "-c", f"journalctl --no-pager --lines=60 --unit={UNIT}")
        return done.output


def shares() -> list[Path]:
    """Directories of this machine that the node mounts: the checkout and the cache."""
    return [CHECKOUT, cache_dir()]


def tour(suite: str, runtime: str, directory: Path, kind: str = UML) -> Tour:
    """Walk through a new node of a suite. Raises TourError, CommandError or NotReadyError."""
    kubectl("new")  # the node takes it from the cache
    disk = build(default_recipe(suite))
    kernel = _UML_KERNELS.get(suite, "") if kind == UML else ""
    node = make_machine(kind, suite, disk, directory, shares=shares(), kernel=kernel)
    made = Tour(node, suite, runtime)
    try:
        made.walk()
    except (TourError, GuestError) as error:
        try:
            print(made.evidence(), file=sys.stderr)
        except GuestError as silent:
            print(f"no journal: {silent}\n{node.console[-4000:]}", file=sys.stderr)
        raise TourError(str(error)) from error
    finally:
        node.cut_power()
    return made


def main() -> int:
    """Walk through a node of each suite, and print what was found."""
    made = argparse.ArgumentParser(prog="python -m tools.lab.tour", description=__doc__)
    made.add_argument("suites", nargs="*", default=list(SUITES), help="Debian suites (all)")
    made.add_argument("--machine", choices=KINDS, default=UML, help="what runs the nodes (uml)")
    made.add_argument("--runtime", default="runc", help="OCI runtime: runc or crun (runc)")
    supplied = made.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it cuts the power at its end
    status = 0
    for suite in supplied.suites:
        with tempfile.TemporaryDirectory(prefix="lab-") as directory:
            try:
                done = tour(suite, supplied.runtime, Path(directory), supplied.machine)
            except (CommandError, NotReadyError, TourError) as error:
                print(f"{suite}: {error}", file=sys.stderr)
                status = 1
                continue
        for title, seen in done.found.items():
            print(f"{suite:9} {title:28} {seen}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
