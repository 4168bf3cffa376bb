"""States that pods must have reached after a soak, and leftovers when no pods remain."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from bench.manifests import NAMESPACE
from bench.soak.pods import ANY, ENDS, READY, SHARED
from bench.stand import CGROUP_ROOT, NODE, Stand
from bench.usage import memory
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.protocol import CONFIGMAPS
from kubeletpy.metrics.trace.spans import MAX_PODS
from kubeletpy.pods.pod import CONFIG_MIRROR
from kubeletpy.remote.generated import api_pb2 as pb
from tools.env.cri import RawRuntime
from tools.env.sweep import CNI_RESULTS, cgroups, mounts, shims

MEGABYTE = 1 << 20
OBJECTS_A_POD = 120
LONGEST = 200
"""Maximum number of lines of a traceback that are read."""
_CHECKPOINTS = ("allocated_pods_state", "actuated_pods_state")
_KEPT = re.compile(
    r"/image_manager/pulling/sha256-[0-9a-f]{64}$|/flight-recorder/|/explain-troubles\.json$"
)
"""Files kept on purpose, and bounded: interrupted pulls until their image arrives, recordings, and
the times since which pods fail."""
_LOST_TASK = re.compile(r"failed to create containerd task: .*context canceled$")
_BAD = re.compile(r"^[EF]\d{4} |^Traceback|Task exception was never|never awaited")
"""Errors in klog's format, and errors that Python writes outside the log."""
_OF_THE_MACHINE = re.compile(
    r"^E.*(Too many open files|No space left on device|no thread can be made"
    r"|pthread_create failed)"  # gRPC, on stderr
)
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Process:
    """Resources that a process holds: counts, and bytes of resident memory."""

    files: int
    threads: int
    tasks: int
    objects: int
    rss: int

    def grown(self, since: Process, pods: int) -> list[str]:
        """Resources that have grown more than a little since ``since``, with ``pods`` in between.

        A few files are connections kept for the next request. Objects are the events that are
        counted together, and the traces of the last pods for `kubeletpy timeline`. Memory is what
        Python's allocator retains after a burst.
        """
        bounds = {
            "files": since.files + 12,
            "threads": since.threads + 8,
            "tasks": since.tasks + 6,
            "objects": since.objects + 6000 + OBJECTS_A_POD * min(pods, MAX_PODS),
            "rss": since.rss + 25 * MEGABYTE,
        }
        return [
            f"{what} of the agent grew from {getattr(since, what)} to {getattr(self, what)}"
            for what, bound in bounds.items()
            if getattr(self, what) > bound
        ]

    def __str__(self) -> str:
        return (
            f"{self.files} files, {self.threads} threads, {self.tasks} tasks, "
            f"{self.objects} objects, {self.rss / MEGABYTE:.0f} MB"
        )


def process(pid: int, tasks: str, heap: str) -> Process:
    """The agent's process, with the texts of its /debug/pprof: goroutine and heap."""
    return Process(
        files=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        threads=len(list(Path(f"/proc/{pid}/task").iterdir())),
        tasks=int(tasks.partition("total ")[2].split()[0]),
        objects=int(heap.partition("total ")[2].split()[0]),
        rss=memory(pid).rss,
    )


def files(stand: Stand) -> set[str]:
    """Everything below the agent's root and the pods' log directories.

    Files that disappear during the walk are left out: the agent may be removing them.
    """
    return {
        str((Path(folder) / name).relative_to(stand.directory))
        for top in (stand.root_dir, stand.logs)
        for folder, folders, names in os.walk(top)
        for name in (*folders, *names)
    }


def left(stand: Stand, before: set[str], *, lost_count: bool = True) -> list[str]:
    """Leftovers of pods.

    Args:
        stand: the stand to check.
        before: the files that an agent without pods has.
        lost_count: whether what containerd lost counts (:func:`lost_shims`, :func:`lost_tasks`).
    """
    found = [f"API: pod {name}" for name in stand.pods.latest]
    with RawRuntime(stand.agent_runtime.socket) as raw:
        lost = {} if lost_count else _lost_tasks(raw)
        found += [
            f"runtime: sandbox {each.metadata.name}"
            for each in raw.sandboxes()
            if each.id not in lost.values()
        ]
        found += [
            f"runtime: container {each.metadata.name}"
            for each in raw.containers()
            if each.id not in lost
        ]
    new = files(stand) - before
    tops = [path for path in sorted(new) if str(Path(path).parent) not in new]
    found += [f"file: {path}" for path in tops if not _KEPT.search(path)]
    found += [f"mount: {each}" for each in mounts(stand.root_dir) if each != stand.root_dir]
    found += [f"cgroup: {path}" for path in _pod_cgroups()]
    found += _checkpoints(stand.root_dir)
    found += [f"link: {path}" for path in _links(stand.logs)]
    if lost_count:
        found += lost_shims(stand)
    return found + _of_runtime(stand)


def lost_shims(stand: Stand) -> list[str]:
    """The shims that run while no sandbox does.

    containerd may lose such a shim if it ends while it starts one, or if its client dies during
    RunPodSandbox (2.1: 1 of 60 with plain CRI calls). No client can end it then.
    """
    found = []
    for pid in shims(stand.agent_runtime.directory):
        parts = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        found.append(f"shim: {pid} of {parts[parts.index('-id') + 1]}")
    return found


