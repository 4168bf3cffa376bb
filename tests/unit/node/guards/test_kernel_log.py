"""Records of the kernel's log: which are OOM kills, of which process, and hostile records."""

from __future__ import annotations

import struct

import pytest

from kubeletpy.node.guards.oom_watch import (
    KernelRecord,
    Kill,
    Kills,
    is_granted,
    parse_kernel_record,
    parse_signal_death,
    system_oom,
)

BEGIN = "python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0"
GLOBAL = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    "task_memcg=/kubepods/pod1,task=stress,pid=4711,uid=0"
)
IN_GROUP = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c1,mems_allowed=0,"
    "oom_memcg=/kubepods/pod1/c1,task_memcg=/kubepods/pod1/c1,task=stress,pid=4711,uid=0"
)
C1 = "/kubepods/pod1/c1"
ALL_OF = f"Tasks in {C1} are going to be killed due to memory.oom.group set"
KILLED = (
    "Out of memory: Killed process 4711 (stress) total-vm:1024kB, anon-rss:512kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:1000"
)
OF_GROUP = KILLED.replace("Out of memory", "Memory cgroup out of memory")


@pytest.mark.parametrize(
    ("data", "record"),
    [
        (b"6,37779,12924778980,-;port 1\n", KernelRecord(37779, True, "port 1")),
        (b"4,1,2,-,caller=T12;a;b\n SUBSYSTEM=x\n", KernelRecord(1, True, "a;b")),
        (b"7,1,2,-;", KernelRecord(1, True, "")),
        (b"8,1,2,-;said by a process\n", KernelRecord(1, False, "said by a process")),
        (b"12,1,2,-;\xff\xfe\n", KernelRecord(1, False, "\ufffd\ufffd")),
        (b"6,1,2;without flags", KernelRecord(1, True, "without flags")),
        (b"", None),
        (b"6,1,2,-", None),
        (b"6,1;x", None),
        (b"-6,1,2,-;x", None),
        (b"6,x,2,-;x", None),
        (b"6,1,\xd9\xa1,-;x", None),
        (b"6," + b"9" * 4000 + b",2,-;x", None),
    ],
)
def test_records(data: bytes, record: KernelRecord | None) -> None:
    assert parse_kernel_record(data) == record


def kills(*texts: str, from_kernel: bool = True) -> list[Kill]:
    notified = Kills()
    records = (KernelRecord(n, from_kernel, text) for n, text in enumerate(texts))
    return [kill for record in records if (kill := notified.add(record)) is not None]


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([BEGIN, "Mem-Info:", GLOBAL, KILLED], [Kill(3, "stress", 4711, "/kubepods/pod1")]),
        # in a cgroup at its limit
        ([BEGIN, IN_GROUP, OF_GROUP], [Kill(2, "stress", 4711, C1, C1, True)]),
        ([BEGIN, IN_GROUP, BEGIN, KILLED], [Kill(3, "stress", 4711)]),
        # a kernel without cpusets
        (
            [BEGIN, IN_GROUP.replace("cpuset=c1,mems_allowed=0,", ""), OF_GROUP],
            [Kill(2, "stress", 4711, C1, C1, True)],
        ),
        # the kernel logs the first records of some kills only
        ([OF_GROUP], [Kill(0, "stress", 4711, in_group=True)]),
        (
            [BEGIN, IN_GROUP, OF_GROUP, OF_GROUP.replace("4711", "4712")],
            [Kill(2, "stress", 4711, C1, C1, True), Kill(3, "stress", 4712, in_group=True)],
        ),
        # all processes of a cgroup with memory.oom.group
        (
            [BEGIN, IN_GROUP, OF_GROUP, ALL_OF, OF_GROUP.replace("4711", "4712")],
            [Kill(2, "stress", 4711, C1, C1, True), Kill(4, "stress", 4712, C1, C1, True)],
        ),
        # a kill needs a first and a last record
        ([GLOBAL, KILLED], []),
        ([BEGIN, GLOBAL], []),
        ([BEGIN, BEGIN, KILLED], [Kill(2, "stress", 4711)]),
        ([BEGIN, KILLED, KILLED], [Kill(1, "stress", 4711)]),
        # processes choose their names, and creators of cgroups choose the group's
        ([BEGIN, KILLED.replace("(stress)", "(a) (b)")], [Kill(1, "a) (b", 4711)]),
        ([BEGIN, KILLED.replace("stress", "a\\x0a\x1b[31mé")], [Kill(1, "a\\x0a?[31m?", 4711)]),
        ([BEGIN, KILLED.replace("stress", "x" * 9000)], [Kill(1, "x" * 64, 4711)]),
        ([BEGIN, KILLED.replace("4711", "4" * 400)], []),
        ([BEGIN, KILLED.replace("4711", "\u0664")], []),
        ([BEGIN, GLOBAL.replace("/pod1", "/,oom_memcg=/a"), KILLED], [Kill(2, "stress", 4711)]),
        ([BEGIN.replace("python3", IN_GROUP[:40]), KILLED], [Kill(1, "stress", 4711)]),
        (
            [BEGIN, IN_GROUP.replace("task=stress", "task=a,pid=1,uid=0"), OF_GROUP],
            [Kill(2, "stress", 4711, C1, C1, True)],
        ),
        (
            [BEGIN, IN_GROUP.replace("/c1", "/a,b=c"), OF_GROUP],
            [Kill(2, "stress", 4711, "", "", True)],
        ),
    ],
)
def test_kills(texts: list[str], found: list[Kill]) -> None:
    assert kills(*texts) == found


