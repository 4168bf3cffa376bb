"""Boots with and without an API server, by turns: how long until all pods run, and what is left.

``--boots N`` boots so often without an API server (4), on two nodes at once, and half as often with
one. In half of the boots without it pods are deleted or replaced on another node meanwhile;
``--seed`` draws them.
"""

from __future__ import annotations

import json
import random
import statistics
import tarfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from tests.cluster.objects import config_map, secret
from tests.nodes.cluster.cluster import WITHIN_S, Cluster, Namespace
from tests.nodes.cluster.member import Member
from tests.nodes.node import SLEEPS, container, pod
from tests.nodes.setup import LIBRARY
from tools.env.waiting import wait_until
from tools.lab.image import CHECKOUT

PODS = 10
WITH_CLAIM = (8, 9)
DRIVER = "test.csi.example.com"
STORAGE = "/var/lib/lab-driver"
LOG = "/var/lib/order"
OFFLINE = "/etc/systemd/system/kubeletpy.service.d/offline.conf"
RUN = (
    "/opt/kubeletpy/.venv/bin/kubeletpy run --config=/etc/kubernetes/kubelet-config.yaml"
    " --kubeconfig=/etc/kubernetes/kubelet.conf --offline-start=UntilReplaced"
)
WATCH = "/opt/lab/guest_watch.py"
CONTACT = "the API server answers"
"""In the agent's log."""
CLOCK = """\
import ctypes, struct
timex = ctypes.create_string_buffer(struct.pack("IxxxxqqqqI", 0x14, 0, 0, 0, 0, 0), 512)
assert ctypes.CDLL(None).adjtimex(timex) == 0
"""
"""Marks the clock as set (ADJ_STATUS and ADJ_MAXERROR are 0), as a time server's client does.
User-mode Linux has the time of this machine, and no clock with a battery."""


def unit(command: str, kind: str, before: str = "") -> str:
    """A unit that starts at boot."""
    return (
        f"[Unit]\nBefore={before}\n\n[Service]\nType={kind}\nExecStart={command}\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def offline_pod(name: str, index: int) -> JSON:
    """A pod with a secret and a token; some have an init container, a sidecar or a claim."""
    volumes: list[JSON] = [
        {"name": "hidden", "secret": {"secretName": "hidden"}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        {"name": "order", "hostPath": {"path": LOG, "type": "DirectoryOrCreate"}},
    ]
    more: JSON = {}
    say = f"read up idle </proc/uptime; echo {{}} {name} $up >>/order/log"
    test = 'test -s /token/token && [ "$KEY" = "$(cat /hidden/key)" ] && test -s /hidden/key'
    if index in WITH_CLAIM:
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": name}})
        test += " && echo start >>/data/starts"
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    if index % 3 == 0:
        volumes.append({"name": "words", "configMap": {"name": "words"}})
        words = [{"name": "words", "mountPath": "/words"}]
        more["initContainers"] = [container("init", "test -s /words/a", volumeMounts=words)]
    if index % 5 == 0:
        more.setdefault("initContainers", []).append(container("side", restartPolicy="Always"))
        ready = {"exec": {"command": ["test", "-s", "/token/token"]}, "periodSeconds": 10}
        more["probe"] = {"readinessProbe": {**ready, "timeoutSeconds": 10}}
    main = container(
        script=f"{test} || exit 1; trap '{say.format('end')}; exit 0' TERM;"
        f" {say.format('start')}; {SLEEPS}",
        env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "key"}}}],
        volumeMounts=mounts,
        **more.pop("probe", {}),
    )
    # a busy machine boots for longer than the 300 s after which pods are replaced by default
    patient = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}
    return pod(name, main, volumes=volumes, tolerations=[patient], **more)


def claim(name: str, namespace: str) -> Sequence[JSON]:
    """A claim and the volume that it is bound to."""
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    csi = {"driver": DRIVER, "volumeHandle": name}
    claimed = {"name": name, "namespace": namespace}
    volume = {"capacity": {"storage": "16Mi"}, "csi": csi, "claimRef": claimed}
    request = {"resources": {"requests": {"storage": "16Mi"}}, "volumeName": name}
    return (
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
         "spec": {**common, **volume, "persistentVolumeReclaimPolicy": "Retain"}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
         "spec": {**common, **request}},
    )  # fmt: skip


