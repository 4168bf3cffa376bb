"""`./up.sh` after its virtual environment is there: make the machine ready, then become the agent.

Ends as the agent's own process (exec), so that Ctrl-C and signals reach it and nothing stands
between. Everything made is written into the record first; `down.py` reads that.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kubeletpy.agent.rootless.containerd import cni_folder
from kubeletpy.cli import up as kubeletpy_up
from kubeletpy.cli.endings import INTERRUPTED, STOP_SIGNALS, end_in_order
from kubeletpy.config import ConfigError
from tools.env import debian, sweep
from tools.env.cri import RawRuntime
from tools.env.kubectl import kubectl
from tools.env.process import CommandError, read_pid, write_pid
from tools.env.record import Record
from tools.env.runtime_choice import choose, private_containerd, wished_runtime
from tools.env.waiting import NotReadyError

STEPS = 5
LINKS = Path("/usr/local/bin")
_PROGRAMS = {"containerd": "containerd", "runc": "runc", "iptables": "iptables", "ip": "iproute2"}
_CGROUPS = ("/kubepods", "/kubepods.slice")
"""Cgroups of pods, with either cgroup driver."""
_FOLDERS = tuple(
    map(
        Path,
        (
            "/var/log/pods",
            "/var/log/containers",
            # of containerd, its shims and the CNI's library; innermost first
            "/run/containerd/runc/k8s.io",
            "/run/containerd/runc",
            "/run/containerd/s",
            "/run/containerd",
            "/run/netns",
            "/var/lib/cni/results",
            "/var/lib/cni",
        ),
    )
)
"""Directories that a node makes outside of its state directory."""


class Progress:
    """Prints numbered lines with what happens and how long it took."""

    def __init__(self, done: int) -> None:
        self._number = done

    @contextmanager
    def step(self, title: str) -> Iterator[list[str]]:
        """Run one step; the lines appended to the list are printed when it is done."""
        self._number += 1
        print(f"[{self._number}/{STEPS}] {title} …", end=" ", flush=True)
        begin = time.monotonic()
        stated: list[str] = []
        try:
            yield stated
        except BaseException:
            print("failed", flush=True)
            raise
        print(f"{'; '.join(stated) or 'ready'} ({time.monotonic() - begin:.1f} s)", flush=True)


def up(home: Path, arguments: Sequence[str]) -> None:
    """Make everything ready and become `kubeletpy up`. Raises CommandError, NotReadyError."""
    if os.geteuid() != 0:
        raise CommandError("containers need root: run it with sudo")
    supplied = parse(arguments)
    wished_runtime()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"KUBELETPY_HOME={home} can't be used: {error.strerror}") from error
    with debian.locked(home / "up.lock"):
        running = agent_pid(home)
        if running is not None:
            if not revive(home):
                raise CommandError(
                    f"the node runs already (pid {running}); "
                    "stop it with Ctrl-C there, or ./up.sh down"
                )
            print(f"the node runs (pid {running}); its containerd had died, and runs again")
            return
        check(supplied)
        endpoint = prepare(home)
        driver = Record.read(home).cgroup_driver
        mark_agent(home)
    program = Path(sys.executable).parent / "kubeletpy"
    command = [str(program), "up", "--state-dir", str(home / "node")]
    command += ["--container-runtime-endpoint", endpoint, "--cgroup-driver", driver, *arguments]
    print(f"[{STEPS}/{STEPS}] {' '.join(command)}", flush=True)
    # a signal that comes now stops the agent once it handles signals
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    os.execv(program, command)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments of `kubeletpy up`, without those that ./up.sh sets. Raises CommandError.

    Exits with a message if they can't be parsed, and after --help.
    """
    own = {
        "state_dir": "set KUBELETPY_HOME instead",
        "container_runtime_endpoint": "set KUBELETPY_RUNTIME instead",
        "cgroup_driver": "a trial finds it here: leave it out",
    }
    parser = kubeletpy_up.parser()
    parser.set_defaults(**dict.fromkeys(own))
    supplied = parser.parse_args(arguments)
    for name, remedy in own.items():
        if getattr(supplied, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise CommandError(f"{option} is for `kubeletpy up`; {remedy}")
    return supplied


def check(supplied: argparse.Namespace) -> None:
    """Refuse what the agent would refuse, before anything is started. Raises CommandError."""
    whole = kubeletpy_up.parser().parse_args([])
    for name, value in vars(supplied).items():
        if value is not None:
            setattr(whole, name, value)
    try:
        kubeletpy_up.load(whole, report=lambda line: None)
    except ConfigError as error:
        raise CommandError(str(error)) from error


def prepare(home: Path) -> str:
    """The steps before the agent; returns the runtime's endpoint."""
    progress = Progress(done=1)
    with progress.step("Packages") as stated:
        installed = install_programs()
        if installed:
            stated.append(f"installed {', '.join(installed)}")
    record = Record.read(home)
    if not record.endpoint:
        remember_machine(home, record)
    with progress.step("Container runtime and sample images") as stated:
        choose(home, record, wished_runtime(), stated.append)
    with progress.step("kubectl") as stated:
        stated.append(provide_kubectl(home, record))
    return record.endpoint


def revive(home: Path) -> bool:
    """Start the containerd of a node whose agent runs, if it died; returns whether it had.

    Raises CommandError or NotReadyError: the runtime does not answer.
    """
    record = Record.read(home)
    if record.private:
        instance = private_containerd(home)
        had_died = instance.pid is None
        instance.start()
        return had_died
    if record.endpoint:
        with RawRuntime(Path(record.endpoint.removeprefix("unix://"))) as raw:
            problems = raw.problems()
        if problems:
            raise CommandError(f"the node runs, but its runtime at {record.endpoint}: {problems}")
    return False


def install_programs() -> list[str]:
    """Install the packages of programs that are missing; returns their names."""
    desired = [package for name, package in _PROGRAMS.items() if shutil.which(name) is None]
    if cni_folder() is None:
        desired.append("containernetworking-plugins")
    if not desired:
        return []
    print(f"installing {', '.join(desired)} …", end=" ", flush=True)
    return debian.install(desired)


def remember_machine(home: Path, record: Record) -> None:
    """Write down what exists before the first start, so that `down` leaves it."""
    record.folders = [str(folder) for folder in _FOLDERS if not folder.exists()]
    record.cgroups = [name for name in _CGROUPS if not sweep.cgroups([name])]
    record.host_ports = not sweep.host_port_chains()
    record.write(home)


def provide_kubectl(home: Path, record: Record) -> str:
    """Make `kubectl` available as a command; returns its path."""
    found = shutil.which("kubectl")
    if found is not None:
        return found
    link = LINKS / "kubectl"
    target = home / "bin" / "kubectl"
    try:
        program = kubectl("new").program
    except CommandError:
        debian.install(["kubernetes-client"])
        return shutil.which("kubectl") or "kubectl"
    target.parent.mkdir(exist_ok=True)
    shutil.copy2(program, target)
    record.links.append(str(link))
    record.write(home)
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    return str(link)


def agent_pid(home: Path) -> int | None:
    """The process id of the agent that `./up.sh` became, if it runs."""
    return read_pid(home / "agent.pid")


def mark_agent(home: Path) -> None:
    """Write down this process as the agent: exec keeps its id and its start time."""
    write_pid(home / "agent.pid", os.getpid())


def main(arguments: Sequence[str]) -> int:
    """Entry point of up.sh: [down | arguments of `kubeletpy up`]."""
    home = Path(os.environ.get("KUBELETPY_HOME") or "/var/lib/kubeletpy").absolute()
    try:
        if arguments[:1] == ["down"]:
            if arguments[1:]:
                raise CommandError(f"down takes no arguments: {' '.join(arguments[1:])}")
            from tools.env.down import down

            return down(home)
        up(home, arguments)
    except (CommandError, NotReadyError) as error:
        print(f"up.sh: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nup.sh: interrupted; run it again to go on, or ./up.sh down to remove all")
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    raise SystemExit(end_in_order(lambda: main(sys.argv[1:])))