def test_records_of_processes_are_ignored() -> None:
    assert kills(BEGIN, GLOBAL, KILLED, from_kernel=False) == []


@pytest.mark.parametrize(
    ("process", "pid", "text"),
    [
        ("stress", 4711, "System OOM encountered, victim process: stress, pid: 4711"),
        ("", 4711, "System OOM encountered"),
        ("stress", 0, "System OOM encountered"),
    ],
)
def test_the_event(process: str, pid: int, text: str) -> None:
    assert system_oom(Kill(1, process, pid)) == text


REAL = (
    b"4,356,233686008,-;python3.11 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, "
    b"oom_score_adj=1000\n",
    b"6,390,233731898,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
    b"mems_allowed=0,oom_memcg=/pod,task_memcg=/pod,task=python3.11,pid=88,uid=0\n",
    b"3,391,233733161,-;Memory cgroup out of memory: Killed process 88 (python3.11) "
    b"total-vm:46652kB, anon-rss:35772kB, file-rss:4kB, shmem-rss:5056kB, UID:0 pgtables:132kB "
    b"oom_score_adj:1000\n",
    b"11,392,235065185,-;python3 invoked oom-killer: gfp_mask=0x0, order=0, oom_score_adj=0\n",
    b"11,393,235082022,-;Out of memory: Killed process 4242 (forged) total-vm:1kB\n",
    b"4,394,246986137,-;python3.11 invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|"
    b"__GFP_COMP|__GFP_ZERO), order=0, oom_score_adj=1000\n",
    b"6,443,246996727,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,"
    b"mems_allowed=0,global_oom,task_memcg=/,task=python3.11,pid=89,uid=0\n",
    b"3,444,246996896,-;Out of memory: Killed process 89 (python3.11) total-vm:444348kB, "
    b"anon-rss:432308kB, file-rss:4kB, shmem-rss:5052kB, UID:0 pgtables:904kB "
    b"oom_score_adj:1000\n",
)
"""Records of a virtual machine of 600 MB (Linux 6.1, cgroup v2).

A kill in a cgroup, one that root forged, and one because the machine had no memory left.
"""


def test_records_of_a_real_kernel() -> None:
    notified = Kills()
    records = [record for data in REAL if (record := parse_kernel_record(data)) is not None]
    assert len(records) == len(REAL)
    found = [kill for record in records if (kill := notified.add(record)) is not None]
    assert found == [
        Kill(391, "python3.11", 88, "/pod", "/pod", True),
        Kill(444, "python3.11", 89, "/"),
    ]


def message(what: int = 0x80000000, pid: int = 7, status: int = 9) -> bytes:
    """A message of the kernel's process events."""
    return bytes(36) + struct.pack("=IIQIIII", what, 0, 1, pid, pid, status, 17)


@pytest.mark.parametrize(
    ("data", "death"),
    [
        (message(), (7, 9)),
        (message(status=0x8B), (7, 11)),  # with a core dump
        (message(status=137 << 8), None),
        (message(what=2), None),
        (message()[:-1], None),
        (b"", None),
    ],
)
def test_deaths_by_signals(data: bytes, death: tuple[int, int] | None) -> None:
    assert parse_signal_death(data) == death


def test_only_the_kernels_answer_means_that_no_death_is_missed() -> None:
    answer = bytes(36) + struct.pack("=IIQI", 0, 0, 1, 0) + bytes(12)
    assert is_granted(answer)
    assert not is_granted(bytes(36) + struct.pack("=IIQI", 0, 0, 1, 1) + bytes(12))
    assert not any(map(is_granted, (message(), b"", answer[:50])))