@dataclass
class Ended:
    """Pods that were deleted or replaced meanwhile: seconds after contact.

    ``requested``: until the runtime logged the request to stop each container; ``ended``: until
    each main container had SIGTERM.
    """

    requested: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)


@dataclass
class Boots:
    """Measurements of boots, in seconds until all pods were Ready.

    ``ready``: since the runtime ran; ``quiet``: from power on, without the time for which the node
    waited for a processor of this machine, so what a quiet machine would take.
    """

    ready: list[float] = field(default_factory=list)
    quiet: list[float] = field(default_factory=list)


@dataclass
class Figures:
    """Measurements of all boots, in seconds.

    ``slower``: how much longer each boot offline took than the one online just before, on a quiet
    machine. How busy this machine is changes within minutes.
    """

    online: Boots = field(default_factory=Boots)
    offline: Boots = field(default_factory=Boots)
    slower: list[float] = field(default_factory=list)
    left: Ended = field(default_factory=Ended)

    def summary(self) -> str:
        """Medians and maxima."""
        lists = {
            "online": self.online.ready,
            "offline": self.offline.ready,
            "online, quiet": self.online.quiet,
            "offline, quiet": self.offline.quiet,
            "slower": self.slower,
            **vars(self.left),
        }
        return "; ".join(
            f"{name}: {len(each)}, median {statistics.median(each):.2f}, at most {max(each):.2f}"
            for name, each in lists.items()
            if each
        )


