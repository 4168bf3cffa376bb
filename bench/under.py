"""``python -m bench.under``: the CPU time of a pod's start and end below the CRI, by program.

A private containerd runs with each variant of its configuration by turns. In each round, raw CRI
calls create and remove pods. Shims are orphans: this process adopts them, and reads their times
before it reaps them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

from bench.manifests import as_pod, container_config, manifest, sandbox_config
from bench.usage import Times, cpu_times
from kubeletpy.remote.generated import api_pb2 as cri
from tools.env import debian
from tools.env.containerd import Containerd, programs
from tools.env.cri import RawRuntime
from tools.env.images import PAUSE
from tools.env.process import run
from tools.env.runc import current_crun, current_runc
from tools.env.sweep import remove_cgroup
from tools.env.waiting import wait_until

PARALLEL = 8
CGROUP = f"/kpb-under-{os.getpid()}"
_SHIM = "containerd-shim"
_UNIFIED = Path("/sys/fs/cgroup/unified")
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS = 0x20000
_CNI_FOLDER = "/usr/lib/cni"
_LOOPBACK = "use_internal_loopback = "
_PORTS = "enable_unprivileged_ports = "
_ICMP = "enable_unprivileged_icmp = "
_GRPC = '["grpc"]'


@dataclass(frozen=True, slots=True)
class Variant:
    """A configuration of the runtime: what most nodes have, with one change.

    Attributes:
        masquerade: the bridge plugin makes rules for each pod.
        host_ports: the portmap plugin is called for each pod.
        loopback: the loopback plugin is called for each pod.
        settings: text in config.toml -> its replacement.
        environment: of the daemon, inherited by all that it starts.
        host_network: of the pods.
        seccomp: sandboxes have the runtime's profile, as those of an agent.
        runc: finds another OCI runtime than the installed one.
        plugins: finds other CNI plugins than the installed ones.
        newest: needs containerd 2.x.
    """

    name: str
    masquerade: bool = True
    host_ports: bool = True
    loopback: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    host_network: bool = False
    seccomp: bool = True
    runc: Callable[[], Path] | None = None
    plugins: Callable[[], Path] | None = None
    newest: bool = False


def _current_plugins() -> Path:
    return debian.unpacked("containernetworking-plugins", "testing") / _CNI_FOLDER.lstrip("/")


VARIANTS = (
    Variant("as most nodes"),
    Variant("one rule for all pods", masquerade=False),
    Variant("no portmap", host_ports=False),
    Variant("internal loopback", loopback=False, newest=True),
    Variant("runc 1.3", runc=current_runc),
    Variant("crun", runc=current_crun),
    Variant("testing's CNI plugins", plugins=_current_plugins),
    Variant("host network", host_network=True),
    Variant("no seccomp for sandboxes", seccomp=False),
    Variant(
        "no unprivileged ports",
        settings={f"{each}true": f"{each}false" for each in (_PORTS, _ICMP)},
    ),
    Variant("log level warn", settings={_GRPC: f'["debug"]\nlevel = "warn"\n{_GRPC}'}),
    Variant(
        "bolt without fsync",
        settings={_GRPC: f'["plugins"."io.containerd.metadata.v1.bolt"]\nno_sync = true\n{_GRPC}'},
        newest=True,
    ),
    Variant("GOMAXPROCS=1", environment={"GOMAXPROCS": "1"}),
    Variant("GOGC=off", environment={"GOGC": "off"}),
    Variant("as ./up.sh", masquerade=False, loopback=False),
    Variant("as ./up.sh, crun", masquerade=False, loopback=False, runc=current_crun),
    Variant("all", masquerade=False, host_ports=False, loopback=False, runc=current_crun),
)


@dataclass(frozen=True, slots=True)
class Round:
    """Milliseconds of CPU per pod, and seconds until all pods ran and until all were removed.

    Attributes:
        containerd: the daemon.
        plugins: its children: CNI plugins and the starts and ends of shims.
        shims: themselves.
        runc: their children: the OCI runtime and the processes of the pod.
    """

    containerd: float
    plugins: float
    shims: float
    runc: float
    start: float
    end: float

    @property
    def figures(self) -> tuple[float, ...]:
        """The sum of the processor times, and all figures."""
        return (self.containerd + self.plugins + self.shims + self.runc, *astuple(self))


class _Tuned(Containerd):
    """A containerd with the configuration of a variant."""

    variant = VARIANTS[0]

    def write_configuration(self, sandbox_image: str = PAUSE) -> None:
        super().write_configuration(sandbox_image)
        variant = self.variant
        file = self.directory / "cni" / "10-pods.conflist"
        conflist = json.loads(file.read_text())
        conflist["plugins"][0]["ipMasq"] = variant.masquerade
        if not variant.host_ports:
            del conflist["plugins"][1:]
        file.write_text(json.dumps(conflist))
        changes = dict(variant.settings)
        if variant.loopback and self.generation == 2:
            changes[f"{_LOOPBACK}true"] = f"{_LOOPBACK}false"
        if variant.plugins is not None:
            changes[_CNI_FOLDER] = str(variant.plugins())
        file = self.directory / "config.toml"
        text = file.read_text()
        for old, new in changes.items():
            if old not in text:
                raise RuntimeError(f"{old!r} is not in {file}")
            text = text.replace(old, new)
        file.write_text(text)

    def use(self, variant: Variant) -> int:
        """Restart with a variant; returns the daemon's process id."""
        self.stop()
        self.variant = variant
        self._runc = variant.runc() if variant.runc is not None else None
        kept = {name: os.environ.get(name) for name in variant.environment}
        os.environ.update(variant.environment)
        try:
            self.start()
        finally:
            for name, value in kept.items():
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value
        pid = self.pid
        assert pid is not None, "it is ready"
        return pid


