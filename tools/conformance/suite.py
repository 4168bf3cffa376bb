"""One run of the end-to-end tests: a control plane, a node, the tests, and their reports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tools.conformance.cluster import ProcessCluster, VirtualCluster, api_server_flags
from tools.conformance.images import REGISTRY, cluster_images, needed, stand_ins
from tools.conformance.member import Place
from tools.conformance.node import Node, Setup
from tools.conformance.process import ProcessNode
from tools.conformance.results import progress
from tools.conformance.virtual import VirtualNode
from tools.control_plane.building import (
    CLIENTS,
    DNS,
    END_TO_END_TESTS,
    PROXY,
    Edit,
    ProgramSet,
    programs,
)
from tools.control_plane.plane import LOOPBACK, ControlPlane
from tools.env import containerd
from tools.env.debian import unpacked
from tools.env.images import Image
from tools.env.process import run
from tools.env.registry import Registry
from tools.env.runc import current_runc
from tools.lab.image import build, default_recipe
from tools.lab.kinds import uml_kernel
from tools.lab.network import HOST, Network
from tools.lab.uml import UmlKernel

FOCUS = r"\[sig-(node|storage)\].*\[NodeConformance\]|Pod InPlace Resize"
SKIP = r"\[Alpha\]|\[Feature:OffByDefault|\[Disruptive\]|\[Environment:Windows"
_PROGRESS_S = 60.0
SERIAL = r"\[Serial\]"
LONGEST = "should cap back-off at MaxContainerBackOff"
"""A test that takes 27 minutes, so it runs in parallel with all others from the beginning."""
_NEGATIVE_SCORES = Edit(
    "test/e2e/common/node/framework/cgroups/cgroups.go",
    "if oomScoreAdj != expectedOomScoreAdj {",
    'if oomScoreAdj != expectedOomScoreAdj && !strings.HasPrefix(expectedOomScoreAdj, "-") {',
)
"""Removes one comparison of resize tests: no kubelet passes it unless it may lower scores."""


@dataclass(frozen=True)
class Choice:
    """Which tests are run.

    Attributes:
        focus: regular expression; tests whose names match are run.
        skip: regular expression; tests whose names match are left out.
        at_once: number of parallel tests, except for serial ones.
    """

    focus: str = FOCUS
    skip: str = SKIP
    at_once: int = 10

    def takes(self, test: str) -> bool:
        """Whether a test with this name is run."""
        return bool(re.search(self.focus, test)) and not re.search(self.skip, test)


@dataclass(frozen=True)
class Features:
    """Features that are enabled beside the defaults of a release.

    Attributes:
        gates: feature gates of the node and of the control plane.
        apis: versions of the API, as in --runtime-config of the API server.
    """

    gates: dict[str, bool] = field(default_factory=dict)
    apis: Sequence[str] = ()


@dataclass(frozen=True)
class Machines:
    """The machines that are nodes.

    Attributes:
        nodes: their number.
        suite: the Debian of virtual machines; empty: they are processes of this machine.
        kernel: the Debian of their kernel; empty: the usual one.
        ipv6_first: the first addresses of nodes, pods and Services are those of IPv6.
    """

    nodes: int = 1
    suite: str = ""
    kernel: str = ""
    ipv6_first: bool = False

    @property
    def cluster(self) -> bool:
        """Whether there are several nodes, with Services and DNS."""
        return self.nodes > 1

    @property
    def column(self) -> str:
        """End of the name of an agent's reports."""
        suite = f"-{self.suite}" if self.suite else ""
        family = "-ipv6" if self.ipv6_first else ""
        return f"{suite}-{self.nodes}-nodes{family}" if self.cluster else suite


def run_tests(
    release: str,
    agent: str,
    choice: Choice,
    output: Path,
    *,
    features: Features,
    machines: Machines,
) -> None:
    """Run the tests of a Kubernetes release on nodes of ``agent``; reports go to ``output``.

    The process must have a mount namespace of its own.
    Raises CommandError, GuestError or NotReadyError where no node came to be. A failed test is in
    the report.
    """
    programs(release)
    built = programs(release, tests_for_this_machine())
    if machines.cluster:
        for each in (PROXY, CLIENTS, DNS):
            programs(release, each)
    output.mkdir(parents=True, exist_ok=True)
    address = HOST if machines.cluster or machines.suite else LOOPBACK
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="kpe-", dir="/tmp"))
        stack.callback(shutil.rmtree, home)
        home.chmod(0o711)  # containers in user namespaces have their file systems below it
        plane = ControlPlane(home / "plane", built, address)
        stack.callback(plane.stop)
        pair = plane.authority.issue("images", "localhost", names=("localhost",))
        listed = run(built / "e2e.test", "--list-images")
        if machines.cluster:
            images = cluster_images(listed, built, *pair)
        else:
            images = stand_ins(needed(listed), built, *pair)
        network = None
        # the network has no way to an archive
        disk = build(default_recipe(machines.suite)) if machines.suite else None
        kernel = uml_kernel(machines.suite, machines.kernel)
        if machines.cluster or machines.suite:
            for package in ("etcd-server", "kubectl"):
                unpacked(package, "testing")
            containerd.programs(2)
            current_runc()
            network = stack.enter_context(Network())
            stack.enter_context(network.entered())
        mirror = stack.enter_context(_mirror(home / "r", images, address))
        setup = Setup(home, built, plane, images, mirror.url, features.gates)
        node = _nodes(setup, machines, network, disk, kernel)
        flags = [f"--runtime-config={','.join(features.apis)}"] if features.apis else []
        if machines.cluster:
            flags += api_server_flags(plane.authority, ipv6_first=machines.ipv6_first)
        plane.start(
            flags=flags,
            gates=",".join(f"{name}={str(on).lower()}" for name, on in features.gates.items()),
        )
        try:
            node.start(agent)
            more = [f"--kubectl-path={built / 'kubectl'}"] if machines.cluster else []
            run_ginkgo(built, plane, choice, output, machines.nodes, more=more)
        finally:
            node.remove()
            for name, log in node.logs.items():
                if log.exists():  # its program was started
                    shutil.copy(log, output / name)