class Site:
    """Ten pods on one node, which loses its power and its uplink."""

    def __init__(self, cluster: Cluster, namespace: Namespace, down: Member) -> None:
        self.cluster, self.namespace, self.down = cluster, namespace, down
        self.other = cluster.members[0]
        self.names = [f"p{down.number}-{index}" for index in range(PODS)]
        self.restarts: dict[str, int] = {}
        self._install()
        for index in WITH_CLAIM:
            namespace.apply(*claim(self.names[index], namespace.name))
        self.settle()

    def _install(self) -> None:
        """The driver, the clock, and an agent that keeps a record."""
        down = self.down
        archive = self.cluster.plane.directory / f"driver-{down.number}.tar"
        with tarfile.open(archive, "w") as packed:
            for part in ("__init__.py", "csi_driver"):
                packed.add(CHECKOUT / "tests" / part, f"tests/{part}")
        down.machine.copy_in(archive, "/tmp/driver.tar")
        down.write("/opt/lab/clock.py", CLOCK)
        down.machine.copy_in(Path(__file__).with_name("guest_watch.py"), WATCH)
        python = "/usr/bin/python3"
        clock = unit(f"{python} /opt/lab/clock.py", "oneshot", "kubeletpy.service")
        registry = "/var/lib/kubelet/plugins_registry"
        option = f"--option=node_id={down.name}"
        driver = f"{python} -m tests.csi_driver {STORAGE} --registry={registry} {option}"
        down.write("/etc/systemd/system/lab-clock.service", clock)
        down.write("/etc/systemd/system/lab-driver.service", unit(driver, "exec"))
        down.write(OFFLINE, f"[Service]\nExecStart=\nExecStart={RUN}\n")
        made = [  # a volume whose name is its id would be an inline one, removed with its pod
            f"Volumes(Path('{STORAGE}/volumes')).save(Volume('{name}', 'own', 1 << 24, False))"
            for name in (self.names[index] for index in WITH_CLAIM)
        ]
        imports = "from pathlib import Path; from tests.csi_driver.volumes import Volume, Volumes"
        down.shell(
            f"tar -C {LIBRARY} -xf /tmp/driver.tar && python3 -m compileall -q {LIBRARY}/tests;"
            f' mkdir -p {STORAGE}/volumes {LOG} && python3 -c "{"; ".join((imports, *made))}"'
            # no pod uses a Service here, and the kernel of testing has no iptables
            " && systemctl daemon-reload && systemctl disable --now kube-proxy"
            " && systemctl enable --now lab-clock lab-driver"
            " && systemctl restart kubeletpy && sync"
        )

    def remove(self) -> None:
        """Make the node what it was."""
        self.namespace.remove()
        volumes = [self.names[index] for index in WITH_CLAIM]
        self.cluster.default.kubectl("delete", "persistentvolume", *volumes)
        self.down.shell(
            "systemctl disable --now lab-clock lab-driver; systemctl enable --now kube-proxy;"
            f" rm {OFFLINE}; rm -r {STORAGE} {LOG}; systemctl daemon-reload;"
            " systemctl restart kubeletpy"
        )

    # -- the cluster's side ---------------------------------------------------------------------

    def settle(self) -> None:
        """Create what is missing, and wait until all pods run and the record shows them."""
        made = [offline_pod(name, index) for index, name in enumerate(self.names)]
        for each in made:
            each["spec"]["nodeName"] = self.down.name
        self.namespace.apply(*made)
        self.attach()
        self.namespace.wait("condition=Ready", *(f"pod/{name}" for name in self.names))
        self.note_restarts()

    def note_restarts(self) -> None:
        """Note the restarts so far, and let the record be written: that takes two seconds."""
        self.restarts = {name: restarts(each) for name, each in self.pods().items()}
        time.sleep(5)

    def attach(self) -> None:
        """Do the attacher's work, for the attachments that the controller makes."""

        def attached() -> bool:
            listed = json.loads(self.namespace.kubectl("get", "volumeattachments", "-o", "json"))
            ours = [each for each in listed["items"] if each["spec"]["nodeName"] == self.down.name]
            for each in ours:
                if not (each.get("status") or {}).get("attached"):
                    name, patch = each["metadata"]["name"], '{"status":{"attached":true}}'
                    kind = "volumeattachment", name, "--subresource=status", "--type=merge"
                    self.namespace.kubectl("patch", *kind, "-p", patch)
            return len(ours) == len(WITH_CLAIM)

        wait_until(attached, "attachments of both volumes", timeout=WITHIN_S, interval=0.5)

    def pods(self) -> dict[str, JSON]:
        """The pods of the node that the API has, by name."""
        selector = f"--field-selector=spec.nodeName={self.down.name}"
        listed = json.loads(self.namespace.kubectl("get", "pods", selector, "-o", "json"))
        return {each["metadata"]["name"]: each for each in listed["items"]}

    def await_reported(self, names: Sequence[str]) -> None:
        """Wait until the API has the statuses of this boot, with the restarts that it took."""

        def reported() -> bool:
            found = self.pods()
            return all(
                restarts(found[name]) > self.restarts[name] and is_ready(found[name])
                for name in names
            )

        wait_until(reported, "statuses of this boot", timeout=WITHIN_S, interval=0.5)
        found = self.pods()
        for name in names:
            (status,) = found[name]["status"]["containerStatuses"]
            more = restarts(found[name]) - self.restarts[name]
            last = status["lastState"]["terminated"]["reason"]
            # a runtime may fail to start one
            assert more == 1 or last == "StartError", f"{name} was restarted {more} times: {status}"

    # -- the boots ------------------------------------------------------------------------------

    def boot(self, figures: Boots, *, online: bool) -> float:
        """Power is cut and comes back; measure when all pods are Ready, as on a quiet machine."""
        self.down.shell(f"rm -f {LOG}/log; sync")
        self.down.machine.cut_power()
        self.cluster.network.plug(self.down.number, online)
        self.down.machine.boot()
        command = "python3", WATCH, self.namespace.name, str(WITHIN_S), *self.names
        done = self.down.machine.run(*command, timeout=WITHIN_S + 60)
        busy = self.down.machine.processor_seconds()
        assert not done.status, done.output
        ready, idle = map(float, done.output.splitlines()[-1].split())
        figures.ready.append(ready)
        figures.quiet.append(busy + idle)
        return busy + idle

    def leave_meanwhile(self, draw: random.Random) -> dict[str, str]:
        """Delete three pods, one by force, and one to be replaced; return the uid of each."""
        deleted, forced = draw.sample(self.names, 2)
        without = [each for i, each in enumerate(self.names) if i not in WITH_CLAIM]
        replaced = draw.choice([each for each in without if each not in (deleted, forced)])
        uids = {name: self.pods()[name]["metadata"]["uid"] for name in (deleted, forced, replaced)}
        self.namespace.kubectl("delete", "pod", deleted, "--wait=false")
        by_force = "--force", "--grace-period=0"
        self.namespace.kubectl("delete", "pod", forced, replaced, *by_force)
        made = offline_pod(replaced, self.names.index(replaced))
        made["spec"]["nodeName"] = self.other.name
        self.namespace.apply(made)
        self.namespace.wait("condition=Ready", f"pod/{replaced}")
        return uids

    def come_back(self, left: dict[str, str]) -> Ended:
        """Restore the uplink; return how long after contact the pods that had left were stopped."""
        ended = self.logged("end")
        assert not ended, f"pods were stopped without contact: {ended}"
        self.cluster.network.plug(self.down.number, True)
        self.cluster.wait_ready(self.down)
        self.down.until(f"journalctl -b -u kubeletpy | grep -q '{CONTACT}'")
        for uid in left.values():
            self.down.await_removal(uid)
        self.await_reported([name for name in self.names if name not in left])
        contact = self.journal("kubeletpy", CONTACT)[0]
        ended = self.logged("end")
        assert set(ended) == set(left), f"stopped: {sorted(ended)}, had left: {sorted(left)}"
        started = self.logged("start")
        assert set(started) == set(self.names)
        mounts = self.down.shell("awk '{print $5}' /proc/self/mountinfo | grep /pods/")
        assert not any(uid in mounts for uid in left.values()), mounts
        if left:
            self.namespace.kubectl("delete", "pod", "--ignore-not-found", *left)
            self.settle()
        requests = self.journal("containerd", "StopContainer for") if left else []
        return Ended(
            [each - contact for each in requests if each > contact],
            [each - contact for each in ended.values()],
        )

    def journal(self, unit: str, text: str) -> list[float]:
        """When a unit logged a text, in seconds since the boot."""
        command = f"journalctl -b -u {unit} -o short-monotonic -g '{text}' --no-pager"
        return [
            float(line.strip("[").split("]")[0]) for line in self.down.shell(command).splitlines()
        ]

    def logged(self, what: str) -> dict[str, float]:
        """When each pod wrote such a line, in seconds since the boot; none wrote two."""
        lines = [line.split() for line in self.down.shell(f"cat {LOG}/log").splitlines()]
        found = [(name, float(at)) for kind, name, at in lines if kind == what]
        assert len(found) == len(dict(found)), found
        return dict(found)


