"""The Go kubelet and the agent hand a node to each other, and its pods stay unchanged.

Collected where the programs contain a kubelet, or with ``--switches NUMBER``, which builds one;
``-s`` prints the measures. ``--switches 10 --switch-pods 30`` is the proof of docs/adopting.md.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.probes.schedule import RESTART_SLACK_S
from tests.cluster.claimed_devices import ClaimedDevices, claimed_devices
from tests.cluster.conftest import built_kubelet
from tests.cluster.held_pulls import HeldPull
from tests.cluster.kept import AGENT, KUBELET, conditions, kept_fields, side_at
from tests.cluster.kubelet_node import FOREVER, KubeletNode, kubelet_node_of
from tests.cluster.node import WITHIN
from tests.cluster.objects import claim, config_map, csi_driver, secret, volume
from tests.cluster.rich_pods import CONFIG, SECRET, differences, rich_pod
from tests.cluster.watching import Change, watched
from tests.integration.node.machine import ROOT
from tests.integration.node.pods import DEAF
from tests.integration.storage.driver import DriverProcess
from tests.kit.held_registry import HeldRegistry
from tools.control_plane.plane import ControlPlane
from tools.env.cri import RawRuntime
from tools.env.ports import free_port
from tools.env.process import Daemon

pytestmark = pytest.mark.timeout(3000)
DRIVER, RESOURCE = "switches.csi.example.com", "test.example/dev"
SETTINGS: JSON = {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "100m"}, "maxPods": 110}
SETTLED_S = 3.0
"""Seconds after a switch until new pods run: longer than the periods of probes."""
GRACE_S = 15
"""Grace period of a pod that is deleted before a switch and must be killed after it."""
HOURS_S = 7200
TOGETHER = 10
"""Rich pods that are created at once: more of them start late on a busy machine."""
RESTARTING = ("crashes", "unpulled", "late")
"""Pods whose containers change by themselves, or by a rule that is tested separately."""


@dataclass
class Measured:
    """Measurements of one switch.

    Attributes:
        began: when the old program got its SIGTERM, in seconds since the epoch.
        ended: seconds from then until it had exited.
        gap: seconds until the first status of a pod that was created meanwhile.
        late: seconds by which a Terminating pod outlived its grace period.
        streams: when an exec session and `logs -f` ended.
        pulls: at which byte of the layer each pull of one image began.
        prepared: how often the driver has prepared a running pod's claim so far.
    """

    to: str
    began: float = 0.0
    ended: float = 0.0
    gap: float = 0.0
    late: float = 0.0
    streams: dict[str, float] = field(default_factory=dict)
    pulls: list[int] = field(default_factory=list)
    prepared: int = 0

    def __str__(self) -> str:
        streams = ", ".join(f"{name} {at:.1f}" for name, at in self.streams.items())
        return (
            f"to the {self.to:7}  old exited {self.ended:4.1f}  gap {self.gap:4.1f}"
            f"  Terminating {self.late:+5.1f}  streams ended: {streams}"
            f"  pulls from bytes {self.pulls}  claim prepared {self.prepared} times"
        )


class Switches:
    """The pods of a node, and what happened to them."""

    def __init__(
        self, node: KubeletNode, program: Path, registry: HeldRegistry, claimed: ClaimedDevices
    ) -> None:
        self.node, self._program = node, program
        self._registry, self._claimed = registry, claimed
        self.side = KUBELET
        self.changes: list[Change] = []

    def switch(self, turn: int) -> Measured:
        """Replace one program by the other, while one pod is created and one deleted."""
        node, comes, goes = self.node, f"comes-{turn}", f"comes-{turn - 1}"
        measured = Measured(AGENT if self.side == KUBELET else KUBELET)
        with ExitStack() as streams:
            ends = [
                streams.enter_context(self._stream(*command))
                for command in (("exec", "-i", "talks", "--", "cat"), ("logs", "-f", "talks"))
            ]
            pull = HeldPull(node, self._registry, turn)
            node.kubectl("delete", "pod", goes, "--wait=false")
            measured.began = began = time.time()
            node.agent.kill(signal.SIGTERM)
            measured.ended = time.time() - began
            self._start(measured.to)
            node.apply(self.deaf(comes))
            node.wait_ready(comes)
            measured.gap = self._first_status(comes) - began
            for name, end in zip(("exec", "logs"), ends, strict=True):
                measured.streams[name] = (end[0] if end else float("inf")) - began
        node.kubectl("wait", "--for=delete", f"pod/{goes}", WITHIN)
        measured.late = self._deleted(goes)
        assert node.kubectl("exec", "talks", "--", "echo", "heard") == "heard\n"
        measured.pulls = pull.complete(self.changes)
        self._use_a_device(turn)
        self._claimed.check_kept("gpu")
        self._claimed.delete(f"uses-gpu-{turn - 1}")
        self._claimed.create(f"uses-gpu-{turn}")
        measured.prepared = self._claimed.prepared("gpu")
        time.sleep(SETTLED_S)
        return measured

    def deaf(self, name: str) -> JSON:
        """A pod that uses up its grace period."""
        return self.node.pod(name, DEAF, terminationGracePeriodSeconds=GRACE_S)

    def containers(self) -> dict[str, str]:
        """Names of running containers by id, as the runtime has them."""
        with RawRuntime(self.node.runtime.socket) as raw:
            return {
                each.id: f"{pod}/{each.metadata.name}"
                for each in raw.containers()
                if not (pod := each.labels["io.kubernetes.pod.name"]).startswith(RESTARTING)
                and not pod.startswith(("comes-", "uses-", "pulls-"))
            }

    def _start(self, side: str) -> None:
        self.side = side
        if side == AGENT:
            self.node.start()
        else:
            self.node.start_kubelet(self._program)

    @contextmanager
    def _stream(self, *command: str) -> Iterator[list[float]]:
        ended: list[float] = []
        with self.node.kubectl_process(*command) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("open\n")
            process.stdin.flush()
            process.stdout.readline()

            def drain() -> None:
                assert process.stdout is not None
                for _ in process.stdout:
                    pass
                ended.append(time.time())

            draining = threading.Thread(target=drain)
            draining.start()
            yield ended
            process.kill()
            draining.join()

    def _first_status(self, name: str) -> float:
        def found() -> float | None:
            seen = (each for each in self.changes if each.name == name)
            return next((each.at for each in seen if "startTime" in each.item["status"]), None)

        at = self.node.until(found, f"a status of {name} in the watch")
        assert at is not None
        return at

    def _deleted(self, name: str) -> float:
        def found() -> float | None:
            ended = (each for each in self.changes if each.name == name and each.kind == "DELETED")
            # a pod whose grace period is over is deleted with 0 s, from that moment
            requested = (each for each in self.changes if each.name == name)
            times = [
                _seconds(at)
                for each in requested
                if (at := each.item["metadata"].get("deletionTimestamp"))
            ]
            return next((each.at - times[0] for each in ended), None)

        at = self.node.until(found, f"the end of {name} in the watch")
        assert at is not None
        return at

    def _use_a_device(self, turn: int) -> None:
        node, name = self.node, f"uses-{turn}"
        amount = rf".status.allocatable.{RESOURCE.replace('.', chr(92) + '.')}"
        node.until(
            lambda: node.read("node", node.name, amount) == "3", "the plugin's devices on the node"
        )
        node.apply(user(node, name))
        node.wait_ready(name)
        variable = [
            node.kubectl("exec", pod, "--", "sh", "-c", "echo $DEVICES") for pod in (name, "device")
        ]
        assert variable[0] != variable[1], "a device of two pods"
        node.kubectl("delete", "pod", name, WITHIN)


def user(node: KubeletNode, name: str) -> JSON:
    """A pod with a device."""
    return node.pod(name, FOREVER, {"resources": {"limits": {RESOURCE: "1"}}})


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.fixture
def registry(short_dir: Path, kubelet_node: KubeletNode) -> Iterator[HeldRegistry]:
    made = HeldRegistry(short_dir)
    kubelet_node.runtime.trust(made.server)
    yield made
    made.close()


@pytest.fixture
def claimed(kubelet_node: KubeletNode) -> Iterator[ClaimedDevices]:
    with claimed_devices(kubelet_node) as made:
        yield made


@pytest.fixture
def kubelet_node(
    short_dir: Path, plane: ControlPlane, request: pytest.FixtureRequest
) -> Iterator[KubeletNode]:
    program = built_kubelet(request.config)
    with kubelet_node_of(short_dir / "s", plane, program, **SETTINGS) as node:
        plugins = node.directory / "plugin"
        plugins.mkdir()
        devices = {f"d{number}": "Healthy" for number in range(3)}
        (plugins / "devices.json").write_text(json.dumps(devices))
        plugin = Daemon("device-plugin", plugins)
        command = [sys.executable, "-m", "tests.device_plugin", str(plugins)]
        sockets = [f"--sockets={node.root_dir}/device-plugins", f"--resource={RESOURCE}"]
        plugin.start([*command, *sockets], {**os.environ, "PYTHONPATH": str(ROOT)})
        driver = DriverProcess(node.directory / "csi", node.root_dir / "plugins_registry", DRIVER)
        driver.start()
        try:
            node.apply(csi_driver(DRIVER, "Persistent", "Ephemeral"))
            node.apply(volume("data", DRIVER, driver.volume("data")), claim("data"))
            path = f"--for=jsonpath={{.spec.drivers[0].name}}={DRIVER}"
            node.kubectl("wait", path, f"csinode/{node.name}", WITHIN)
            yield node
        finally:
            plugin.kill()
            try:
                node.kubectl("delete", "pod/lingers", "--force", "--grace-period=0")
                node.kubectl("delete", "pods", "--all", WITHIN)
                node.kubectl("delete", "pvc/data", "pv/data", f"csidriver/{DRIVER}", WITHIN)
            finally:
                driver.remove()


def batched(names: Sequence[str], number: int) -> Iterator[Sequence[str]]:
    """The names in groups; itertools has this from Python 3.12 on."""
    for first in range(0, len(names), number):
        yield names[first : first + number]


def create_pods(node: KubeletNode, number: int) -> tuple[list[str], int]:
    """Create pods of many kinds; the names of those that must not change, and a host port."""
    port = free_port()
    names = [f"rich-{index}" for index in range(number)]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("data", "inline")]
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "inline", "csi": {"driver": DRIVER}},
    ]
    whole = {"limits": {"cpu": "1", "memory": "32Mi"}}
    small = {"requests": {"cpu": "20m"}, "limits": {"cpu": "50m", "memory": "32Mi"}}
    served = "mkdir /www; echo page >/www/index.html; exec httpd -f -p 8080 -h /www"
    node.apply(config_map(CONFIG, word="one"), secret(SECRET, word="two"))
    for group in batched(names, TOGETHER):
        node.apply(*(rich_pod(node.name, name) for name in group))
        node.wait_ready(*group)
    node.apply(
        node.pod("claims", FOREVER, {"volumeMounts": mounts}, volumes=volumes),
        node.pod("ports", served, {"ports": [{"containerPort": 8080, "hostPort": port}]}),
        node.pod("alone", FOREVER, {"resources": whole}),
        node.pod("resized", FOREVER, {"resources": small}),
        user(node, "device"),
        node.pod("talks", "while :; do date; sleep 1; done"),
        node.pod("lingers", DEAF, terminationGracePeriodSeconds=HOURS_S),
        node.pod("done", "exit 0", restartPolicy="Never"),
        node.pod("crashes", "exit 1"),
        node.pod("unpulled", "exit 0", {"image": "127.0.0.1:1/none:1"}),
        node.pod("comes-0", DEAF, terminationGracePeriodSeconds=GRACE_S),
    )
    node.write_static("fixed", uid="3f6c8a52-9e0f-4b54-8c2e-6f9a1b7d1c11")
    node.write_static("bare")
    statics = [node.static(name) for name in ("fixed", "bare")]
    for name in statics:
        node.kubectl("wait", "--for=create", f"pod/{name}", WITHIN)
    special = ("claims", "ports", "alone", "resized", "device", "talks")
    lasting_ones = [*names, *special, *statics, "lingers"]
    node.wait_ready(*lasting_ones)
    node.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/done", WITHIN)
    larger = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "60m"}}}]}}
    patch = ("--subresource", "resize", "--patch", json.dumps(larger))
    node.kubectl("patch", "pod", "resized", *patch)
    path = ".status.containerStatuses[0].resources.limits.cpu"
    node.until(lambda: node.read("pod", "resized", path) == "60m", "the resized container")
    node.kubectl("delete", "pod", "lingers", "--wait=false")
    return [*lasting_ones, "done"], port


def pods(node: KubeletNode) -> dict[str, JSON]:
    """The node's pods by name."""
    listed = json.loads(node.kubectl("get", "pods", "-o", "json"))["items"]
    return {each["metadata"]["name"]: each for each in listed}