def _nodes(
    setup: Setup, machines: Machines, network: Network | None, disk: Path | None, kernel: UmlKernel
) -> Node:
    """The nodes to start; ``network``: of all but one process; ``disk``: of virtual machines."""
    if network is None:
        return ProcessNode(setup)
    if not machines.cluster:
        assert disk is not None
        return VirtualNode(setup, disk, kernel, Place(0, 1, network))
    several = setup, network, machines.nodes
    if disk is None:
        return ProcessCluster(*several, ipv6_first=machines.ipv6_first)
    return VirtualCluster(*several, disk, kernel, ipv6_first=machines.ipv6_first)


def tests_for_this_machine() -> ProgramSet:
    """The tests, without the comparison that cannot hold where scores cannot be lowered."""
    file = Path("/proc/self/oom_score_adj")
    before = file.read_text()
    try:
        file.write_text("-1")
    except OSError:
        print("this machine refuses a negative oom_score_adj: tests do not compare those")
        return replace(END_TO_END_TESTS, edits=(_NEGATIVE_SCORES,))
    file.write_text(before)
    return END_TO_END_TESTS


@contextmanager
def _mirror(directory: Path, images: Sequence[Image], address: str) -> Iterator[Registry]:
    """A registry of this machine with the images, for the tests that pull always."""
    registry = Registry(directory, authenticated=False, address=address)
    registry.start()
    try:
        for image in images:
            registry.push(image, image.name.removeprefix(f"{REGISTRY}/"))
        yield registry
    finally:
        registry.remove()


def run_ginkgo(
    built: Path,
    plane: ControlPlane,
    choice: Choice,
    output: Path,
    nodes: int = 1,
    *,
    more: Sequence[str] = (),
) -> None:
    """Run the parallel tests, then the serial ones; LONGEST beside both.

    ``nodes``: the number of the control plane's nodes; ``more``: further flags of e2e.test.
    """
    ginkgo = [
        str(built / "ginkgo"),
        "--silence-skips",
        "--no-color",
        "--timeout=6h",
        "--poll-progress-after=0s",
    ]

    def start(name: str, *options: str) -> subprocess.Popen[bytes]:
        flags = [
            "--provider=local",
            f"--kubeconfig={plane.admin}",
            f"--num-nodes={nodes}",
            "--disable-log-dump",
            f"--report-dir={output}",
            f"--report-prefix={name}-",
            *more,
        ]
        with (output / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*ginkgo, *options, str(built / "e2e.test"), "--", *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "KUBECONFIG": str(plane.admin)},
                cwd=output,
            )

    started, began = [], time.monotonic()
    if choice.takes(f"[sig-node] Pods {LONGEST} [NodeConformance] [Slow]"):
        started.append(start("longest", f"--focus={LONGEST}", "--procs=1"))
    parallel = f"{choice.skip}|{SERIAL}|{LONGEST}"
    options = f"--focus={choice.focus}", f"--skip={parallel}", f"--procs={choice.at_once}"
    serial = f"({choice.focus}).*{SERIAL}|{SERIAL}.*({choice.focus})"
    try:
        started.append(start("parallel", *options))
        _wait(started[-1], output, began)
        started.append(start("serial", f"--focus={serial}", f"--skip={choice.skip}", "--procs=1"))
        for each in started:
            _wait(each, output, began)
    finally:
        for each in started:
            each.terminate()
            each.wait()


def _wait(program: subprocess.Popen[bytes], output: Path, began: float) -> None:
    """Wait for the end of one ginkgo; print every minute how far all of them are."""
    while True:
        try:
            program.wait(_PROGRESS_S)
            return
        except subprocess.TimeoutExpired:
            files = [output / f"{name}.log" for name in ("longest", "parallel", "serial")]
            logs = [each.read_text(errors="replace") for each in files if each.exists()]
            print(progress(logs, time.monotonic() - began), flush=True)
