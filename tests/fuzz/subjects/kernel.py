"""Files of the kernel, parts of which containers choose: names of mounts, processes, interfaces."""

from __future__ import annotations

from kubeletpy.base.host import mount_table
from kubeletpy.base.text import sizes
from kubeletpy.node.guards import oom_watch
from kubeletpy.node.stats import cgroup_text, proc_text
from tests.fuzz.target import target, text

MOUNTS = rb"""36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
37 36 0:4 / /a\040b rw shared:2 - tmpfs tmpfs rw,size=1k
"""
KILL = b"""6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,task=a,pid=1
3,2,2,-;Out of memory: Killed process 12 (some name) total-vm:1kB
 SUBSYSTEM=x
"""
CGROUP = b"""nr_periods 1
total_inactive_file 18446744073709551615
some avg10=0.00 avg60=1.5 avg300=nan total=12
8:0 Read 12
8:0 rbytes=1 wbytes=2 rios=3 wios=4
max
"""
PROC = b"""cpu  1 2 3 4 5 6 7 8 9 10
btime 12345
MemTotal: 1024 kB
  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
0.1 0.2 0.3 1/234 567
12:cpu,cpuacct:/a/b
processor : 0
8 0 sda 1 2 3
12 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24
"""


@target(seeds=(MOUNTS,), parts=(b" - ", b"\\040", b"\\134", b"shared:", b"\xe2\x80\xa8", b"\x0c"))
def mountinfo(data: bytes) -> None:
    """/proc/self/mountinfo: an odd line takes no other with it."""
    found = mount_table.parse(data)
    assert len(mount_table.parse(MOUNTS + data + b"\n" + MOUNTS)) >= len(found) + 4
    for mount in found[:5]:
        mount_table.references(found, mount.path)
        mount_table.mounts_below(found, mount.path)
        mount_table.is_shared(found, mount.path)


@target(seeds=(KILL,), parts=(b";", b"Killed process ", b"oom-kill:constraint=", b"\n", b"("))
def kmsg(data: bytes) -> None:
    """Records of the kernel's log."""
    kills = oom_watch.Kills()
    for piece in data.split(b"\0"):
        record = oom_watch.parse_kernel_record(piece)
        if record is not None and (kill := kills.add(record)) is not None:
            assert oom_watch.system_oom(kill).isprintable()


@target(seeds=(CGROUP,), parts=(b"some ", b"full ", b"avg10=", b"total=", b"1e999", b"\n", b"max"))
def cgroup_files(data: bytes) -> None:
    """Files of cgroups of both versions: the same text for all of them."""
    supplied = text(data)
    everything = dict.fromkeys(
        (*cgroup_text.V2_BASIC, *cgroup_text.V2_DETAIL, "memory.usage_in_bytes", "cpu.stat"),
        supplied,
    )
    cgroup_text.from_v2(everything, 1)
    for line in supplied.split("\0"):
        parts = dict.fromkeys(everything, line)
        cgroup_text.from_v2(parts, 1), cgroup_text.from_v1(parts, 1), cgroup_text.pressure(line)
    names = [name for _, name in (*cgroup_text.V1_BASIC, *cgroup_text.V1_DETAIL)]
    cgroup_text.from_v1(dict.fromkeys(names, supplied), 1)


@target(seeds=(PROC,), parts=(b") ", b": ", b" kB", b"\n", b"\t", b"cpu ", b"processor\t: "))
def proc_files(data: bytes) -> None:
    """Files below /proc."""
    supplied = text(data)
    names = ("stat", "meminfo", "vmstat", "pressure/cpu", "pressure/memory", "pressure/io")
    proc_text.machine(dict.fromkeys(names, supplied), 100, 1)
    proc_text.process(supplied, supplied, 100, 1)
    proc_text.started_after_boot(supplied, 100)
    (
        proc_text.boot_time(supplied),
        proc_text.interfaces(supplied),
        proc_text.default_interface(supplied),
    )
    proc_text.tasks(supplied), proc_text.group_paths(supplied), proc_text.cpu_topology(supplied)
    proc_text.devices(supplied), sizes(supplied)
