"""Applies settings to machine and process at start, and logs each warning once.

Kernel settings, the agent's own OOM score and open files (its child processes inherit both), and
whether memory-backed volumes may end up in swap. Source: docs/reference/behaviour-resources.md, rj,
rk; docs/reference/config.csv: oomScoreAdj, maxOpenFiles; docs/reference/events.csv: CgroupV1,
PossibleMemoryBackedVolumesOnDisk.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import resource
import socket
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.text import number
from kubeletpy.config import KubeletSettings
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.node.guards.iptables import Run, run_command
from kubeletpy.node.guards.oom_watch import FIRST_NAMESPACE, open_kernel_log, open_process_events
from kubeletpy.resources.cgroups.filesystem import ProcessGroups, detect
from kubeletpy.resources.cgroups.values import CgroupError
from kubeletpy.volumes.files.disk import mount, unmount

# The agent's own process. Source: docs/reference/behaviour-resources.md, rj: kubelet process.

CHECK_EVERY_S = 300.0
"""How often the score is checked again."""


def set_oom_score(adjust: int, process: Path) -> str:
    """Set oom_score_adj of a process (its directory in /proc); why that failed, or "".

    Without CAP_SYS_RESOURCE a score can't be lowered.
    """
    file = process / "oom_score_adj"
    try:
        if _signed(file.read_text(errors="replace")) != adjust:
            file.write_text(str(adjust))
    except OSError as error:
        return f"oomScoreAdj {adjust}: {error.strerror or error}"
    return ""


def set_open_files(limit: int) -> str:
    """Let this process open this many files (soft and hard limit); why that failed, or "".

    Where the hard limit can't be raised it is used unchanged. 0 changes nothing.
    """
    if not limit:
        return ""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if (soft, hard) == (limit, limit):
        return ""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    except (OSError, ValueError) as error:
        reachable = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
        except (OSError, ValueError):
            reachable = soft
        return f"maxOpenFiles {limit}: {error}; the limit is {reachable}"
    return ""


def _signed(text: str) -> int | None:
    text = text.strip()
    size = number(text.removeprefix("-"))
    return size if size is None or not text.startswith("-") else -size


# Swap. Source: docs/reference/behaviour-resources.md, rk. Memory-backed volumes (secrets among
# them) are mounted with ``noswap`` where the kernel supports it.

NOSWAP_SINCE = (6, 4)
"""The kernel that introduced the option; distributions have backported it to older ones."""
NOTICE = (
    "Swap is on, and the kernel does not support the tmpfs option noswap: memory-backed volumes, "
    "secrets among them, may be written to disk"
)


def supports_noswap(kernel_version: str, *, in_user_namespace: bool) -> bool | None:
    """Whether tmpfs has the option; None: only trying shows it. Pure."""
    if in_user_namespace:
        return False
    found = re.match(r"(\d{1,4})\.(\d{1,4})", kernel_version)
    if found and (int(found[1]), int(found[2])) >= NOSWAP_SINCE:
        return True
    return None


def mounts_noswap(root: Path) -> bool:
    """Try it in a directory below ``root``, which is removed afterwards."""
    try:
        with tempfile.TemporaryDirectory(prefix="noswap-", dir=root) as directory:
            mount("tmpfs", directory, "tmpfs", data="noswap")
            unmount(directory)
    except OSError:
        return False
    return True


# Kernel settings below a directory such as /proc/sys.

log = logging.getLogger(__name__)


DESIRED: Mapping[str, int] = {
    "vm.overcommit_memory": 1,
    "vm.panic_on_oom": 0,
    "kernel.panic": 10,
    "kernel.panic_on_oops": 1,
    "kernel.keys.root_maxkeys": 1_000_000,
    "kernel.keys.root_maxbytes": 25_000_000,
}
"""Memory is overcommitted, since limits are enforced elsewhere. Running out of it kills a process,
not the machine. A kernel that panicked reboots after 10 s. Root, and so every container, has enough
keys."""


class WrongSetting(Struct, frozen=True):
    """A setting that differs from what a node needs."""

    name: str
    desired: int
    found: str
    """The kernel's value; empty: it can't be read."""

    def __str__(self) -> str:
        return f"{self.name} is {self.found or 'not readable'}, must be {self.desired}"


def compare(found: Mapping[str, str]) -> list[WrongSetting]:
    """The settings that differ from ``DESIRED``; ``found``: what the kernel reports, by name."""
    return [
        WrongSetting(name, desired, found.get(name, "").strip()[:40])
        for name, desired in DESIRED.items()
        if number(found.get(name)) != desired
    ]


def refusal(wrong: list[WrongSetting]) -> str:
    """Why an agent with protectKernelDefaults does not start, and what to do; empty: it does."""
    if not wrong:
        return ""
    settings = " ".join(f"{each.name}={each.desired}" for each in wrong)
    return (
        f"kernel settings differ: {'; '.join(map(str, wrong))}: "
        f"set them (sysctl -w {settings}), or set protectKernelDefaults to false"
    )


def read_sysctls(directory: Path, names: Iterable[str] = DESIRED) -> dict[str, str]:
    """Texts by name, without those that can't be read."""
    found = {}
    for name in names:
        with suppress(OSError):
            found[name] = _file(directory, name).read_text(errors="replace")
    return found


