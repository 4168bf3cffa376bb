"""Content of the image of a virtual node, and the hash that it is cached by (pure)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev"),
    *("iproute2", "procps", "kmod", "ca-certificates", "python3"),
    *("containerd", "runc", "crun", "containernetworking-plugins", "iptables", "busybox-static"),
    *("nfs-kernel-server", "nfs-common", "xfsprogs"),
)
MASKED = ("nfs-server.service", "nfs-client.target", "rpcbind.service", "rpcbind.socket")
"""Units that would start at boot, for the one test that needs an NFS server."""
SUITES = {"bookworm": "3.11", "trixie": "3.13", "testing": "3.14"}
"""Suite of Debian -> its Python."""
NEWEST_STABLE = "trixie"
"""The newest that does not change from day to day."""
RUNC, CRUN = "runc", "crun"
AMD64, ARM64 = "amd64", "arm64"
"""Processors, as Debian calls them."""
_WHEELS = {AMD64: "x86_64", ARM64: "aarch64"}
"""Processor -> its name in the platforms of Python."""
ALTERNATIVES = {name: f"/usr/sbin/{name}-legacy" for name in ("iptables", "ip6tables")}
"""The kernel of user-mode Linux has no nf_tables for IPv4 and IPv6."""
SITE = "/opt/site"
"""Where Python packages are in the image."""
SERIAL_LINES = {AMD64: "/dev/ttyS1", ARM64: "/dev/ttyS0"}
"""The line for requests: the console of arm64, a ttyAMA, does not count."""
_UNIT = """\
[Unit]
Description=Commands of the laboratory

[Service]
ExecStart=/usr/bin/python3 /opt/lab/guest.py {line}
Restart=always

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Recipe:
    """One image. ``python`` is the guest's version, as for pip; ``kernel`` that of its modules."""

    suite: str = "bookworm"
    python: str = "3.11"
    kernel: str = ""
    architecture: str = AMD64
    packages: Sequence[str] = PACKAGES
    requirements: Sequence[str] = ()
    """Python packages, as pip reads them."""
    files: dict[str, str] = field(default_factory=dict)
    """Path in the image -> content."""
    alternatives: Mapping[str, str] = field(default_factory=lambda: dict(ALTERNATIVES))
    """Name of update-alternatives -> program."""
    masked: Sequence[str] = MASKED
    """Units that systemd does not start."""
    size: str = "3G"

    @property
    def digest(self) -> str:
        """Hash of everything that goes into the image."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def unit_of(architecture: str) -> str:
    """The unit of systemd that answers requests."""
    return _UNIT.format(line=SERIAL_LINES[architecture])


def bootstrap_command(recipe: Recipe, root: str, apt_options: Sequence[str] = ()) -> list[str]:
    """Make the root file system, in a mount namespace: no mount of it outlives the command.

    Args:
        apt_options: lines of apt's configuration, as ``Acquire::Check-Valid-Until "false"``.
    """
    include = ",".join(recipe.packages)
    options = [f"--aptopt={line}" for line in apt_options]
    start = ["unshare", "--mount", "--propagation", "private", "mmdebstrap", "--variant=minbase"]
    start += [f"--architectures={recipe.architecture}"]
    return [*start, f"--include={include}", *options, recipe.suite, root]


def install_command(recipe: Recipe, root: str, pip: Sequence[str]) -> list[str]:
    """Install the Python packages for the guest's Python, which need not be this one."""
    wheels = _WHEELS[recipe.architecture]
    oldest = ("manylinux_2_36", "manylinux_2_28", "manylinux2014")  # that a wheel was built on
    platforms = [f"{each}_{wheels}" for each in oldest]
    return [
        *(*pip, "install", "--quiet", "--target", f"{root}{SITE}"),
        *("--python-version", recipe.python, "--implementation", "cp"),
        "--only-binary=:all:",
        *(word for platform in platforms for word in ("--platform", platform)),
        *recipe.requirements,
    ]


def disk_command(recipe: Recipe, root: str, disk: str) -> list[str]:
    """Turn the folder into a disk image."""
    return ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", root, disk, recipe.size]


def kernel_command(
    disk: str,
    overlay: str,
    directory: str,
    *,
    memory_mib: int,
    serial: int,
    more: Sequence[str],
    program: str = "linux.uml",
) -> list[str]:
    """The command line of a user-mode Linux: its console is standard output.

    Args:
        overlay: takes what the node writes; ``disk`` stays as it is.
        directory: where the kernel keeps its pid and its management socket.
        serial: the descriptor of the serial line for requests.
        more: further arguments of the kernel.
        program: the kernel.
    """
    return [
        program,
        *(f"ubd0={overlay},{disk}", "root=/dev/ubda", "rw", f"mem={memory_mib}M"),
        *("con=null", "con0=null,fd:1", "ssl=null", f"ssl1=fd:{serial},fd:{serial}"),
        *(f"uml_dir={directory}", "umid=node"),
        *("cgroup_no_v1=all", "systemd.unified_cgroup_hierarchy=1", "seccomp=auto"),
        *more,
    ]
