"""Texts of the kernel, of containers' logs, of the runtime and of image names."""

from __future__ import annotations

import contextlib
from typing import Any

from kubeletpy.base.host import mount_table
from kubeletpy.base.text import sizes
from kubeletpy.images.credentials import MalformedPullSecret, parse_docker_config
from kubeletpy.images.reference import (
    InvalidReference,
    RegistryPattern,
    Repository,
    default_pull_policy,
    parse_reference,
)
from kubeletpy.node.guards import oom_watch
from kubeletpy.node.stats import cgroup_text, proc_text
from kubeletpy.runtime_manager import names
from kubeletpy.runtime_manager.read.status_source import last_log_text
from kubeletpy.server.logs.records import Formatter, nine_digits
from tests.fuzz.target import JSON_WORDS, pieces, target, text

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


LINE = b"2024-01-02T03:04:05.678901234Z stdout F hello\n"
PART = b"2024-01-02T03:04:05.6Z stderr P hel"
DOCKER = b'{"log":"hello\\n","stream":"stdout","time":"2024-01-02T03:04:05.678901234Z"}\n'
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"timestamps": True},
    {"since": 1704164645.5},
    {"limit": 7},
    {"records": 2},
    {"stream": "stderr"},
    {"timestamps": True, "since": 1.0, "limit": 1000, "records": 9, "stream": "stdout"},
)


def _reported(options: dict[str, Any], parts: list[bytes]) -> bytes:
    formatter = Formatter(**options)
    reported = b"".join([formatter.feed(part) for part in parts])
    return reported + (b"" if formatter.done else formatter.finish())


@target(
    seeds=(b"\0\0" + LINE * 3, b"\1\1" + PART + b"\n" + LINE, b"\2\2" + DOCKER * 2),
    parts=(LINE, PART, DOCKER, b" stdout F ", b" stderr P ", b" stdout F:x ", b"\n", b"Z "),
)
def log_records(data: bytes) -> None:
    """The same is shown however a log is cut into pieces."""
    if not data:
        return
    options = OPTIONS[data[0] % len(OPTIONS)]
    parts = list(pieces(data))
    found, whole = _reported(options, parts), _reported(options, [b"".join(parts)])
    # with a beginning, a block whose last record is long before it is passed over as a whole
    assert found == whole or "since" in options


@target(parts=(b"T", b"Z", b"+23:59", b"2024-01-02T03:04:05"))
def log_times(data: bytes) -> None:
    """A time of a log has nine digits or none."""
    found = nine_digits(data)
    assert found is None or found.rstrip(b"Z")[-10:-9] in (b".", b"") or b"." in found


@target(seeds=(LINE * 3,), parts=(LINE, PART, DOCKER))
def last_words(data: bytes) -> None:
    """The last lines of a log, as a termination message."""
    last_log_text(data)


KEYS = (names.POD_NAME, names.POD_UID, names.CONTAINER_NAME, names.HASH, names.RESTART_COUNT)
TEXTS = (names.PRE_STOP_HANDLER, names.PORTS)


@target(
    seeds=(b"a\0u\0c\0001234\0005\0" + b'{"exec":{"command":["a"]}}\0[{"containerPort":80}]',),
    parts=(*JSON_WORDS, b"\0", b'"httpGet":{"port":'),
)
def container_labels(data: bytes) -> None:
    """Labels and annotations that the runtime gives back, which others may have written."""
    values = dict(zip((*KEYS, *TEXTS), text(data).split("\0"), strict=False))
    names.pod_labels(values)
    names.read_labels(values)
    names.read_container_annotations(values)
    assert names.read_restart_count(values) >= 0


_DIGEST = b"@sha256:" + b"0" * 64


@target(
    InvalidReference,
    seeds=(b"busybox", b"a.io:5000/b/c:d", b"[::1]:5000/b" + _DIGEST),
    parts=(b"@sha256:", b"/", b":", b"__", b"localhost", _DIGEST),
)
def image_reference(data: bytes) -> None:
    """The name of an image."""
    found = parse_reference(text(data))
    default_pull_policy(text(data))
    assert parse_reference(f"{found.repository}:x").repository == found.repository


@target(
    seeds=(b"*.a.io/b\0x.a.io/b/c", b"https://a:5/v1/\0a:5/b"), parts=(b"*", b"**", b"https://")
)
def registry_pattern(data: bytes) -> None:
    """Which images a credential is for: the pattern, NUL, the image."""
    first, _, second = text(data).partition("\0")
    found = RegistryPattern.parse(first)
    if found is not None:
        with contextlib.suppress(ValueError):
            found.fits(Repository.parse(second))


@target(MalformedPullSecret, seeds=(b'{"auths":{"a":{"auth":"YTpi"}}}',), parts=JSON_WORDS)
def docker_config(data: bytes) -> None:
    """A pull secret's content."""
    parse_docker_config(data)