def settle(directory: Path) -> Sequence[str]:
    """Set what differs from a node's needs; return what could not be set, for people.

    An agent in a container, or without permission, reports that and goes on: the settings are then
    up to the machine's administrator.
    """
    problems = []
    for wrong in compare(read_sysctls(directory)):
        try:
            _set(directory, wrong)
        except OSError as error:
            problems.append(f"{wrong} ({error.strerror or error})")
            continue
        log.info(
            "kernel setting changed",
            extra={"setting": wrong.name, "from": wrong.found, "to": wrong.desired},
        )
    return problems


def _set(directory: Path, wrong: WrongSetting) -> None:
    # never created: a missing file is a setting that this kernel does not have
    descriptor = os.open(_file(directory, wrong.name), os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, str(wrong.desired).encode())
    finally:
        os.close(descriptor)


def _file(directory: Path, name: str) -> Path:
    return directory.joinpath(*name.split("."))


class GuardedHost(Struct, frozen=True):
    """The machine as the guards access it; a simulation has another one."""

    proc: Path = Path("/proc")
    open_kernel_log: Callable[[], int] = open_kernel_log
    open_process_events: Callable[[], socket.socket] = open_process_events
    run: Run = run_command
    own_pid: int = 0
    """This agent's."""
    groups: ProcessGroups | None = None
    """None: the machine has no cgroups."""

    @property
    def kernel_settings(self) -> Path:
        """The directory of the kernel's settings."""
        return self.proc / "sys"


def this_machine() -> GuardedHost:
    """The one that this process runs on."""
    try:
        groups = ProcessGroups(detect())
    except CgroupError:
        groups = None
    return GuardedHost(own_pid=os.getpid(), groups=groups)


CGROUP_V1 = (
    "This node uses cgroup v1, which is in maintenance mode; support will be removed: "
    "boot the node with cgroup v2"
)

DEFAULT_OOM_SCORE_ADJ = -999
"""Source: docs/reference/constants.csv: resources: kubelet oom_score_adj."""

Warn = Callable[[Reason, str], None]
"""Records a warning about the node."""


class StartSettings(Struct, frozen=True):
    """The configuration of machine and process."""

    oom_score_adj: int = DEFAULT_OOM_SCORE_ADJ
    max_open_files: int = 0
    set_kernel_settings: bool = False

    @classmethod
    def from_settings(cls, settings: KubeletSettings, *, keep_kernel: bool) -> StartSettings:
        """``keep_kernel``: something else manages the kernel's settings.

        With protectKernelDefaults they were already checked when the agent began to start.
        """
        return cls(
            settings.oom_score_adj,
            settings.max_open_files,
            not keep_kernel and not settings.protect_kernel_defaults,
        )


class MachineAtStart(Component):
    """Sets what the configuration requests; what the machine does not allow is logged once."""

    settings: StartSettings
    host: GuardedHost
    warn: Warn
    root: Path
    """The kubelet's root directory."""
    cgroup_v2: bool
    swap_on: bool
    kernel_version: str
    in_user_namespace: bool

    def __post_init__(self) -> None:
        self._refused: list[str] = []

    @property
    def refused(self) -> tuple[str, ...]:
        """The settings that the machine did not allow, for people."""
        return tuple(self._refused)

    async def start(self) -> None:
        """Apply the settings; never fails for what can't be set."""
        self._refused = await asyncio.to_thread(self._set)
        for problem in self._refused:
            log.warning("could not apply the setting", extra={"why": problem})
        if not self.cgroup_v2:
            self.warn(Reason.CGROUP_V1, CGROUP_V1)
        if self.swap_on and not await asyncio.to_thread(self._noswap):
            self.warn(Reason.POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK, NOTICE)

    async def run(self) -> None:
        """Keep the agent's own OOM score as it should be, until cancelled."""
        own = self.host.proc / str(self.host.own_pid)
        keep = partial(set_oom_score, self.settings.oom_score_adj, own)
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            problem = await asyncio.to_thread(keep)
            if problem and problem not in self._refused:
                log.warning("could not apply the setting", extra={"why": problem})
                self._refused.append(problem)

    def _set(self) -> list[str]:
        host, settings = self.host, self.settings
        found = [
            set_oom_score(settings.oom_score_adj, host.proc / str(host.own_pid)),
            set_open_files(settings.max_open_files),
        ]
        if settings.set_kernel_settings and (wrong := settle(host.kernel_settings)):
            found.append(f"kernel settings: {'; '.join(wrong)}")
        return [problem for problem in found if problem]

    def _noswap(self) -> bool:
        inside = self.in_user_namespace
        known = supports_noswap(self.kernel_version, in_user_namespace=inside)
        return mounts_noswap(self.root) if known is None else known