def adopt_orphans() -> None:
    """Become the parent of orphans below this process, and hide cgroup v2 beside version 1.

    The second is in a mount namespace of its own: crun refuses a machine that has both.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if _UNIFIED.is_mount():
        if libc.unshare(_CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "unshare")
        run("mount", "--make-rslave", "/")
        run("mount", "-t", "tmpfs", "none", _UNIFIED)


def _shims() -> Iterator[int]:
    for pid in map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
        if Path(f"/proc/{pid}/comm").read_text().startswith(_SHIM):
            yield pid


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _reap_shims() -> Times:
    """Wait for the end of all shims; returns their times and their children's."""
    wait_until(lambda: all(map(_is_zombie, _shims())), "the end of all shims")
    total = Times(0.0, 0.0)
    for pid in list(_shims()):
        total += cpu_times(pid)
        os.waitpid(pid, 0)
    return total


def _start(raw: RawRuntime, variant: Variant, directory: Path, name: str) -> tuple[str, str]:
    """Start a pod with the requests of an agent; returns the ids of sandbox and container."""
    document = manifest(name, "under")
    document["metadata"]["uid"] = str(uuid.uuid4())
    # a default of the API server
    document["spec"] |= {"enableServiceLinks": True, "hostNetwork": variant.host_network}
    pod = as_pod(document)
    sandbox, container = sandbox_config(pod, directory), container_config(pod, directory)
    sandbox.linux.cgroup_parent = f"{CGROUP}/{name}"
    if not variant.seccomp:
        sandbox.linux.security_context.ClearField("seccomp")
    Path(sandbox.log_directory, "main").mkdir(parents=True)
    made = raw.run_sandbox(sandbox)
    request = cri.CreateContainerRequest(
        pod_sandbox_id=made, config=container, sandbox_config=sandbox
    )
    started = str(raw.runtime.CreateContainer(request, timeout=60).container_id)
    raw.start(started)
    return made, started


