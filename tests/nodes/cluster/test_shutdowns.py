"""A node that shuts down and boots again and again, under requests: nothing fails, nothing is left.

``--reboots N`` does so as often (3), in turn by the ways of ``WAYS``; ``--seed`` draws the moments
of the power cuts. ``--agent kubelet`` runs a Go kubelet on that node; its faults are only printed.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from kubeletpy.base.api.types import JSON
from tests.cluster.objects import service
from tests.cluster.watching import Change, watched
from tests.nodes.cluster.cluster import WITHIN_S, Cluster, Namespace
from tests.nodes.cluster.member import Member
from tests.nodes.cluster.objects import PORT, spec_of, web, workload
from tests.nodes.cluster.test_workloads import local_volume
from tests.nodes.node import SLEEPS, container, pod
from tests.nodes.setup import CONFIG
from tests.nodes.test_adopt import KUBELET, UNIT
from tools.env.process import CommandError
from tools.env.waiting import NotReadyError, wait_until
from tools.lab.network import HOST
from tools.lab.requests import GuestError
from tools.lab.uml import SHOW_CLOCK

WAYS = ("poweroff", "cancel", "cut", "pull", "evict")
"""In turn. Cancel: of a shutdown in a minute; cut: power lost during the shutdown; pull: power off
while a pod's image is pulled; evict: power off while an evicted pod ends. `systemctl reboot` is not
among them: a kernel of user-mode Linux that reboots in its process has no network afterwards."""
KUBELET_UNIT = f"""\
{UNIT}ExecStartPre=/bin/sh -c "grep -q MHz /proc/cpuinfo || {{ {SHOW_CLOCK}; }}"
[Unit]
After=network-online.target containerd.service
[Install]
WantedBy=multi-user.target
"""
STATIC = "/etc/kubernetes/manifests/static.json"
LOG = "/var/lib/order"
PERIODS = {"shutdownGracePeriod": "600s", "shutdownGracePeriodCriticalPods": "200s"}
"""A stop takes seconds of a processor, of which other machines may leave little."""
ANYWHERE = [{"operator": "Exists"}]
EACH = workload("DaemonSet", "each", spec_of(tolerations=ANYWHERE))
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}
ORDER = {"name": "order", "hostPath": {"path": LOG, "type": "DirectoryOrCreate"}}
MOUNT = {"name": "order", "mountPath": "/order"}
HOOKED = {"terminationGracePeriodSeconds": 100}
"""A hook takes seconds of a processor, too."""
CLIENT = """\
ok=0; failed=0
while :; do
  if timeout 20 wget -qO- http://$SERVER/name >/dev/null; then ok=$((ok+1)); else
    failed=$((failed+1)); date +%s >>/failures; fi
  echo $ok $failed >/counted.new; mv /counted.new /counted
done
"""


def on(member: Member, spec: JSON) -> JSON:
    """A pod's spec, for one node."""
    return {**spec, "nodeSelector": {"kubernetes.io/hostname": member.name}}


def logging(name: str, hook_s: int = 0) -> JSON:
    """A container that writes its name when its preStop hook runs and when it gets SIGTERM."""
    script = f"echo hook-{name} >> /order/log; sleep {hook_s}"
    hook = {"exec": {"command": ["sh", "-c", script]}}
    script = f"trap 'echo {name} >> /order/log; exit 0' TERM; {SLEEPS}"
    return container(script=script, volumeMounts=[MOUNT], lifecycle={"preStop": hook})