# Moves processes into their configured cgroups.
#
# The agent's own process goes into that of kubeletCgroups, all processes that are in no cgroup
# yet into that of systemCgroups. Source: docs/reference/behaviour-resources.md, rj: kubelet
# process. Repeated every minute, since new processes start. Must never touch a process in
# somebody else's cgroup, nor one outside this machine's own process namespace.

DAEMONS_CHECK_EVERY_S = 60.0
ROUNDS = 10
"""How many rounds to search: processes start others while they are moved."""
_INIT = 1
_REPORTED = 3
"""How many errors a message names."""


class DaemonCgroups(Component):
    """Moves processes into their cgroups on this machine.

    Args:
        kubelet: path of the agent's cgroup; empty: it stays where it is.
        system: path of the cgroup for processes that have none; empty: they stay where they are.
        proc: /proc.
        own: pid of this agent.
    """

    groups: ProcessGroups
    kubelet: str
    system: str
    proc: Path
    own: int

    def __post_init__(self) -> None:
        self._reported: dict[str, str] = {}

    async def run(self) -> None:
        """Check every minute until cancelled; an error is logged once while it lasts."""
        while True:
            for field, path, move in (
                ("systemCgroups", self.system, self.move_system),
                ("kubeletCgroups", self.kubelet, self.move_own),
            ):
                if path:
                    self._warn_once(field, path, await asyncio.to_thread(_why_not, move))
            await asyncio.sleep(DAEMONS_CHECK_EVERY_S)

    def move_own(self) -> None:
        """Move the agent's own process. Raises CgroupError."""
        if not self._in_own_namespace():
            return  # in a container: what runs the container decides where it belongs
        self.groups.create(self.kubelet)
        self.groups.move_process(self.own, self.kubelet)

    def move_system(self) -> None:
        """Move the processes that are in no cgroup. Raises CgroupError."""
        if not self._in_own_namespace():
            return
        self.groups.create(self.system)
        failed: dict[int, str] = {}
        for _ in range(ROUNDS):
            waiting = [pid for pid in sorted(self.groups.in_none()) if self._may_move(pid)]
            failed = {pid: why for pid, why in failed.items() if pid in waiting}
            if len(failed) == len(waiting):
                break
            for pid in waiting:
                try:
                    self.groups.move_process(pid, self.system)
                except CgroupError as error:
                    failed[pid] = str(error)
        if failed:
            raise CgroupError(_summary(list(failed.values())))

    def _may_move(self, pid: int) -> bool:
        return pid not in (_INIT, self.own if self.kubelet else 0) and not self._of_kernel(pid)

    def _of_kernel(self, pid: int) -> bool:
        """Whether it is a kernel thread: these have no executable."""
        try:
            (self.proc / str(pid) / "exe").readlink()
        except OSError as error:
            return error.errno in (errno.ENOENT, errno.ESRCH)
        return False

    def _in_own_namespace(self) -> bool:
        try:
            own = str(self._namespace(self.own).readlink())
            if own == FIRST_NAMESPACE:
                return True  # not every machine permits reading init's namespace
            return own == str(self._namespace(_INIT).readlink())
        except OSError as error:
            raise CgroupError(f"the namespace of processes is not known: {error}") from error

    def _namespace(self, pid: int) -> Path:
        return self.proc / str(pid) / "ns" / "pid"

    def _warn_once(self, field: str, path: str, why: str) -> None:
        if why and why != self._reported.get(field):
            log.warning(
                "processes are not in the cgroup that is configured for them; trying again",
                extra={"field": field, "cgroup": path, "why": why},
            )
        self._reported[field] = why


def _why_not(move: Callable[[], None]) -> str:
    try:
        move()
    except CgroupError as error:
        return str(error)
    return ""


def _summary(errors: Sequence[str]) -> str:
    more = len(errors) - _REPORTED
    return "; ".join(errors[:_REPORTED]) + (f"; and {more} more" if more > 0 else "")
