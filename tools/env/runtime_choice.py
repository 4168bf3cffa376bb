"""Which CRI runtime `./up.sh` uses: the one that runs already if it can run pods, else our own."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import grpc

from tools.env import containerd, debian
from tools.env.cgroup_drivers import (
    SYSTEMD,
    TRIAL_PARENT,
    first_trial,
    next_trial,
    one_line,
    own_driver,
)
from tools.env.cri import RawRuntime
from tools.env.images import (
    BUSYBOX,
    PAUSE,
    busybox_image,
    pause_image,
    static_busybox,
    write_archive,
)
from tools.env.process import CommandError, run
from tools.env.record import Record

DEFAULT_SOCKET = Path("/run/containerd/containerd.sock")
SYSTEMD_RUNS = Path("/run/systemd/system")
"""Exists while systemd is the init of this machine (sd_booted(3))."""
CGROUP_V2_ALONE = Path("/sys/fs/cgroup/cgroup.controllers")
"""Exists where version 1 of cgroups is not mounted beside version 2."""


def private_containerd(home: Path) -> containerd.Containerd:
    """The containerd of a state directory (not started), for the cgroup driver of its record."""
    program = shutil.which("containerd")
    if program is None:
        raise CommandError("containerd is not installed: apt-get install containerd")
    crun = shutil.which("crun")
    return containerd.Containerd(
        home / "containerd",
        Path(program).parent,
        Path(crun) if crun and runs_containers(crun, Path(program).with_name("ctr")) else None,
        systemd_cgroup=Record.read(home).cgroup_driver == SYSTEMD,
    )


def runs_containers(crun: str, ctr: Path) -> bool:
    """Whether crun runs a container with the specification that this containerd writes.

    It refuses specifications that are newer, and a machine with both versions of cgroups.
    """
    with tempfile.TemporaryDirectory(prefix="crun-") as directory:
        root = Path(directory, "rootfs")
        root.mkdir()
        try:
            shutil.copy2(static_busybox(), root / "busybox")
            spec = json.loads(run(ctr, "oci", "spec"))
            spec["root"] = {"path": str(root)}
            spec["process"] |= {"args": ["/busybox", "true"], "terminal": False}
            Path(directory, "config.json").write_text(json.dumps(spec))
            state = f"--root={directory}/state"
            run(crun, "--cgroup-manager=disabled", state, "run", "--bundle", directory, "trial")
        except CommandError:
            return False
    return True


def wished_runtime() -> str:
    """KUBELETPY_RUNTIME: "auto", "private", or a unix:// endpoint. Raises CommandError."""
    text = os.environ.get("KUBELETPY_RUNTIME") or "auto"
    if text not in {"auto", "private"} and not text.startswith("unix:///"):
        raise CommandError(f"KUBELETPY_RUNTIME={text}: must be auto, private, or unix:///path")
    return text


def choose(home: Path, record: Record, wish: str, say: Callable[[str], None]) -> None:
    """Make a runtime ready with the images that the sample pods need, and write it into `record`.

    `wish` is as `wished_runtime` returns it. Once chosen it stays, so that a second start
    finds its pods again. Raises CommandError or NotReadyError when there is none to be had.
    """
    if record.endpoint:
        wish = _same_as_before(record, wish)
    if wish.startswith("unix://"):
        try:
            use_existing(home, record, Path(wish.removeprefix("unix://")))
        except CommandError as error:
            raise CommandError(f"the runtime at {wish} cannot be used: {error}") from error
        say(f"the one at {record.endpoint}, with cgroup driver {record.cgroup_driver}")
        return
    if wish == "auto" and DEFAULT_SOCKET.exists():
        try:
            use_existing(home, record, DEFAULT_SOCKET)
        except CommandError as error:
            say(f"not the one at {DEFAULT_SOCKET}: {error}")
        else:
            driver = record.cgroup_driver
            say(f"the one that runs already, at {record.endpoint}, with cgroup driver {driver}")
            return
    if not record.endpoint and CGROUP_V2_ALONE.exists():
        try:
            for package in debian.install(["crun"]):
                say(f"installed {package}")
        except CommandError:
            say("without crun, which can't be installed: runc takes more CPU")
    oci = use_private(home, record)
    say(f"our own with {oci}, at {record.endpoint}, with cgroup driver {record.cgroup_driver}")


