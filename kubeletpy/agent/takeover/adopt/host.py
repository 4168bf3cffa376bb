"""The machine of an adoption: files of systemd, systemctl, and the settings of the node's program.

Must never be called from an event loop without a thread: systemctl may take a minute.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kubeletpy.agent.takeover.adopt.steps import (
    KEPT,
    TRIAL,
    AdoptionState,
    UnitProgram,
    drop_in_path,
)
from kubeletpy.agent.takeover.preflight.findings import KubeletFound
from kubeletpy.agent.takeover.preflight.kubelets import read_process
from kubeletpy.agent.takeover.preflight.settings import load_settings, read_flags
from kubeletpy.agent.takeover.preflight.unit_command import is_kubelet
from kubeletpy.base.host.files import flush_directory, write_whole
from kubeletpy.base.structs import Struct
from kubeletpy.config import LoadedConfig
from kubeletpy.node.facts import node_name
from kubeletpy.node.machine import read_machine_facts

TIMER = "kubeletpy-give-back"
"""The transient unit that gives the node back."""
COMMAND_S = 120.0
LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


class HostError(Exception):
    """A step failed; the message names the file or the unit."""


class UnitSeen(Struct, frozen=True):
    """systemd's report on the unit.

    Attributes:
        running: what it runs.
        pid: of its main process; 0: none.
        restarts: how often systemd has restarted it by itself since it was last started.
    """

    running: UnitProgram
    pid: int = 0
    restarts: int = 0


class SystemdHost:
    """One machine, for one unit of systemd. Everything raises HostError."""

    def __init__(self, unit: str, root: Path = Path("/")) -> None:
        self._unit, self._root = unit, root

    def state(self) -> AdoptionState:
        """The drop-ins, and what runs."""
        trial, kept = (self._path(each).exists() for each in (TRIAL, KEPT))
        return AdoptionState(trial, kept, self.unit().running, self.shutting_down())

    def shutting_down(self) -> bool:
        """Whether systemd shuts down, or logind waits for the agent before it has it do so."""
        if "stopping" in self._systemctl("show", "--property=SystemState"):
            return True
        try:
            return "true" in self._run("busctl", "get-property", *LOGIND, "PreparingForShutdown")
        except HostError:  # without logind nothing waits
            return False

    def unit(self) -> UnitSeen:
        """The unit's program, process and restarts, as systemd reports them."""
        reported = self._systemctl("show", "--property=MainPID,NRestarts,ActiveState", self._unit)
        values = dict(line.partition("=")[::2] for line in reported.splitlines())
        pid, restarts = (int(values.get(key) or 0) for key in ("MainPID", "NRestarts"))
        process = read_process(pid) if pid else None
        if process is None:
            return UnitSeen(UnitProgram.NOTHING, 0, restarts)
        kubelet = is_kubelet(process.command[0])
        return UnitSeen(UnitProgram.KUBELET if kubelet else UnitProgram.AGENT, pid, restarts)

    def write(self, directory: str, text: str) -> None:
        """Write the drop-in below a directory, atomically."""
        path = self._path(directory)
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_whole(path, text, mode=0o644)
            flush_directory(path.parent)
        except OSError as error:
            raise HostError(f"{path} can't be written: {error.strerror or error}") from error

    def remove(self, directory: str) -> None:
        """Remove the drop-in below a directory."""
        path = self._path(directory)
        try:
            path.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                flush_directory(path.parent)
            with contextlib.suppress(OSError):  # other drop-ins are there
                path.parent.rmdir()
        except OSError as error:
            raise HostError(f"{path} can't be removed: {error.strerror or error}") from error

    def reload(self) -> None:
        """Have systemd read its files again."""
        self._systemctl("daemon-reload")

    def restart(self) -> None:
        """Stop the unit and start it, in one job of systemd."""
        self._systemctl("reset-failed", self._unit)
        self._systemctl("restart", self._unit)

    def arm(self, seconds: float, command: Sequence[str]) -> None:
        """Have systemd run a command once after a time, in place of an earlier one."""
        self.disarm()
        self._run(
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={TIMER}",
            f"--on-active={seconds:.0f}",
            "--timer-property=AccuracySec=1s",
            "--",
            *command,
        )

    def disarm(self) -> None:
        """Stop the timer, if there is one."""
        with contextlib.suppress(HostError):  # there is none
            self._systemctl("stop", f"{TIMER}.timer")

    def _path(self, directory: str) -> Path:
        return self._root / drop_in_path(self._unit, directory)

    def _systemctl(self, *arguments: str) -> str:
        return self._run("systemctl", *arguments)

    def _run(self, *command: str) -> str:
        reported = " ".join(command[:3])
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=COMMAND_S, check=False
            )
        except OSError as error:
            raise HostError(f"{command[0]} can't be run: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise HostError(f"{reported} did not end within {COMMAND_S:.0f} s") from error
        if done.returncode:
            raise HostError(f"{reported} failed: {done.stderr.strip() or done.returncode}")
        return done.stdout


# The node, by the settings of the program that runs it.


class NodeSettings(Struct, frozen=True):
    """Settings of the program that runs a node, and the node's name."""

    config: LoadedConfig
    name: str


def read_node(kubelet: KubeletFound) -> NodeSettings:
    """The settings of a kubelet, or of the agent in its place. Raises HostError."""
    flags, findings = read_flags(kubelet)
    config = None
    if flags is not None:
        loaded = load_settings(flags)
        config, findings = loaded.config, loaded.findings
    if config is None:
        raise HostError(f"{kubelet.source}: {findings[0].text}")
    machine = read_machine_facts(Path(config.node.root_dir))
    return NodeSettings(config, node_name(config.node, machine.hostname))


def running_agent(pid: int) -> KubeletFound:
    """The agent that runs in the kubelet's place. Raises HostError."""
    process = read_process(pid)
    if process is None or "run" not in process.command:
        raise HostError(f"process {pid} is not `kubeletpy run`")
    at = process.command.index("run")
    return KubeletFound(
        f"process {pid}", process.command[0], process.command[at + 1 :], process.directory, (), pid
    )