def restarts(item: JSON) -> int:
    """How often the main container was restarted."""
    (status,) = item["status"]["containerStatuses"]
    return int(status["restartCount"])


def is_ready(item: JSON) -> bool:
    """Whether all containers are ready, by the API."""
    return all(each["ready"] for each in item["status"]["containerStatuses"])


def boots(site: Site, turns: Sequence[int], draw: random.Random, figures: Figures) -> None:
    """In each turn boot online, offline, and offline with pods that leave meanwhile."""
    for turn in turns:
        before = site.boot(figures.online, online=True)
        site.await_reported(site.names)
        site.note_restarts()
        for leave in (False, True):
            took = site.boot(figures.offline, online=False)
            figures.slower.append(took - before)
            left = site.leave_meanwhile(draw) if leave else {}
            ended = site.come_back(left)
            site.note_restarts()
            figures.left.requested += ended.requested
            figures.left.ended += ended.ended
            print(f"turn {turn} of {site.down.name}: {figures.summary()}", flush=True)


@pytest.mark.long
def test_boots_without_an_api_server(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--seed") or random.randrange(1 << 30)
    count = request.config.getoption("--boots")
    print(f"--seed {seed}")
    driver = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}}
    cluster.default.apply({**driver, "spec": {"attachRequired": True}})
    figures, downs = Figures(), cluster.members[1:]

    def live(down: Member) -> None:
        if turns := range(down.number - 1, count // 2, len(downs)):
            namespace = cluster.new_namespace(f"offline-{down.number}")
            namespace.apply(secret("hidden", key="hush"), config_map("words", a="b"))
            site, draw = Site(cluster, namespace, down), random.Random(seed + down.number)
            boots(site, turns, draw, figures)
            site.remove()

    with ThreadPoolExecutor() as together:  # threads are in the network of this one
        for each in [together.submit(live, down) for down in downs]:
            each.result()
    cluster.default.kubectl("delete", "csidriver", DRIVER)
    print(figures.summary())
    assert statistics.median(figures.slower) <= 10