def _same_as_before(record: Record, wish: str) -> str:
    """The wish that leads to the runtime in use. Raises CommandError for another one."""
    used = "private" if record.private else record.endpoint
    if wish not in {"auto", used}:
        raise CommandError(f"this node's pods are in {record.endpoint}: ./up.sh down first")
    return used


def use_private(home: Path, record: Record) -> str:
    """Start our own containerd, or find it running; returns the name of its OCI runtime."""
    if not record.endpoint or not record.cgroup_driver:
        record.cgroup_driver = own_driver(SYSTEMD_RUNS.is_dir())
        record.write(home)
    instance = private_containerd(home)
    record.endpoint, record.private = instance.endpoint, True
    record.write(home)
    instance.start()
    with RawRuntime(instance.socket) as raw:
        have = raw.has_image(PAUSE) and raw.has_image(BUSYBOX)
    if not have:
        instance.import_images()
    return instance.oci_runtime


def use_existing(home: Path, record: Record, socket: Path) -> None:
    """Take a runtime that somebody else runs. Raises CommandError with why it cannot be used."""
    endpoint = f"unix://{socket}"
    with RawRuntime(socket) as raw:
        problems = raw.problems()
        if problems:
            raise CommandError(problems)
        if record.endpoint != endpoint:
            if raw.sandboxes():
                raise CommandError("it has pods of another agent, and a runtime serves only one")
            record.endpoint, record.private = endpoint, False
            record.write(home)
            try:
                record.cgroup_driver = _prove(home, record, raw, socket)
            except CommandError:
                record.endpoint = ""
                record.write(home)
                raise
            record.write(home)
        if not raw.has_image(BUSYBOX):
            _import(home, record, socket, BUSYBOX)


def _prove(home: Path, record: Record, raw: RawRuntime, socket: Path) -> str:
    """Run a sandbox and remove it; returns the cgroup driver that worked.

    Where no registry has the image of sandboxes, ours takes that name. Raises CommandError.
    """
    try:
        reported = raw.cgroup_driver()
    except grpc.RpcError as error:
        why = one_line(error.details() or "")
        raise CommandError(f"it does not report its cgroup driver: {why}") from error
    trial, imported = first_trial(reported), False
    while True:
        try:
            _try_sandbox(raw, trial.driver)
        except grpc.RpcError as error:
            why = error.details() or str(error.code())
            following = next_trial(trial, imported, reported, why)
            if following is None:
                with_it = f"it cannot run a sandbox with cgroup driver {trial.driver}"
                raise CommandError(f"{with_it}: {one_line(why)}") from error
            trial = following
        else:
            return trial.driver
        if trial.image:
            _import(home, record, socket, trial.image)
            imported = True


def _try_sandbox(raw: RawRuntime, driver: str) -> None:
    config = raw.sandbox_config("kubeletpy-probe", cgroup_parent=TRIAL_PARENT[driver])
    try:
        raw.run_sandbox(config)
    finally:
        for sandbox in raw.sandboxes():
            if sandbox.metadata.uid == config.metadata.uid:
                raw.remove_sandbox(sandbox.id)


def _import(home: Path, record: Record, socket: Path, name: str) -> None:
    """Import one of our images into somebody else's containerd, and remember it."""
    image = busybox_image(name) if name == BUSYBOX else pause_image(name)
    archive = write_archive(home / "image.tar", image)
    record.images.append(name)
    record.write(home)
    run("ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
    archive.unlink()
