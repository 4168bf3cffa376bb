"""A private containerd: own root, state, socket, CNI network; several live side by side.

Its daemon has its own session, so that it outlives whoever started it and pods live on; `stop`
ends the daemon only, `remove` ends everything it ever ran.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import shutil
import signal
from collections.abc import Sequence
from functools import cached_property, partial
from pathlib import Path

from msgspec import structs

from kubeletpy.agent.errors import LaunchError
from kubeletpy.agent.rootless import containerd as config
from tools.env.debian import locked, unpacked
from tools.env.images import BUSYBOX, PAUSE, busybox_image, pause_image, write_archive
from tools.env.machine_abilities import ADDRESS_TRANSLATION, FOUND
from tools.env.process import CommandError, Daemon, run, write_whole
from tools.env.sweep import leftovers, remove_rules_of_pods, sweep
from tools.env.waiting import wait_until

_POOL = ipaddress.IPv4Network("10.192.0.0/10")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def programs(generation: int) -> Path:
    """The folder with containerd, its shim and ctr of a generation (1 or 2).

    The installed one if it is of that generation, else Debian's (1: bookworm, 2: testing), fetched.
    """
    found = shutil.which("containerd", path=_SYSTEM_PATH)
    if found and installed_generation(Path(found)) == generation:
        return Path(found).parent
    return unpacked("containerd", {1: "bookworm", 2: "testing"}[generation]) / "usr" / "bin"


def installed_generation(program: Path) -> int:
    """The configuration format that this containerd requires: 1 or 2. Raises CommandError."""
    try:
        return config.installed_generation(program, os.environ)
    except LaunchError as error:
        raise CommandError(str(error)) from error


class Containerd:
    """One containerd under `directory` (an absolute, short path: socket paths end at 107 bytes)."""

    def __init__(
        self,
        directory: Path,
        binaries: Path,
        runc: Path | None = None,
        *,
        prefix: int = 24,
        systemd_cgroup: bool = False,
        handlers: Sequence[str] = (),
        network: config.Network | None = None,
    ) -> None:
        """``runc``: another one than the installed one; ``prefix``: of the pod network's addresses,
        24 is enough for 253 pods; ``systemd_cgroup``: systemd makes the cgroups, from the next
        start on; ``handlers``: more runtime handlers; ``network``: instead of one with a subnet
        that this machine does not use."""
        self.directory = directory
        self.systemd_cgroup = systemd_cgroup
        self._runc = runc
        self._handlers = handlers
        self.socket = directory / "containerd.sock"
        self.endpoint = f"unix://{self.socket}"
        self._binaries = binaries
        self.generation = installed_generation(binaries / "containerd")
        directory.mkdir(parents=True, exist_ok=True)
        self._daemon = Daemon("containerd", directory)
        self.log = self._daemon.log
        self.network = network or _network(directory, prefix)

    @cached_property
    def kind(self) -> str:
        """Prefix of container ids in statuses: "containerd", or another runtime's name."""
        from tools.env.cri import RawRuntime

        with RawRuntime(self.socket) as raw:
            return raw.version()[0]

    @property
    def abilities(self) -> dict[str, bool]:
        """Differences between the two containerds of the tests (:mod:`tools.env.abilities`)."""
        names = ("recursive read-only mounts", "image volumes")
        return {"parts of image volumes": False, **dict.fromkeys(names, self.generation == 2)}

    @property
    def oci_runtime(self) -> str:
        """Name of the program that starts its containers."""
        return self._runc.name if self._runc is not None else "runc"

    @property
    def pid(self) -> int | None:
        """Process id of the daemon, None when it does not run."""
        return self._daemon.pid

    def start(self, sandbox_image: str = PAUSE) -> None:
        """Start the daemon (if it does not run) and wait until it answers and its network is up.

        Raises NotReadyError with the end of its log.
        """
        if self.pid is None:
            self.write_configuration(sandbox_image)
            self._masquerade()
            program = self._binaries / "containerd"
            command: list[str | Path] = [program, "--config", self.directory / "config.toml"]
            if not self._daemon.adopt(command):
                path = f"{self._binaries}:{_SYSTEM_PATH}"
                self._daemon.start(command, env={**os.environ, "PATH": path})
        self.wait_ready()

    def write_configuration(self, sandbox_image: str = PAUSE) -> None:
        """Write the configurations of the daemon and of its pod network."""
        (self.directory / "cni").mkdir(exist_ok=True)
        (self.directory / "config.toml").write_text(
            config.render_config(
                self.directory,
                self.generation,
                sandbox_image,
                self._runc,
                systemd_cgroup=self.systemd_cgroup,
                handlers=self._handlers,
            )
        )
        (self.directory / "cni" / "10-pods.conflist").write_text(
            config.render_conflist(self.network, self.directory)
        )

    def _masquerade(self) -> None:
        """Write the rules of the pod network, and remove those of pods from before there were any.

        Raises CommandError.
        """
        try:
            config.masquerade(self.network, os.environ)
        except LaunchError as error:
            raise CommandError(str(error)) from error
        if self.network.has_static_rules:
            remove_rules_of_pods(self.network.name)

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Wait until the CRI reports that runtime and network are ready."""
        from tools.env.cri import RawRuntime

        def ready() -> bool:
            with RawRuntime(self.socket) as raw:
                problems = raw.problems()
            if problems:
                raise OSError(problems)
            return True

        wait_until(
            ready,
            f"containerd on {self.socket}",
            timeout=timeout,
            interval=0.05,
            give_up=self._daemon.died,
        )

    def kill(self) -> None:
        """kill -9 the daemon: containers and shims live on, the socket answers no more."""
        self._daemon.kill(signal.SIGKILL)

    def pause(self) -> None:
        """Stop answering without dying (SIGSTOP), for tests of timeouts; `resume` undoes it.

        Until all of its threads have stopped it may still answer.
        """
        self._signal(signal.SIGSTOP)
        if self.pid is not None:
            wait_until(partial(_is_stopped, self.pid), "containerd stopped", interval=0.001)

    def resume(self) -> None:
        """Answer again after `pause`."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop the daemon in order and start it again; containers live on."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """End the daemon; containers live on."""
        if self.pid is not None:
            self.resume()
        self._daemon.stop()

    def remove(self) -> list[str]:
        """End the daemon and everything it ran, and remove its directory.

        Returns what could not be removed, as lines for a person: empty when nothing is left.
        """
        if self.directory.exists():
            self._remove_pods()
            self.stop()
        sweep(self.directory, self.network.name, self.network.bridge)
        left = leftovers(self.directory, self.network.name, self.network.bridge)
        if not left:
            shutil.rmtree(self.directory, ignore_errors=True)
        return left

    def ctr(self, *arguments: str | Path) -> str:
        """Run ctr on the CRI's namespace and return its output."""
        return run(
            self._binaries / "ctr", "--address", self.socket, "--namespace", "k8s.io", *arguments
        )

    def import_images(self, archive: Path | None = None) -> None:
        """Import an image archive; without one, the pause and busybox images made on the spot."""
        if archive is not None:
            self.ctr("images", "import", archive)
            return
        from tools.env.cri import RawRuntime

        path = self.directory / "images.tar"
        self.import_images(write_archive(path, pause_image(), busybox_image()))
        path.unlink()
        with RawRuntime(self.socket) as raw:
            for name in (PAUSE, BUSYBOX):
                wait_until(partial(raw.has_image, name), f"image {name}")

    def trust(self, server: str) -> None:
        """Let pulls from a registry ("127.0.0.1:5000") use plain HTTP; takes effect at once."""
        folder = self.directory / "certs.d" / server
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts.toml").write_text(config.render_hosts(server))

    def _signal(self, number: int) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def _remove_pods(self) -> None:
        """Let a living containerd end its pods in order; `sweep` does what it could not."""
        import grpc

        from tools.env.cri import RawRuntime

        if self.pid is None:
            return
        self.resume()
        with RawRuntime(self.socket) as raw:
            try:
                raw.remove_all()
            except grpc.RpcError as error:
                print(f"containerd could not remove every pod: {error.details()}")


