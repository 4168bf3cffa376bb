"""Rules of the guards: kernel settings, iptables chains and the kernel's log. Pure.

Source: docs/reference/behaviour-resources.md, rj: kernel tunables, rf: OOM watcher;
docs/reference/config.csv: makeIPTablesUtilChains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum

from kubeletpy.base.structs import Struct
from kubeletpy.base.text import number

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


# iptables chains that others expect on a node, and what iptables' answers mean.
#
# The agent itself does not need them. The hint chain shows other components which of a machine's
# two iptables is in use. The firewall drops packets to loopback addresses that come from
# elsewhere, which a proxy with route_localnet would let in. The canaries disappear when all rules
# are flushed.

HINT = "KUBE-IPTABLES-HINT"
FIREWALL = "KUBE-FIREWALL"
CANARY = "KUBE-KUBELET-CANARY"
CANARY_TABLES = ("mangle", "nat", "filter")
PROGRAMS = {4: "iptables", 6: "ip6tables"}
"""Program by IP version."""
LOCK_WAIT_S = 5
"""How long a command waits for another one that changes the tables."""

_FOREIGN_LOOPBACK = (
    *("-m", "comment", "--comment", "block incoming localnet connections"),
    *("--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8"),
    *("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"),
)
"""kube-proxy creates the same rule: they must match to the letter."""


class IptablesExit(Enum):
    """The meaning of an exit code of iptables."""

    YES = "done, or it is there"
    NO = "it is there already, or it is not there"
    FAILED = "neither"


def answer(code: int) -> IptablesExit:
    """1 means "no"; others are failures: no permission, no kernel module, lock not acquired."""
    return {0: IptablesExit.YES, 1: IptablesExit.NO}.get(code, IptablesExit.FAILED)


class Desired(Struct, frozen=True):
    """A chain or a rule; arguments of iptables without the table."""

    table: str
    make: tuple[str, ...]
    check: tuple[str, ...] = ()
    """Checks whether it exists before it is created; empty: ``make`` reports that itself."""


def required_rules(version: int) -> Iterator[Desired]:
    """The chains and rules that IPv4 or IPv6 requires, in order of creation."""
    yield _chain("mangle", HINT)
    if version == 4:  # IPv6 has one loopback address, and nothing routes it
        yield _chain("filter", FIREWALL)
        for chain in ("OUTPUT", "INPUT"):
            yield _rule("-I", "filter", chain, "-j", FIREWALL)
        yield _rule("-A", "filter", FIREWALL, *_FOREIGN_LOOPBACK)


def canaries() -> Iterator[Desired]:
    """The canary chains, which nothing uses."""
    for table in CANARY_TABLES:
        yield _chain(table, CANARY)


def command(version: int, table: str, arguments: tuple[str, ...]) -> list[str]:
    """The command line of a command."""
    return [PROGRAMS[version], "-w", str(LOCK_WAIT_S), "-t", table, *arguments]


def is_usable(version: int) -> list[str]:
    """A command that succeeds where iptables can be used at all."""
    return command(version, "nat", ("-S", "POSTROUTING", "1"))


def canary_check(version: int, table: str) -> list[str]:
    """A command that checks for a table's canary."""
    return command(version, table, ("-S", CANARY, "1"))


def _chain(table: str, name: str) -> Desired:
    return Desired(table, ("-N", name))


def _rule(how: str, table: str, chain: str, *rule: str) -> Desired:
    return Desired(table, (how, chain, *rule), ("-C", chain, *rule))


# Records of the kernel's log, and the kills of the OOM killer in them.
#
# The kernel writes several records about one kill: the first begins it, and the one on the killed
# process ends it. Processes choose their names, and a writer to /dev/kmsg chooses whole texts:
# such a record is never treated as the kernel's own.

MAX_NAME = 64
"""Characters of a process's name that are kept: the kernel has 15 bytes, each escaped as 4."""

_BEGIN = " invoked oom-killer:"
_IN_GROUP = "oom-kill:constraint=CONSTRAINT_MEMCG,"
_KILLED = re.compile(r"Killed process (?P<pid>\d{1,10}) \((?P<name>.*)\)", re.ASCII)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


class KernelRecord(Struct, frozen=True):
    """One record of /dev/kmsg."""

    sequence: int
    """Its number since boot."""
    from_kernel: bool
    """Whether the kernel wrote it, not a process."""
    text: str


class Kill(Struct, frozen=True):
    """A process killed because the machine ran out of memory."""

    sequence: int
    """Sequence number of the record that ended it."""
    process: str
    pid: int


def parse_kernel_record(data: bytes) -> KernelRecord | None:
    """A record as one read of /dev/kmsg returns it; None for anything else.

    ``PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,…];TEXT`` and then lines of tags, which are not read.
    """
    head, found, rest = data.partition(b";")
    fields = head.decode("ascii", errors="replace").split(",")
    if not found or len(fields) < 3:
        return None
    priority, sequence, microseconds = (number(field) for field in fields[:3])
    if priority is None or sequence is None or microseconds is None:
        return None
    text = rest.partition(b"\n")[0].decode("utf-8", errors="replace")
    # the facility is above the three bits of the level; 0 is the kernel, and nothing else gets it
    return KernelRecord(sequence, priority >> 3 == 0, text)


class Kills:
    """Combines records into kills; keeps no more than whether one has begun."""

    def __init__(self) -> None:
        self._begun = False

    def add(self, record: KernelRecord) -> Kill | None:
        """The next record; the kill that it ends, if it ends one.

        A kill in a cgroup at its limit does not count: the container's status reports it. The
        kernel names what was at its limit before any name that a process has chosen.
        """
        if not record.from_kernel:
            return None
        if not self._begun:
            self._begun = _BEGIN in record.text
            return None
        if record.text.startswith(_IN_GROUP):
            self._begun = False
            return None
        if (ended := _KILLED.search(record.text)) is None:
            return None
        self._begun = False
        return Kill(record.sequence, _name(ended["name"]), int(ended["pid"]))


def system_oom(kill: Kill) -> str:
    """The message of the node's event. Source: docs/reference/events.csv: SystemOOM."""
    if not kill.process or not kill.pid:
        return "System OOM encountered"
    return f"System OOM encountered, victim process: {kill.process}, pid: {kill.pid}"


def _name(text: str) -> str:
    return _UNPRINTABLE.sub("?", text)[:MAX_NAME]