def waits(changes: list[Change], turns: Sequence[tuple[str, float]]) -> list[str]:
    """Seconds between the runs of the crashing container, with the program that made each wait."""
    started, ended = dict[int, float](), dict[int, float]()
    for change in changes:
        if change.name != "crashes" or change.kind == "DELETED":
            continue
        for each in change.item["status"].get("containerStatuses") or ():
            number, now = each["restartCount"], each["state"]
            # the last state is the run before, or the latest one while the container waits
            before = each.get("lastState") or {}
            if before == now:  # a program that starts may show one run as both
                before = {}
            for run, state in ((number, now), (number - ("waiting" not in now), before)):
                if found := state.get("terminated"):
                    started[run] = _seconds(found["startedAt"])
                    ended[run] = _seconds(found["finishedAt"])
    found = []
    for one, two in pairwise(sorted(started)):
        if two == one + 1:
            by = side_at(started[two], turns)
            found.append(f"{by} run {two} after {started[two] - ended[one]:.0f} s")
    return found


def test_switches_leave_pods_unchanged(
    kubelet_node: KubeletNode,
    registry: HeldRegistry,
    claimed: ClaimedDevices,
    request: pytest.FixtureRequest,
) -> None:
    node = kubelet_node
    count = request.config.getoption("--switches") or 2
    names, port = create_pods(node, request.config.getoption("--switch-pods"))
    for name in ("gpu", "uses-gpu-0"):
        claimed.create(name)
    names.append("gpu")
    switches = Switches(node, built_kubelet(request.config), registry, claimed)
    time.sleep(RESTART_SLACK_S)  # younger containers are judged anew, by both programs
    before, held = pods(node), switches.containers()
    cpu = node.kubectl("exec", "alone", "--", "grep", "Cpus_allowed_list", "/proc/self/status")
    late: list[str] = []
    measures: list[Measured] = []
    problems: list[str] = []
    own = f"--field-selector=metadata.name={node.name}"
    with watched(node, "pods") as changes, watched(node, "nodes", own) as of_node:
        switches.changes = changes
        for turn in range(1, count + 1):
            measures.append(switches.switch(turn))
            print(turn, measures[-1], flush=True)
            now = switches.containers()
            problems += [f"{turn}: {held[each]} was stopped" for each in held.keys() - now.keys()]
            problems += [f"{turn}: {now[each]} was started" for each in now.keys() - held.keys()]
            held = now
            command = ("exec", "alone", "--", "grep", "Cpus_allowed_list", "/proc/self/status")
            assert node.kubectl(*command) == cpu
            host = node.read("pod", "ports", ".status.hostIP")
            with urllib.request.urlopen(f"http://{host}:{port}/", timeout=10) as answer:
                assert answer.read() == b"page\n"
            if turn == 1:
                node.write_static("late")
                node.kubectl("wait", "--for=create", f"pod/{node.static('late')}", WITHIN)
                node.wait_ready(node.static("late"))
            late.append(
                node.read("pod", node.static("late"), ".status.containerStatuses[0].containerID")
            )
        after = pods(node)
    turns = [(each.to, each.began) for each in measures]
    print("waits of the crashing container:", waits(changes, turns))
    kept = {name: kept_fields(before[name]) for name in names}
    for each in changes:
        if each.name in kept:
            found = differences(kept[each.name], kept_fields(each.item))
            problems += [f"{side_at(each.at, turns)}: {each.name}: {one}" for one in found]
    first = conditions(of_node[0].item)
    for each in of_node:
        found = differences(first, conditions(each.item))
        problems += [f"{side_at(each.at, turns)}: node: {one}" for one in found]
    problems += [
        f"at the end {one}" for one in differences(kept, {n: kept_fields(after[n]) for n in names})
    ]
    print(
        "containers of the static pod that the agent made first:",
        [late.index(each) + 1 for each in late],
    )
    assert not problems, "\n".join(dict.fromkeys(problems))
    assert (
        after["lingers"]["metadata"]["deletionTimestamp"]
        == before["lingers"]["metadata"]["deletionTimestamp"]
    )
    waiting = after["unpulled"]["status"]["containerStatuses"][0]
    assert waiting["state"]["waiting"]["reason"] in ("ImagePullBackOff", "ErrImagePull")
    # a program that starts gives a Terminating pod its full grace period again, never less
    assert all(-1 < each.late < each.gap + GRACE_S for each in measures)
    assert late[1:] == late[1:2] * (count - 1), "the kubelet makes it anew once"
    counts = [
        each.item["status"]["containerStatuses"][0]["restartCount"]
        for each in changes
        if each.name == "crashes" and each.kind != "DELETED"
    ]
    assert counts == sorted(counts)
    for name in ("gpu", f"uses-gpu-{count}"):
        claimed.delete(name)
    claimed.assert_each_was_unprepared_once()
