"""The process of a command: pauses of its event loop, freed memory, and facts of its machine."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from kubeletpy import config
from kubeletpy.base.structs import Component
from kubeletpy.base.text import lines
from kubeletpy.config.rules import parse_cpuset
from kubeletpy.node.guards.at_start import compare, read_sysctls, refusal

OLDEST_GENERATION = 2
EVERYTHING_EVERY_S = 3600.0
"""Interval of collections that examine frozen objects too. With nine pods of a megabyte each such
a collection took 0.04 to 0.19 s, several of them a second."""
FREEZE_AT = 20_000
"""Objects in the oldest generation after a full collection from which on they are frozen, that is,
left out of later collections. A collection that examines this many takes 5 to 20 ms. Fewer are not
frozen: among them are connections that will soon be garbage, and a cycle that is frozen while it is
alive stays for an hour. 30,000 connections that ended in their TLS handshake left 900 MB when every
full collection froze what it found alive."""
SWITCH_S = 0.001
"""Seconds that a thread waits for the lock before it interrupts its holder. With Python's
5 ms the loop, which releases it at each system call, waited up to 0.1 s for six threads that write
volumes."""


class Collections(Component):
    """Keeps full collections short: objects are frozen once there are FREEZE_AT of them.

    Objects without cycles are freed with their last reference, as ever. Cycles that were frozen
    while they were alive are found within an hour, others by the next full collection.
    """

    # seconds, of any origin.
    now: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._everything_at = self.now()

    def begin(self) -> None:
        """Freeze what exists (modules, classes)."""
        gc.freeze()
        gc.callbacks.append(self.collected)

    def collected(self, phase: str, info: Mapping[str, int]) -> None:
        """Handle a collection; called by ``gc.callbacks``."""
        if phase != "stop" or info["generation"] != OLDEST_GENERATION:
            return
        now = self.now()
        if now - self._everything_at >= EVERYTHING_EVERY_S:
            self._everything_at = now
            gc.unfreeze()  # the next collection examines all of it
        elif len(gc.get_objects(OLDEST_GENERATION)) >= FREEZE_AT:
            gc.freeze()


@contextmanager
def importing() -> Iterator[None]:
    """The agent's modules are imported in it, once; what they make is no garbage."""
    gc.disable()  # scanning it took a tenth of the import time
    try:
        yield
    finally:
        sys.setswitchinterval(SWITCH_S)
        Collections().begin()
        gc.enable()


# Three packages import far more than an agent uses. aiohttp imports its client, and the system's
# certificate authorities twice; prometheus_client its own HTTP servers and exporters; protobuf its
# messages in Python beside those in C. Only a process of our own does without, never a program that
# uses an agent as a library.

PACKAGES = ("aiohttp", "prometheus_client")
SLOW_MESSAGES = "google.protobuf.internal.python_message"
"""A module without use beside the C library: 12 ms of CPU and 1.2 MB with what it imports."""


def skip_package_imports() -> None:
    """Have no PACKAGES import more than the modules that are named, and protobuf no SLOW_MESSAGES.

    Call it before they are imported. Import the names that such a package exports from its modules:
    ``aiohttp.client.ClientSession``.
    """
    from google.protobuf.internal import api_implementation

    if api_implementation.Type() == "upb":
        sys.modules.setdefault(SLOW_MESSAGES, ModuleType(SLOW_MESSAGES))
    for name in PACKAGES:
        if name not in sys.modules and (found := find_spec(name)) is not None:
            package = sys.modules[name] = ModuleType(name)
            package.__spec__, package.__path__ = found, found.submodule_search_locations or []
            # aiohttp names itself in headers with it; the agent sends others, or none
            package.__version__ = ""  # type: ignore[attr-defined]


# Freed memory goes back to the system. A burst of pods, a long list from the runtime or a large
# annotation leaves free blocks in the arenas of all threads involved, and they stay there. Only a
# process of our own is set up like this, never a program that uses an agent as a library.

ARENAS = 2
"""Threads hold Python's lock while they allocate: an arena for each would help nobody."""
LARGE = 1 << 20
"""Size in bytes from which a block returns to the system as soon as it is free.

glibc begins with 128 KiB, and raises it up to 32 MiB as large blocks are freed. A fixed 128 KiB
made work with such blocks slower, 2.7 times at worst, because the kernel has to clear them each
time.
"""
ENDS = 2 << 20
"""Bytes of free memory that an arena's end may have; glibc's is twice what LARGE has become."""
TRIM_EVERY_S = 30.0
"""Free pages between used ones stay until they are trimmed: after a burst of
500 pods 4 of 125 MB. It takes 2 ms, in a thread; 13 with 30 MB to give."""
_OPTIONS = {
    "MALLOC_ARENA_MAX": (-8, ARENAS),
    "MALLOC_MMAP_THRESHOLD_": (-3, LARGE),
    "MALLOC_TRIM_THRESHOLD_": (-1, ENDS),
}
"""Variable of the environment that has precedence -> option of glibc's <malloc.h>, value."""


def keep_little_freed_memory() -> None:
    """Call it before any thread is started. Other C libraries than glibc have no such options."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for variable, (option, value) in _OPTIONS.items():
        if variable not in os.environ:
            mallopt(option, value)


async def give_back_freed_memory(every: float = TRIM_EVERY_S) -> None:
    """Give free pages back to the system, each ``every`` seconds, until cancelled."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(every)
        await asyncio.to_thread(trim, 0)


# Facts of the machine on which settings depend, and settings that do not fit it.


def cgroup_version(root: Path = Path("/sys/fs/cgroup")) -> int:
    """2 where the unified hierarchy is mounted at the root, else 1 (also for hybrid setups)."""
    return 2 if (root / "cgroup.controllers").exists() else 1


def swap_on(swaps: Path = Path("/proc/swaps")) -> bool:
    """Whether any swap is in use; the file's first line is its heading."""
    try:
        return len(lines(swaps.read_text(errors="replace"))) > 1
    except OSError:
        return False


def online_cpus(path: Path = Path("/sys/devices/system/cpu/online")) -> frozenset[int] | None:
    """The online CPUs; None when the kernel does not report them."""
    try:
        return parse_cpuset(path.read_text().strip())
    except OSError:
        return None


def wrong_kernel_settings(directory: Path = Path("/proc/sys")) -> str:
    """Which kernel settings do not suit a node, and what to do about it; ``""``: none."""
    return refusal(compare(read_sysctls(directory)))


def problems_here(
    settings: config.KubeletSettings, flags: config.NodeFlags
) -> list[config.Problem]:
    """The reasons why settings and flags can't work on this machine."""
    problems = config.check_host(
        settings, cgroup_version=cgroup_version(), swap_on=swap_on(), online_cpus=online_cpus()
    )
    if settings.protect_kernel_defaults and (why := wrong_kernel_settings()):
        problems.append(config.Problem("protectKernelDefaults", "true", why))
    path, bootstrap = flags.kubeconfig, flags.bootstrap_kubeconfig
    if path and not Path(path).is_file() and not bootstrap:
        problems.append(config.Problem("--kubeconfig", path, "no such file"))
    if bootstrap and not path:
        allowed = "only with --kubeconfig, which names the file to write"
        problems.append(config.Problem("--bootstrap-kubeconfig", bootstrap, allowed))
    return problems
