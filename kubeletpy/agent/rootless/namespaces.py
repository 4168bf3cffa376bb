"""Namespaces of a login user that hold a node, and end with the process that made them.

The first process in them is process 1 of a pid namespace. The kernel kills it when its parent dies,
and all others with it. The mounts end with the last process, so nothing has to be undone.
Source: user_namespaces(7), pid_namespaces(7), seccomp(2).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kubeletpy.agent.errors import LaunchError
from kubeletpy.agent.rootless.possible import CHOWN, IdRange, confinement, id_map, parse_profile
from kubeletpy.volumes.files.disk import MS_BIND, MS_REC, mount

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_SLAVE, MS_MOVE = 1 << 19, 0x2000
HARMLESS = 0xE
"""Flags nosuid, nodev and noexec of a mount."""
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP = 1, 22
_FILTER = 2
_ALLOW, _SUCCEED = 0x7FFF0000, 0x00050000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
OUTSIDE = ".outside"
"""Directory in a replaced one that shows what is outside of the namespace."""
NETWORK = "/run/user/0/netns/node"
"""The node's network namespace, where AppArmor's profile of an installed pasta lets it open it."""

log = logging.getLogger(__name__)
_libc = ctypes.CDLL(None, use_errno=True)


def _call(what: str, result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def unshare(flags: int) -> None:
    """unshare(2). Raises OSError."""
    _call("unshare", _libc.unshare(flags))


def enforced_profile() -> str:
    """The AppArmor profile that confines this process, or an empty text."""
    try:
        return parse_profile(Path("/proc/self/attr/apparmor/current").read_text().rstrip("\0\n"))
    except OSError:
        return ""


def enter(process: int, kind: str, flag: int) -> None:
    """Enter a namespace of another process, such as ``"net"``. Raises OSError."""
    with Path(f"/proc/{process}/ns/{kind}").open("rb") as namespace:
        _call("setns", _libc.setns(namespace.fileno(), flag))


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. The request ends with new rights."""
    _call("prctl", _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))


def chown_filter(architecture: str) -> bytes:
    """The BPF program by which changes of ownership succeed without effect.

    Each instruction has 8 bytes: code, two jumps, operand. A system call of another architecture
    is not affected. Charliecloud builds images so (``--force=seccomp``).
    """
    number, calls = CHOWN[architecture]
    load, equal, end = 0x20, 0x15, 0x06
    program = [
        (load, 0, 0, 4),
        (equal, 0, len(calls) + 1, number),
        (load, 0, 0, 0),
        *((equal, len(calls) - index, 0, call) for index, call in enumerate(calls)),
        (end, 0, 0, _ALLOW),
        (end, 0, 0, _SUCCEED),
    ]
    return b"".join(struct.pack("<HBBI", *each) for each in program)


def ignore_chown() -> None:
    """Let changes of ownership have no effect, for this process and all that it starts."""
    program = chown_filter(os.uname().machine)
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    _call("prctl", _libc.prctl(_PR_SET_SECCOMP, _FILTER, header, 0, 0))


