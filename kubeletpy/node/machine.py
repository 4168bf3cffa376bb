"""Reads facts about this machine from the kernel's files, once, and its addresses. Blocking.

I/O only: decides nothing. A fact that cannot be read is empty or 0, never an error: a node with an
unknown boot id still runs pods.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import platform
import socket
from pathlib import Path

from kubeletpy.base.host.machine import architecture, huge_pages
from kubeletpy.base.host.mount_table import in_user_namespace, inner_ids
from kubeletpy.base.text import lines, number, sizes
from kubeletpy.node.facts import MachineFacts
from kubeletpy.resources.admission.user_namespace import UserNamespace

_NS_GET_USERNS = 0xB701
"""ioctl_ns(2): EPERM unless the caller's namespace is the owner, or above it."""


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _os_image() -> str:
    for line in lines(_read_text("/etc/os-release")):
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip().strip('"')
    return "Linux"


def _storage(directory: Path) -> int:
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    try:
        found = os.statvfs(directory)
    except OSError:
        return 0
    return found.f_frsize * found.f_blocks


def read_machine_facts(root_dir: Path) -> MachineFacts:
    """Read the facts; blocks for a few file reads, all from kernel file systems."""
    memory = sizes(_read_text("/proc/meminfo"))
    machine_id = _read_text("/etc/machine-id") or _read_text("/var/lib/dbus/machine-id")
    return MachineFacts(
        hostname=socket.gethostname(),
        architecture=architecture(),
        kernel_version=platform.release(),
        os_image=_os_image(),
        machine_id=machine_id,
        system_uuid=_read_text("/sys/class/dmi/id/product_uuid") or machine_id,
        boot_id=_read_text("/proc/sys/kernel/random/boot_id"),
        cpu_count=os.cpu_count() or 1,
        memory_bytes=memory.get("MemTotal", 0),
        swap_bytes=memory.get("SwapTotal", 0),
        root_storage_bytes=_storage(root_dir),
        huge_pages=huge_pages(Path("/sys/kernel/mm/hugepages")),
        in_user_namespace=in_user_namespace(_id_map("uid")),
        rights=_rights(),
    )


def _id_map(kind: str) -> str | None:
    try:
        return Path(f"/proc/self/{kind}_map").read_text(errors="replace")
    except OSError:
        return None


def _rights() -> UserNamespace | None:
    uids, gids = (_id_map(kind) for kind in ("uid", "gid"))
    if not uids or not gids or not in_user_namespace(uids):
        return None
    first_port = number(_read_text("/proc/sys/net/ipv4/ip_unprivileged_port_start"))
    return UserNamespace(
        inner_ids(uids),
        inner_ids(gids),
        _owns_network(),
        1024 if first_port is None else first_port,
    )


def _owns_network() -> bool:
    """Whether the network namespace belongs to this user namespace, or to one below it."""
    try:
        with Path("/proc/self/ns/net").open("rb") as namespace:
            os.close(fcntl.ioctl(namespace, _NS_GET_USERNS))
    except OSError:
        return False
    return True


def default_route_ip(version: int = 4) -> str:
    """The source address this machine would use (no packet is sent); empty without a route.

    ``version`` is the IP version, 4 or 6.
    """
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    far = "192.0.2.1" if version == 4 else "2001:db8::1"  # a documentation address: nobody's
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def is_own_address(text: str) -> bool:
    """Whether an address is this machine's and is reachable by others, not only by itself."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if address.is_loopback or address.is_multicast or address.is_link_local:
        return False
    if address.is_unspecified:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def resolve(name: str) -> list[str]:
    """Addresses of a host name, possibly none; may block on DNS."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # also a label that is invalid in names
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
