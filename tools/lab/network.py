"""A network of nodes: a bridge in a network namespace of its own, and a device for each node.

The device of a virtual machine is a tap, that of a node in a namespace one end of a veth pair.

The namespace has no name, so that several networks do not collide. It goes away with the last
process in it; the one that holds it ends when its standard input is closed.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tools.env.process import CommandError, run
from tools.lab.machine import Machine
from tools.lab.requests import GuestError

HOST, HOST6 = "10.99.0.1", "fd00:99::1"
"""The bridge's addresses; that of IPv6 is for networks of nodes with both families."""
_PREFIX, _PREFIX6 = 24, 64
_CLONE_NEWNET = 0x40000000
_BRIDGE = "br0"
_MAKE = (
    f"ip link set lo up && ip link add {_BRIDGE} type bridge"
    # a tap passes segments of many frames as they are, and a node reads the first frame of each
    f" && ip link set {_BRIDGE} gso_max_segs 1"
    f" && ip address add {HOST}/{_PREFIX} dev {_BRIDGE} && ip link set {_BRIDGE} up"
    " && echo made && exec cat"
)


def address_of(number: int) -> str:
    """The address of a node, of which the first is 0."""
    return f"10.99.0.{10 + number}"


def address6_of(number: int) -> str:
    """The same, of IPv6."""
    return f"fd00:99::{10 + number}"


def device_argument(number: int) -> str:
    """The kernel's argument that gives a node its network device."""
    return f"vec0:transport=tap,ifname=tap{number}"


def address_script(number: int) -> str:
    """Commands with which a node gets its address on eth0."""
    return (
        f"ip address add {address_of(number)}/{_PREFIX} dev eth0 && ip link set eth0 up"
        f" && ip route add default via {HOST}"
    )


def address6_script(number: int) -> str:
    """Commands with which such a node gets its address of IPv6, too."""
    # nobody else has it, and it can't be used until that is known
    return (
        f"ip address add {address6_of(number)}/{_PREFIX6} dev eth0 nodad"
        f" && ip route add default via {HOST6}"
    )


def guest_script(number: int) -> str:
    """Commands with which a virtual machine gets its address on eth0."""
    return f"ip link set vec0 name eth0 && {address_script(number)}"


def gateway_to(subnet: str, number: int) -> str:
    """The address of a node through which others reach a subnet of either family."""
    return (address6_of if ":" in subnet else address_of)(number)


def routing_script(number: int, count: int, subnets_of: Callable[[int], str]) -> str:
    """Commands with which a node reaches the pods of the others, and kube-proxy all packets.

    ``subnets_of`` returns the subnet of a node's pods, or one of each family with a comma between.
    """
    routes = [
        f"ip route add {subnet} via {gateway_to(subnet, other)}"
        for other in range(count)
        if other != number
        for subnet in subnets_of(other).split(",")
    ]
    # a Service's endpoint on the node of its client: the bridge has to pass answers to kube-proxy
    settings = ["net.bridge.bridge-nf-call-iptables", "net.ipv4.ip_forward"]
    if ":" in subnets_of(number):
        settings += ["net.bridge.bridge-nf-call-ip6tables", "net.ipv6.conf.all.forwarding"]
    return " && ".join((*routes, *(f"sysctl -qw {each}=1" for each in settings)))


class Network:
    """A context manager; end the nodes before it."""

    def __enter__(self) -> Self:
        """Make the namespace and the bridge. Raises CommandError."""
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", _MAKE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        line = self._holder.stdout.readline()
        if line != b"made\n":
            self._end()
            raise CommandError(f"no network for virtual nodes: {line.decode(errors='replace')}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release the namespace."""
        self._end()

    @property
    def inside(self) -> Sequence[str]:
        """Prefix of a command that is to run in the namespace."""
        return ("nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Run this thread, and the processes that it starts, in the namespace until the block ends.

        Nodes reach ports that are opened there at HOST, and have no other network. Raises OSError.
        """
        with entered(self._holder.pid):
            yield

    def add_address6(self) -> None:
        """Give the bridge its address of IPv6. Raises CommandError."""
        address = f"{HOST6}/{_PREFIX6}"
        run(*self.inside, "ip", "address", "add", address, "dev", _BRIDGE, "nodad")

    def route(self, subnet: str, number: int) -> None:
        """Route a subnet, such as that of its pods, through a node. Raises CommandError."""
        run(*self.inside, "ip", "route", "add", subnet, "via", gateway_to(subnet, number))

    def add_tap(self, number: int) -> None:
        """Make the host's end of a node's device. Raises CommandError."""
        run(*self.inside, "ip", "tuntap", "add", "dev", f"tap{number}", "mode", "tap")
        run(*self.inside, "ip", "link", "set", f"tap{number}", "master", _BRIDGE, "up")

    def plug(self, number: int, connected: bool) -> None:
        """Connect the host's end of a node's device to the bridge, or not. Raises CommandError."""
        where = ("master", _BRIDGE) if connected else ("nomaster",)
        run(*self.inside, "ip", "link", "set", f"tap{number}", *where)

    def add_veth(self, number: int, process: int) -> None:
        """Give the network namespace of a process a device eth0, without an address.

        Raises CommandError.
        """
        device = f"veth{number}"
        peer = "peer", "name", "eth0", "netns", str(process)
        run(*self.inside, "ip", "link", "add", device, "type", "veth", *peer)
        run(*self.inside, "ip", "link", "set", device, "master", _BRIDGE, "up")

    def attach(self, machine: Machine, number: int) -> None:
        """Give a node that has booted its address. Raises GuestError."""
        done = machine.run("sh", "-c", guest_script(number))
        if done.status:
            raise GuestError(f"node {number} has no network: {done.output}")

    def _end(self) -> None:
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()


@contextmanager
def entered(process: int) -> Iterator[None]:
    """Run this thread, and its children, in a process's network namespace. Raises OSError."""
    ours, theirs = (Path(f"/proc/{each}/ns/net") for each in ("thread-self", process))
    with ours.open("rb") as before, theirs.open("rb") as there:
        _join(there.fileno())
        try:
            yield
        finally:
            _join(before.fileno())


def _join(namespace: int) -> None:
    """Enter a network namespace, by its descriptor; os.setns() comes with Python 3.12."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