def _network(directory: Path, prefix: int) -> config.Network:
    """The pod network of an instance, chosen once and kept in its directory."""
    kept = directory / "network.json"
    with locked(Path("/run")):
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            return config.Network(**json.loads(kept.read_text()))
        digest = hashlib.sha256(str(directory).encode()).hexdigest()
        subnets = list(_POOL.subnets(new_prefix=prefix))
        first = int(digest[:8], 16) % len(subnets)
        bridge = f"kp{digest[:10]}"
        taken = _routes(besides=bridge)
        for subnet in subnets[first:] + subnets[:first]:
            if not any(subnet.overlaps(other) for other in taken):
                break
        translates = FOUND[ADDRESS_TRANSLATION]()
        network = config.Network(
            f"kubeletpy-{digest[:10]}",
            bridge,
            str(subnet),
            masquerade=translates,
            host_ports=translates,
        )
        write_whole(kept, json.dumps(structs.asdict(network)))
        return network


def _routes(besides: str) -> list[ipaddress.IPv4Network]:
    """The networks this machine has routes to, but for those of one device."""
    rows = json.loads(run("ip", "-4", "-json", "route", "show") or "[]")
    found = [row["dst"] for row in rows if row["dst"] != "default" and row.get("dev") != besides]
    return [ipaddress.IPv4Network(dst, strict=False) for dst in found]


def _is_stopped(pid: int) -> bool:
    """Whether a signal has stopped all threads of a process."""
    texts = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(text.rpartition(")")[2].split()[0] in "Tt" for text in texts)
