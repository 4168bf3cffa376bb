"""A node that shuts down and boots again and again, under requests: nothing fails, nothing is left.

``--reboots N`` does so as often (3), in turn by the ways of ``WAYS``; ``--seed`` draws the moments
of the power cuts.
"""

from __future__ import annotations

import json
import random
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
from tools.env.waiting import wait_until

WAYS = ("poweroff", "cancel", "cut", "pull")
"""In turn. Cancel: of a shutdown in a minute; cut: power lost during the shutdown; pull: power off
while a pod's image is pulled. `systemctl reboot` is not among them: a kernel of user-mode Linux
that reboots in its process has no network afterwards."""
STATIC = "/etc/kubernetes/manifests/static.json"
LOG = "/var/lib/order"
PERIODS = {"shutdownGracePeriod": "600s", "shutdownGracePeriodCriticalPods": "200s"}
"""A stop takes seconds of a processor, of which other machines may leave little."""
ANYWHERE = [{"operator": "Exists"}]
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


def logging(name: str) -> JSON:
    """A container that writes its name when its preStop hook runs and when it gets SIGTERM."""
    hook = {"exec": {"command": ["sh", "-c", f"echo hook-{name} >> /order/log"]}}
    script = f"trap 'echo {name} >> /order/log; exit 0' TERM; {SLEEPS}"
    return container(script=script, volumeMounts=[MOUNT], lifecycle={"preStop": hook})


class Site:
    """Workloads of all kinds on a node, with a second replica elsewhere and a client there."""

    def __init__(self, cluster: Cluster, namespace: Namespace) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.down, self.other = cluster.members[-1], cluster.members[0]
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
            workload("DaemonSet", "each", spec_of(tolerations=ANYWHERE)),
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
        config = {**json.loads(self.down.read(CONFIG)), **PERIODS}
        self.down.write(CONFIG, json.dumps(config, indent=1))
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

    def rollout(self) -> None:
        """Wait until everything runs."""
        self.namespace.rollout(
            *(f"deployment/shop-{member.number}" for member in (self.down, self.other)),
            *("deployment/low", "deployment/high", "daemonset/each", "statefulset/db"),
        )
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
                self.namespace.apply(pod("pulls", _far_image(), nodeName=self.down.name))
                time.sleep(2)
                machine.power_off(timeout=WITHIN_S)
                machine.boot()
                self.namespace.kubectl("delete", "pod", "pulls", "--ignore-not-found")
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

    # -- the checks -----------------------------------------------------------------------------

    def check(self, how: str, order: list[str], changes: list[Change]) -> None:
        """Nothing is rejected, completed or left behind; the node became Ready once."""
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
        if how in ("poweroff", "pull"):
            # both are in the group of pods that are not critical
            assert sorted(order) == ["high", "hook-high", "hook-low", "low"], order

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


def _far_image() -> JSON:
    return {"name": "main", "image": "192.0.2.1:5000/far/away:1"}


def readiness(change: Change) -> str:
    """Status of the node's condition Ready, in an event of a watch."""
    conditions = change.item.get("status", {}).get("conditions", ())
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "")


def becoming_ready(changes: list[Change]) -> int:
    """How often a node became Ready."""
    states = [readiness(each) for each in changes]
    return sum(new == "True" and old != "True" for old, new in pairwise(states))


@contextmanager
def running_site(cluster: Cluster) -> Iterator[Site]:
    """A site in a namespace of its own."""
    namespace = cluster.new_namespace("site")
    site = Site(cluster, namespace)
    yield site
    site.down.shell(f"rm {STATIC}")
    namespace.remove()
    cluster.default.kubectl("delete", "pv,storageclass", "site")


@pytest.mark.long
def test_reboots_under_requests(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed") or random.randrange(1 << 30)
    print(f"--seed {seed}")
    draw = random.Random(seed)
    found: list[str] = []
    with running_site(cluster) as site:
        for turn in range(request.config.getoption("--reboots")):
            how = WAYS[turn % len(WAYS)]
            site.down.shell(f"rm -f {LOG}/log; sync")
            ok, failed = site.counted()
            began = time.monotonic()
            with watched(cluster.default, "nodes", site.down.name) as changes:
                wait_until(lambda: changes, "the watch", timeout=WITHIN_S)
                site.go(how, draw)
                booted = time.monotonic() - began
                cluster.wait_ready(site.down)
                site.rollout()
                settled = time.monotonic() - began
                order = site.down.shell(f"cat {LOG}/log 2>/dev/null || true").split()
                try:
                    site.check(how, order, changes)
                except AssertionError as error:
                    found.append(f"turn {turn}, {how}: {error}")
            ok, failed = (
                now - then for now, then in zip(site.counted(), (ok, failed), strict=True)
            )
            if failed and how != "cut":
                found.append(f"turn {turn}, {how}: {failed} of {ok + failed} requests failed")
            print(
                f"turn {turn}, {how}: booted after {booted:.0f} s, settled after {settled:.0f} s;"
                f" {ok} requests, {failed} failed",
                *(each for each in found if each.startswith(f"turn {turn},")),
                sep="\n  ",
                flush=True,
            )
    assert not found, "\n".join(found)