def lost_tasks(stand: Stand) -> list[str]:
    """The ended containers that containerd refuses to remove until it is restarted.

    When its client dies during StartContainer, it may drop a task that the shim has made anyway
    (2.1: 2 of 44 with plain CRI calls). The container counts as ended then, and StopContainer does
    nothing. RemoveContainer, also that of its sandbox, fails with "cannot delete running task".
    """
    with RawRuntime(stand.agent_runtime.socket) as raw:
        return [f"task: {container} of {pod}" for container, pod in _lost_tasks(raw).items()]


def _lost_tasks(raw: RawRuntime) -> dict[str, str]:
    """Container ids with their sandboxes'."""
    found = {}
    for each in raw.containers():
        with contextlib.suppress(grpc.RpcError):  # removed meanwhile
            status = raw.container(each.id)
            if status.state == pb.CONTAINER_EXITED and _LOST_TASK.match(status.message):
                found[each.id] = each.pod_sandbox_id
    return found


def _pod_cgroups() -> list[Path]:
    top = f"{CGROUP_ROOT}/kubepods"
    groups = cgroups([top, f"{top}/burstable", f"{top}/besteffort"])
    return [pod for group in groups for pod in group.glob("pod*")]


def _checkpoints(root: Path) -> list[str]:
    found = []
    for name in _CHECKPOINTS:
        try:
            text = (root / name).read_text()
        except FileNotFoundError:
            continue
        uids = _UID.findall(str(json.loads(text).get("data")))
        found += [f"{name}: {uid}" for uid in uids]
    return found


def _links(logs: Path) -> list[Path]:
    found = []
    for path in Path("/var/log/containers").glob("*.log"):
        try:
            mine = path.readlink().is_relative_to(logs)
        except OSError:
            continue  # a file of another node, removed meanwhile
        found += [path] if mine else []
    return found


def _of_runtime(stand: Stand) -> list[str]:
    runtime = stand.agent_runtime
    addresses = runtime.directory / "ipam" / runtime.network.name
    spaces = runtime.directory / "state"
    found = [f"address: {path.name}" for path in addresses.glob("[0-9]*")]
    found += [f"network result: {p.name}" for p in CNI_RESULTS.glob(f"{runtime.network.name}-*")]
    return found + [f"network namespace: {path}" for path in spaces.glob("*/netns/*")]


def log_lines(text: str) -> list[str]:
    """Lines of the agent's log that should never be there.

    An error because the machine ran out of a resource is not a fault of the agent; a traceback of
    that error is.
    """
    lines = text.splitlines()
    return [
        " | ".join([line, *_said(lines[number + 1 : number + LONGEST])])
        if line.startswith("Traceback")
        else line
        for number, line in enumerate(lines)
        if _BAD.search(line) and not _OF_THE_MACHINE.search(line)
    ]


def _said(lines: list[str]) -> list[str]:
    """The last lines of a traceback."""
    end = next((n for n, line in enumerate(lines) if not line.startswith(" ")), len(lines) - 1)
    return [line.strip() for line in lines[max(0, end - 2) : end + 1]]


async def unsettled(stand: Stand) -> list[str]:
    """Deviations from the state that pods must reach, as human-readable lines."""
    config = await stand.api.get(CONFIGMAPS, SHARED, NAMESPACE)
    pods = dict(stand.pods.latest)
    found = [line for pod in pods.values() for line in _wrong(pod)]
    found += _static(stand, pods)
    return found + list(_configs(stand, pods, config["data"]["a"]))


def _wrong(pod: JSON) -> Iterator[str]:
    meta, status = pod["metadata"], pod.get("status") or {}
    if meta.get("deletionTimestamp"):
        yield f"pod {meta['name']} is still Terminating"
        return
    desired = meta["annotations"].get(ENDS)
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    ready = conditions.get("Ready", {}).get("status") == "True"
    if desired != ANY and not (ready if desired == READY else status.get("phase") == desired):
        yield f"pod {meta['name']} is not {desired}: {_short(status)}"
    for kind in ("PodResizePending", "PodResizeInProgress"):
        if kind in conditions:
            yield f"pod {meta['name']} has {kind}: {conditions[kind]}"


def _short(status: JSON) -> str:
    states = {
        entry["name"]: entry.get("state")
        for key in ("initContainerStatuses", "containerStatuses")
        for entry in status.get(key) or ()
    }
    return f"{status.get('phase')} {status.get('reason', '')} {states}"


def _static(stand: Stand, pods: dict[str, JSON]) -> list[str]:
    """Manifests and mirror pods must match."""
    files = {f"{file.stem}-{NODE}" for file in (stand.directory / "manifests").glob("*.json")}
    mirrors = {n for n, p in pods.items() if CONFIG_MIRROR in p["metadata"].get("annotations", {})}
    return [f"only one of manifest and mirror pod: {name}" for name in sorted(files ^ mirrors)]


def _configs(stand: Stand, pods: dict[str, JSON], desired: str) -> Iterator[str]:
    """Yield containers whose files differ from the configMap."""
    for name, pod in pods.items():
        uid = pod["metadata"]["uid"]
        folder = stand.root_dir / "pods" / uid / "volumes/kubernetes.io~configmap/config"
        if folder.is_dir() and (text := (folder / "a").read_text()) != desired:
            yield f"pod {name} reads {text} of the configMap, not {desired}"