class Site:
    """Workloads of all kinds on a node, with a second replica elsewhere and a client there."""

    def __init__(self, cluster: Cluster, namespace: Namespace, agent: str) -> None:
        self.cluster, self.namespace, self.agent = cluster, namespace, agent
        self.down, self.other = cluster.members[-1], cluster.members[-2]
        self._configure()
        servers = {}
        for member in (self.down, self.other):
            made = workload("Deployment", f"shop-{member.number}", on(member, spec_of(web())))
            template = made["spec"]["template"]
            template["metadata"]["labels"]["app"] = "shop"
            labels = {**template["metadata"]["labels"], "on": member.name}
            template["metadata"]["labels"] = made["spec"]["selector"]["matchLabels"] = labels
            if member is self.other:  # a busy machine may be late to answer one probe
                template["spec"]["containers"][0]["readinessProbe"]["failureThreshold"] = 10
            servers[member.name] = made
        kinds = {
            "low": spec_of(logging("low"), volumes=[ORDER], **HOOKED),
            "high": spec_of(logging("high"), volumes=[ORDER], priorityClassName="high", **HOOKED),
        }
        storage_class, volume, database = self._database()
        namespace.apply(
            HIGH,
            service("shop", PORT),
            *servers.values(),
            *(workload("Deployment", name, on(self.down, spec)) for name, spec in kinds.items()),
            EACH,
            storage_class,
            volume,
            database,
            self._job(),
        )
        self.down.write(STATIC, json.dumps(pod("static")))
        self.rollout()
        address = namespace.get("service", "shop")["spec"]["clusterIP"]
        client = container(script=f"SERVER={address}\n{CLIENT}")
        namespace.apply(pod("client", client, nodeName=self.other.name))
        namespace.wait("condition=Ready", "pod/client")

    def _configure(self) -> None:
        config = {**json.loads(self.down.read(CONFIG)), **PERIODS, "failSwapOn": False}
        self.down.write(CONFIG, json.dumps(config, indent=1))
        if self.agent == "kubelet":
            self.down.machine.copy_in(KUBELET, "/usr/bin/kubelet")
            self.down.write("/etc/systemd/system/kubelet.service", KUBELET_UNIT)
            self.down.shell(
                "chmod +x /usr/bin/kubelet; systemctl daemon-reload;"
                " systemctl disable --now kubeletpy; systemctl enable --now kubelet"
            )
        else:
            self.down.shell("systemctl restart kubeletpy")
        self.await_lock()

    def _database(self) -> tuple[JSON, JSON, JSON]:
        self.down.shell("mkdir -p /var/lib/disks")
        storage_class = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "site"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        main = container(
            script=f"trap 'exit 0' TERM; hostname >>/data/starts; {SLEEPS}",
            volumeMounts=[{"name": "data", "mountPath": "/data"}],
        )
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
            "storageClassName": "site",
        }
        claims = [{"metadata": {"name": "data"}, "spec": claim}]
        fields = {"replicas": 1, "serviceName": "db", "volumeClaimTemplates": claims}
        return (
            storage_class,
            local_volume(self.down.name, "site", "site", "/var/lib/disks"),
            workload("StatefulSet", "db", spec_of(main), **fields),
        )

    def _job(self) -> JSON:
        """A Job that is never done; its container exits with 0 at SIGTERM."""
        spec = on(self.down, spec_of(container(), restartPolicy="Never"))
        labels = {"metadata": {"labels": {"app": "half"}}}
        ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "half"},
            "spec": {
                "backoffLimit": 100,  # a power cut before its end is no disruption
                "podFailurePolicy": {"rules": [ignored]},
                "template": {**labels, "spec": spec},
            },
        }

    def begin(self) -> None:
        """Begin the Job and the DaemonSet anew.

        After each pod that failed, their controllers wait twice as long as before, up to fifteen
        minutes. A pod of the Job that is deleted exits with 0, which completes it.
        """
        self.namespace.kubectl("delete", "job/half", "daemonset/each", "--cascade=foreground")
        self.namespace.apply(self._job(), EACH)
        self.namespace.wait("jsonpath={.status.ready}=1", "job/half")
        self.namespace.rollout("daemonset/each")

    def rollout(self) -> None:
        """Wait until everything runs."""
        self.namespace.rollout(
            *(f"deployment/shop-{member.number}" for member in (self.down, self.other)),
            *("deployment/low", "deployment/high", "daemonset/each", "statefulset/db"),
        )
        if "completionTime" not in self.namespace.get("job", "half")["status"]:
            self.namespace.wait("jsonpath={.status.ready}=1", "job/half")
        self.cluster.default.wait_created(f"pod/static-{self.down.name}")
        self.cluster.default.wait("condition=Ready", f"pod/static-{self.down.name}")

    def counted(self) -> tuple[int, int]:
        """Requests of the client that were answered, and that failed."""
        ok, failed = self.namespace.kubectl("exec", "client", "--", "cat", "/counted").split()
        return int(ok), int(failed)

    def await_lock(self) -> None:
        """Wait until the agent delays a shutdown."""
        held = "systemd-inhibit --list --no-pager --no-legend | grep -c kubelet"
        self.down.until(f'[ "$({held})" = 1 ]', say="systemd-inhibit --list --no-pager")

    def pods(self) -> list[JSON]:
        """All pods of the node, of both namespaces."""
        found: list[JSON] = []
        for namespace in (self.namespace, self.cluster.default):
            selector = f"--field-selector=spec.nodeName={self.down.name}"
            listed = namespace.kubectl("get", "pods", selector, "-o", "json")
            found += json.loads(listed)["items"]
        return found

    # -- the ways down --------------------------------------------------------------------------

    def go(self, how: str, draw: random.Random) -> None:
        """Shut the node down, and boot it."""
        machine = self.down.machine
        match how:
            case "poweroff":
                machine.power_off(timeout=WITHIN_S)
                machine.boot()
            case "pull":
                self._pull()
                machine.boot()
                self.namespace.kubectl("delete", "pod", "pulls", "--ignore-not-found")
            case "evict":
                self._evict()
                machine.boot()
                self.namespace.wait("delete", "pod/leaves")
            case "cut":
                self.down.shell("systemctl --no-block reboot")
                time.sleep(draw.uniform(0, 25))
                machine.cut_power()
                machine.boot()
            case "cancel":
                self._cancel()
            case _:
                raise ValueError(how)

    def _cancel(self) -> None:
        """A shutdown in a minute is canceled."""
        before = {each["metadata"]["uid"]: each["status"] for each in self.pods()}
        self.down.shell("shutdown -r +1; sleep 5; shutdown -c")
        after = {each["metadata"]["uid"]: each["status"] for each in self.pods()}
        assert before == after

    def _pull(self) -> None:
        """Power off while the runtime is connected to a registry that answers nothing."""
        with socket.create_server((HOST, 0)) as registry:
            registry.settimeout(WITHIN_S)
            image = f"{HOST}:{registry.getsockname()[1]}/far/away:1"
            pulls = pod("pulls", {"name": "main", "image": image}, nodeName=self.down.name)
            self.namespace.apply(pulls)
            connection, _ = registry.accept()
            with connection:
                self.down.machine.power_off(timeout=WITHIN_S)

    def _evict(self) -> None:
        """Power off while the preStop hook of an evicted pod runs."""
        spec = {"volumes": [ORDER], "nodeName": self.down.name, **HOOKED}
        self.namespace.apply(pod("leaves", logging("leaves", hook_s=20), **spec))
        self.namespace.wait("condition=Ready", "pod/leaves")
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "leaves", "namespace": self.namespace.name},
        }
        file = self.cluster.plane.directory / "eviction.json"
        file.write_text(json.dumps(eviction))
        path = f"/api/v1/namespaces/{self.namespace.name}/pods/leaves/eviction"
        self.namespace.kubectl("create", "--raw", path, "-f", str(file))
        self.down.until(f"grep -q hook-leaves {LOG}/log")
        self.down.machine.power_off(timeout=WITHIN_S)

    # -- the checks -----------------------------------------------------------------------------

    def turn(self, how: str, draw: random.Random) -> list[str]:
        """Shut the node down and boot it; return what was wrong, and print what it took."""
        self.begin()
        self.down.shell(f"rm -f {LOG}/log; sync")
        before, began, found = self.counted(), time.monotonic(), list[str]()
        took = dict[str, float]()
        try:
            with watched(self.cluster.default, "nodes", self.down.name) as changes:
                wait_until(lambda: changes, "the watch", timeout=WITHIN_S)
                self.go(how, draw)
                took["booted"] = time.monotonic() - began
                self.cluster.wait_ready(self.down)
                took["Ready"] = time.monotonic() - began
                self.rollout()
                took["settled"] = time.monotonic() - began
                order = self.down.shell(f"cat {LOG}/log 2>/dev/null || true").split()
                self.check(how, order, changes)
        except (AssertionError, CommandError, GuestError, NotReadyError) as error:
            found.append(str(error))
        ok, failed = (now - then for now, then in zip(self.counted(), before, strict=True))
        if failed and how != "cut":
            found.append(f"{failed} of {ok + failed} requests failed")
        times = (f"{name} after {seconds:.0f} s" for name, seconds in took.items())
        print(f"{', '.join(times)}; {ok} requests, {failed} failed", *found, sep="\n  ", flush=True)
        return found

    def renew(self) -> None:
        """Replace all pods of the node after a fault, so that the next turn begins as the first."""
        for namespace in (self.namespace, self.cluster.default):
            selector = f"--field-selector=spec.nodeName={self.down.name}"
            namespace.kubectl("delete", "pods", selector, "--force", "--grace-period=0")
        self.begin()
        self.rollout()

    def check(self, how: str, order: list[str], changes: list[Change]) -> None:
        """Nothing is rejected, completed or left behind; the node became Ready once."""
        job = self.namespace.get("job", "half")
        assert "completionTime" not in job["status"], "the Job half is shown as done"
        for each in self.pods():
            name, status = each["metadata"]["name"], each["status"]
            assert status.get("reason") != "NodeShutdown", name
            assert status["phase"] != "Succeeded", f"{name} is shown as completed"
        self.await_nothing_left()
        self.await_lock()
        node = self.cluster.default.get("node", self.down.name)
        assert not node["status"].get("volumesInUse")
        ups = 0 if how == "cancel" else 1
        assert becoming_ready(changes) == ups, [readiness(each) for each in changes]
        if how in ("poweroff", "pull", "evict"):
            # all are in the group of pods that are not critical
            names = ["high", "low", *(["leaves"] if how == "evict" else [])]
            assert sorted(order) == sorted([*names, *(f"hook-{name}" for name in names)]), order

    def await_nothing_left(self) -> None:
        """No mount, cgroup or directory of a pod that the API does not have."""
        uids = {each["metadata"]["uid"] for each in self.pods()}
        uids |= {
            hashed
            for each in self.pods()
            if (hashed := each["metadata"].get("annotations", {}).get("kubernetes.io/config.hash"))
        }
        spelled = sorted({text for uid in uids for text in (uid, uid.replace("-", "_"))} | {"none"})
        known = " ".join(f"-e {each}" for each in spelled)
        for script in (
            "awk '{print $5}' /proc/self/mountinfo | grep /pods/",
            "find /sys/fs/cgroup -type d -name 'kubepods*-pod*'",
            "ls -d /var/lib/kubelet/pods/*",
        ):
            left = f"{{ {script}; }} | grep -v {known}"
            self.down.until(f"! {left}", timeout=120, say=left)


