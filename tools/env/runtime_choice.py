"""Which CRI runtime `./up.sh` uses: the one that runs already if it can run pods, else our own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import grpc

from tools.env import containerd
from tools.env.cri import RawRuntime
from tools.env.images import BUSYBOX, PAUSE, busybox_image, pause_image, write_archive
from tools.env.process import CommandError, run
from tools.env.record import Record

DEFAULT_SOCKET = Path("/run/containerd/containerd.sock")
_NO_IMAGE = re.compile(r'failed to get sandbox image "([^"]+)"')


def private_containerd(home: Path) -> containerd.Containerd:
    """The containerd of a state directory (not started)."""
    program = shutil.which("containerd")
    if program is None:
        raise CommandError("containerd is not installed: apt-get install containerd")
    return containerd.Containerd(home / "containerd", Path(program).parent)


def choose(home: Path, record: Record, wish: str, say: Callable[[str], None]) -> None:
    """Make a runtime ready with the images that the sample pods need, and write it into `record`.

    `wish` is "auto", "private", or a unix:// endpoint. Once chosen it stays, so that a second start
    finds its pods again. Raises CommandError or NotReadyError when there is none to be had.
    """
    if wish not in {"auto", "private"} and not wish.startswith("unix://"):
        raise CommandError(f"KUBELETPY_RUNTIME={wish}: say auto, private, or unix:///path")
    if record.endpoint:
        wish = _same_as_before(record, wish)
    if wish.startswith("unix://"):
        try:
            use_existing(home, record, Path(wish.removeprefix("unix://")))
        except CommandError as error:
            raise CommandError(f"the runtime at {wish} cannot be used: {error}") from error
        say(f"the one at {record.endpoint}")
        return
    if wish == "auto" and DEFAULT_SOCKET.exists():
        try:
            use_existing(home, record, DEFAULT_SOCKET)
        except CommandError as error:
            say(f"not the one at {DEFAULT_SOCKET}: {error}")
        else:
            say(f"the one that runs already, at {record.endpoint}")
            return
    use_private(home, record)
    say(f"our own, at {record.endpoint}")


def _same_as_before(record: Record, wish: str) -> str:
    """The wish that leads to the runtime in use. Raises CommandError for another one."""
    used = "private" if record.private else record.endpoint
    if wish not in {"auto", used}:
        raise CommandError(f"this node's pods are in {record.endpoint}: ./up.sh down first")
    return used


def use_private(home: Path, record: Record) -> None:
    """Start our own containerd, or find it running."""
    instance = private_containerd(home)
    record.endpoint, record.private = instance.endpoint, True
    record.write(home)
    instance.start()
    with RawRuntime(instance.socket) as raw:
        have = raw.has_image(PAUSE) and raw.has_image(BUSYBOX)
    if not have:
        instance.import_images()


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
                _prove(home, record, raw, socket)
            except CommandError:
                record.endpoint = ""
                record.write(home)
                raise
        if not raw.has_image(BUSYBOX):
            _import(home, record, socket, BUSYBOX)


def _prove(home: Path, record: Record, raw: RawRuntime, socket: Path) -> None:
    """Run a sandbox and remove it; where no registry has its image, ours takes that name."""
    try:
        _try_sandbox(raw)
    except grpc.RpcError as error:
        missing = _NO_IMAGE.search(error.details() or "")
        if missing is None:
            raise CommandError(f"it cannot run a sandbox: {error.details()}") from error
        _import(home, record, socket, missing[1])
        try:
            _try_sandbox(raw)
        except grpc.RpcError as again:
            raise CommandError(f"it cannot run a sandbox: {again.details()}") from again


def _try_sandbox(raw: RawRuntime) -> None:
    config = raw.sandbox_config("kubeletpy-probe")
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
