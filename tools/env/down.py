"""`./up.sh down`: stop the agent and its pods, and remove the node; packages and .venv stay."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import grpc

from tools.env import debian, sweep
from tools.env.cri import RawRuntime
from tools.env.process import CommandError, run, start_time
from tools.env.record import Record
from tools.env.runtime_choice import private_containerd
from tools.env.up import agent_pid
from tools.env.waiting import NotReadyError, wait_until

_POD_LOGS = Path("/var/log/pods")


def down(home: Path) -> int:
    """Remove everything; returns 0, or 1 and a line for each thing that could not be removed."""
    if os.geteuid() != 0:
        raise CommandError("removing containers needs root: run it with sudo")
    if not home.exists():
        print(
            f"nothing to remove: there is no node in {home} (KUBELETPY_HOME names another folder)"
        )
        return 0
    with debian.locked(home / "up.lock"):
        record = Record.read(home)
        stop_agent(home)
        uids = pod_uids(home)
        left = remove_runtime(home, record, uids)
        remove_logs(uids)
        sweep.remove_pod_cgroups(uids)
        left += remove_rest(home, record)
        if not left:
            shutil.rmtree(home)
    for line in left:
        print(f"still there: {line}", file=sys.stderr)
    print("some things could not be removed" if left else "all removed")
    return 1 if left else 0


def stop_agent(home: Path) -> None:
    """SIGTERM, and SIGKILL when it does not listen."""
    pid = agent_pid(home)
    if pid is None:
        return
    print(f"stopping the agent (pid {pid})", flush=True)
    started = start_time(pid)
    os.kill(pid, signal.SIGTERM)
    try:
        wait_until(lambda: start_time(pid) != started, f"the end of pid {pid}", timeout=20)
    except NotReadyError:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: start_time(pid) != started, f"the end of pid {pid}", timeout=20)


def pod_uids(home: Path) -> set[str]:
    """The pods whose directories the agent has."""
    return {path.name for path in (home / "node").glob("**/pods/*-*-*-*-*") if path.is_dir()}


def remove_runtime(home: Path, record: Record, uids: set[str]) -> list[str]:
    """Remove the pods (their uids are added to `uids`), and our containerd or our images."""
    if not record.endpoint:
        return []
    socket = Path(record.endpoint.removeprefix("unix://"))
    left = []
    if record.private:
        wake(home)
    with RawRuntime(socket) as raw:
        try:
            for sandbox in raw.sandboxes():
                uid = sandbox.labels.get("io.kubernetes.pod.uid")
                if uid:
                    print(f"removing pod {sandbox.metadata.name}", flush=True)
                    uids.add(uid)
                    raw.remove_sandbox(sandbox.id)
        except grpc.RpcError as error:
            if not record.private:
                left.append(f"pods of {record.endpoint}: {error.details()}")
    if record.private:
        print("removing containerd", flush=True)
        return private_containerd(home).remove()
    with RawRuntime(socket) as raw:
        for image in record.images:
            try:
                raw.remove_image(image)
            except grpc.RpcError as error:
                left.append(f"image {image} in {record.endpoint}: {error.details()}")
    return left


def wake(home: Path) -> None:
    """Start our containerd if it died, so that its pods end in order; what fails here is swept."""
    try:
        private_containerd(home).start()
    except NotReadyError as error:
        print(f"containerd does not start, so its pods are killed: {error}", file=sys.stderr)


def remove_logs(uids: set[str]) -> None:
    """The log directories of these pods, and the links to them."""
    mine = [path for path in _POD_LOGS.glob("*_*_*") if path.name.rpartition("_")[2] in uids]
    for path in mine:
        sweep.remove_log_links(path)
        shutil.rmtree(path, ignore_errors=True)


def remove_rest(home: Path, record: Record) -> list[str]:
    """Mounts, cgroups, shared chains, symlinks, and folders that are empty now."""
    for point in sweep.mounts(home):
        run("umount", "--lazy", point)
    left = [f"mount {point}" for point in sweep.mounts(home)]
    for name in record.cgroups:
        # a cgroup with processes belongs to another agent, and is kept
        if name.endswith(".slice"):
            sweep.stop_slice(name)
        else:
            sweep.remove_cgroup(name)
    if record.host_ports and sweep.host_port_chains():
        sweep.remove_host_port_chains()
    for link in map(Path, record.links):
        if link.is_symlink() and link.readlink().is_relative_to(home):
            link.unlink()
    for folder in map(Path, record.folders):
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return left