def run(ids: tuple[IdRange, IdRange] | None, group: Path | None, first: Callable[[], int]) -> int:
    """Run a function as process 1 of new namespaces, and return its exit code.

    It has the ids 0 and, with ``ids``, those from 1 on. SIGINT, SIGTERM and SIGHUP become its
    SIGTERM.

    Args:
        group: the directory of a delegated cgroup; it is the root of the cgroups inside, and its
            processes move to the cgroup ``agent`` below it.

    Raises LaunchError.
    """
    (asked, ask), (answered, answer) = os.pipe(), os.pipe()
    child = _forked(lambda: _between(ask, answered, first))
    for each in (ask, answered):
        os.close(each)
    try:
        if os.read(asked, 1):
            _write_maps(child, ids)
            if group is not None:
                _move_below(group, (child, os.getpid()))
            os.write(answer, b"1")
    finally:
        os.close(answer)
    return _wait(child, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


def _between(ask: int, answered: int, first: Callable[[], int]) -> int:
    """The parent of process 1: it is outside of the pid namespace that it made."""
    os.setsid()  # Ctrl-C reaches the process outside only
    end_with_parent()
    unshare(NEWUSER | NEWNS | NEWPID | NEWIPC | NEWUTS | NEWCGROUP)
    end_with_parent()
    os.write(ask, b"1")
    if not os.read(answered, 1):
        return 1

    def process_1() -> int:
        end_with_parent()
        return first()

    child = _forked(process_1)
    return _wait(child, (signal.SIGTERM,))


def _forked(function: Callable[[], int]) -> int:
    """Start a process that runs a function and exits with its result; returns its id.

    An expected error is printed as a message; no other leaves the process, either.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = function()
    except (LaunchError, OSError) as error:
        denied = isinstance(error, OSError) and error.errno == errno.EACCES
        profile = enforced_profile() if denied else ""
        cause = f"; {confinement(profile)}" if profile else ""
        sys.stderr.write(f"kubeletpy: {error}{cause}\n")
    except Exception:  # the last boundary of the process
        log.critical("a process of the node failed", exc_info=True)
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(child: int, numbers: Sequence[int]) -> int:
    for number in numbers:
        signal.signal(number, lambda *_: os.kill(child, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _write_maps(process: int, ids: tuple[IdRange, IdRange] | None) -> None:
    if ids is None:
        own = Path(f"/proc/{process}")
        (own / "setgroups").write_text("deny")
        (own / "uid_map").write_text(f"0 {os.getuid()} 1")
        (own / "gid_map").write_text(f"0 {os.getgid()} 1")
        return
    for program, own_id, extra in zip(
        ("newuidmap", "newgidmap"), (os.getuid(), os.getgid()), ids, strict=True
    ):
        line = [program, str(process), *map(str, id_map(own_id, extra))]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LaunchError(f"`{' '.join(line)}` failed: {done.stderr.strip()}")


def _move_below(group: Path, processes: Sequence[int]) -> None:
    """Move processes out of a cgroup that is to have cgroups with controllers below it."""
    below = group / "agent"
    below.mkdir(exist_ok=True)
    for process in processes:
        (below / "cgroup.procs").write_text(str(process))


# Mounts of the namespace.


def set_up_mounts(state: Path, *, own_cgroups: bool) -> None:
    """Mount what programs of a node write at fixed paths, below the state directory or in memory.

    The directories /run, /var/lib and /var/log get a copy in memory, with links to all that was
    there. Raises OSError.
    """
    mount("none", "/", flags=MS_SLAVE | MS_REC)
    mount("proc", "/proc", "proc", HARMLESS)
    if own_cgroups:
        # moved there, since the kernel refuses to mount what already is at a path
        mounts = state / "mounts"
        mounts.mkdir(exist_ok=True)
        mount("cgroup2", str(mounts), "cgroup2", HARMLESS)
        mount(str(mounts), "/sys/fs/cgroup", flags=MS_MOVE)
    copies = {"/run": ("containerd", "netns", "user", "xtables.lock"), "/var/lib": ("cni",),
              "/var/log": ("containers", "pods")}  # fmt: skip
    for path, replaced in copies.items():
        replace_directory(path, state / "mounts", replaced)
    Path(NETWORK).parent.mkdir(parents=True)
    for login in Path(f"/run/{OUTSIDE}/user").glob("[1-9]*"):
        Path(f"/run/user/{login.name}").symlink_to(login)
    logs = state / "log"
    logs.mkdir(exist_ok=True)
    Path("/var/log/pods").mkdir()
    mount(str(logs), "/var/log/pods", flags=MS_BIND)


def replace_directory(path: str, at: Path, replaced: Sequence[str]) -> None:
    """Mount an empty directory in memory over ``path``, with links to its entries.

    Args:
        at: an empty directory, made if missing, where the mount begins.
        replaced: names without a link.
    """
    at.mkdir(exist_ok=True)
    names = [name for name in os.listdir(path) if name not in replaced]  # noqa: PTH208
    mount("tmpfs", str(at), "tmpfs", data="mode=755")
    outside = at / OUTSIDE
    outside.mkdir()
    mount(path, str(outside), flags=MS_BIND | MS_REC)
    for name in names:
        (at / name).symlink_to(f"{OUTSIDE}/{name}")
    mount(str(at), path, flags=MS_MOVE)


def bind_file(source: Path, target: str) -> None:
    """Show a file at another path, also where that is a link. Raises OSError."""
    mount(str(source), os.path.realpath(target), flags=MS_BIND)


# Network.


def set_up_loopback() -> None:
    """Switch on the loopback device of a new network namespace. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        found = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        (flags,) = struct.unpack_from("H", found, 16)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def connect_network(line: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run the program that connects a network namespace with that of this process.

    A word ``READY`` of its command line is replaced by the number of a descriptor, to which it
    writes when it has connected it. Without one it continues in the background then.
    Raises LaunchError.
    """
    reader, writer = os.pipe()
    words = [str(writer) if word == READY else word for word in line]
    program = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL if READY in line else subprocess.PIPE,
        env=dict(environment),
        pass_fds=(writer,),
        text=True,
    )
    os.close(writer)
    if READY in line:
        connected = bool(os.read(reader, 1))
        why = "it exited"
    else:
        why = program.communicate()[1]
        connected = program.returncode == 0
    os.close(reader)
    if not connected:
        raise LaunchError(f"`{' '.join(words)}` failed: {why.strip()}")


READY = "READY"


# Process 1.


def gated(function: Callable[[], int], *, own_network: bool) -> tuple[int, Callable[[], None]]:
    """Start a process that runs a function once it is let go; returns it, and what lets it go.

    It has a network namespace of its own, if ``own_network``, which exists on return.
    """
    (opened, open_gate), (made, tell_made) = os.pipe(), os.pipe()

    def behind_gate() -> int:
        os.close(open_gate)
        if own_network:
            unshare(NEWNET)
            set_up_loopback()
        os.write(tell_made, b"1")
        os.read(opened, 1)
        return function()

    child = _forked(behind_gate)
    for each in (opened, tell_made):
        os.close(each)
    if not os.read(made, 1):
        raise LaunchError("no network namespace could be made")
    return child, lambda: os.close(open_gate)


def spawn(execute: Callable[[], None], *, network_of: int | None, delay: float = 0.0) -> int:
    """Start a process that becomes a program, and return its id.

    Args:
        network_of: the process in whose network it runs; None: in this one's.
        delay: seconds until it becomes the program.
    """

    def become() -> int:
        time.sleep(delay)
        if network_of is not None:
            enter(network_of, "net", NEWNET)
        execute()
        return 0

    return _forked(become)


def supervise(main: int, restarted: Mapping[int, Callable[[], int]]) -> int:
    """Reap all processes until ``main`` exits, then end the containers; returns its exit code.

    ``restarted``: processes that are started again when they exit, and how.
    """
    signal.signal(signal.SIGTERM, lambda *_: os.kill(main, signal.SIGTERM))
    services = dict(restarted)
    while True:
        exited, status = os.waitpid(-1, 0)
        if exited == main:
            break
        if exited in services:
            again = services.pop(exited)
            services[again()] = again
    _end_containers()
    return os.waitstatus_to_exitcode(status)


GRACE_S = 5.0
"""Seconds that containers have to end after SIGTERM."""


def _end_containers() -> None:
    """Send SIGTERM to the processes of nested pid namespaces, and wait for them, within GRACE_S."""
    ends = []
    for process in nested(Path("/proc")):
        with suppress(OSError):
            ends.append(os.pidfd_open(process))
            os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for each in ends:
        poll = select.poll()
        poll.register(each, select.POLLIN)
        poll.poll(max(0.0, deadline - time.monotonic()) * 1000)


def nested(proc: Path) -> Iterator[int]:
    """Processes that are in a pid namespace below that of ``proc``."""
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                text = (entry / "status").read_text()
                line = next((each for each in text.splitlines() if each.startswith("NSpid:")), "")
                if len(line.split()) > 2:
                    yield int(entry.name)