def readiness(change: Change) -> str:
    """Status of the node's condition Ready, in an event of a watch."""
    conditions = change.item.get("status", {}).get("conditions", ())
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "")


def becoming_ready(changes: list[Change]) -> int:
    """How often a node became Ready."""
    states = [readiness(each) for each in changes]
    return sum(new == "True" and old != "True" for old, new in pairwise(states))


@contextmanager
def running_site(cluster: Cluster, agent: str) -> Iterator[Site]:
    """A site in a namespace of its own."""
    namespace = cluster.new_namespace("site")
    site = Site(cluster, namespace, agent)
    yield site
    site.down.shell(f"rm {STATIC}")
    namespace.remove()
    cluster.default.kubectl("delete", "pv,storageclass", "site")


@pytest.mark.long
def test_reboots_under_requests(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    seed, agent = request.config.getoption("--seed"), request.config.getoption("--agent")
    seed = seed or random.randrange(1 << 30)
    print(f"--seed {seed}")
    draw = random.Random(seed)
    found: list[str] = []
    with running_site(cluster, agent) as site:
        for turn in range(request.config.getoption("--reboots")):
            how = WAYS[turn % len(WAYS)]
            print(f"turn {turn}, {how}: ", end="")
            if faults := site.turn(how, draw):
                found += (f"turn {turn}, {how}: {each}" for each in faults)
                site.renew()
    print(f"{len(found)} faults")
    assert agent == "kubelet" or not found, "\n".join(found)