def _end(raw: RawRuntime, pod: tuple[str, str]) -> None:
    sandbox, container = pod
    raw.stop(container)
    raw.remove_container(container)
    raw.remove_sandbox(sandbox)


def measure(instance: _Tuned, variant: Variant, pods: int) -> Round:
    """Start and end pods with a variant, after two more to warm up."""
    pid = instance.use(variant)
    with RawRuntime(instance.socket) as raw, ThreadPoolExecutor(PARALLEL) as pool:
        start = partial(_start, raw, variant, instance.directory)
        for pod in list(pool.map(start, ["warm-0", "warm-1"])):
            _end(raw, pod)
        _reap_shims()
        before, began = cpu_times(pid), time.monotonic()
        made = list(pool.map(start, [f"pod-{number}" for number in range(pods)]))
        started = time.monotonic()
        list(pool.map(partial(_end, raw), made))
        ended = time.monotonic()
        shims, daemon = _reap_shims(), cpu_times(pid) - before
    remove_cgroup(CGROUP)
    each = 1000 / pods
    return Round(
        containerd=daemon.own * each,
        plugins=daemon.children * each,
        shims=shims.own * each,
        runc=shims.children * each,
        start=started - began,
        end=ended - started,
    )


def table(results: Mapping[str, Sequence[Round]]) -> str:
    """The medians of all rounds of each variant, and the sum as a part of the first variant's."""
    columns = ("CPU", "%", "containerd", "CNI, shim starts", "shims", "runc", "start", "end")
    lines = [f"{'ms per pod; seconds':<26}" + "".join(f"{each:>18}" for each in columns)]
    base = 0.0
    for name, rounds in results.items():
        whole, *parts = map(median, zip(*(each.figures for each in rounds), strict=True))
        base = base or whole
        cells = [f"{whole:.0f}", f"{whole / base:.0%}", *(f"{each:.0f}" for each in parts[:4])]
        cells += [f"{each:.1f}" for each in parts[4:]]
        lines.append(f"{name:<26}" + "".join(f"{each:>18}" for each in cells))
    return "\n".join(lines)


def main() -> int:
    """Measure with the given arguments and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.under", description="Measure what a pod costs below the CRI."
    )
    parser.add_argument("--containerd", type=int, choices=(1, 2), default=2, help="major version")
    parser.add_argument("--pods", type=int, default=60, metavar="N", help="pods in each round")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="turns of all variants")
    parser.add_argument(
        "--variants",
        nargs="+",
        choices=[each.name for each in VARIANTS],
        metavar="NAME",
        help=f"only these of: {', '.join(each.name for each in VARIANTS)}",
    )
    supplied = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: containers need root", file=sys.stderr)
        return 1
    chosen = [
        each
        for each in VARIANTS
        if each.name in (supplied.variants or (each.name,))
        and not (each.newest and supplied.containerd == 1)
    ]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    adopt_orphans()
    directory = Path(tempfile.mkdtemp(prefix="kpb-", dir="/tmp"))
    instance = _Tuned(directory / "c", programs(supplied.containerd), prefix=23)
    results: dict[str, list[Round]] = {each.name: [] for each in chosen}
    try:
        instance.use(chosen[0])
        instance.import_images()
        for _ in range(supplied.turns):
            for variant in chosen:
                results[variant.name].append(measure(instance, variant, supplied.pods))
                print(".", end="", file=sys.stderr, flush=True)
    finally:
        left = instance.remove()
        groups = remove_cgroup(CGROUP, kill=True)
        left += [f"cgroup {path}" for path in groups if not path.is_relative_to(_UNIFIED)]
        for line in left:
            print(f"still there: {line}", file=sys.stderr)
        if not left:
            shutil.rmtree(directory, ignore_errors=True)
    print(
        f"\ncontainerd {supplied.containerd}.x, {supplied.pods} pods, {PARALLEL} at once, "
        f"{supplied.turns} turns, load {os.getloadavg()[0]:.1f}"
    )
    print(table(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
