"""The network of a private containerd's pods: addresses outside and inside, and host ports."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kubeletpy.agent.rootless.containerd import Network
from kubeletpy.agent.takeover.preflight.checks import speed_findings
from kubeletpy.remote.generated import api_pb2 as pb
from tools.env.containerd import Containerd, programs
from tools.env.cri import RawRuntime
from tools.env.process import run
from tools.env.sweep import leftovers

pytestmark = pytest.mark.needs("address translation")
OUTSIDE, HERE = "198.51.100.1", "198.51.100.2"
PORT = 9000
SERVER = f"""
import socket
with socket.create_server(("", {PORT})) as server:
    print(flush=True)
    while True:
        connection, (address, _) = server.accept()
        connection.sendall(address.encode())
        connection.close()
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 10) as connection:
    print(connection.recv(100).decode())
"""
RULE_OF_A_POD = re.compile(r"^-A CNI-[0-9a-f]{24} ", re.MULTILINE)


@pytest.fixture
def outside() -> Iterator[str]:
    """A network namespace that has no route to pods."""
    name, device = f"kpt-out-{os.getpid()}", f"kpto{os.getpid()}"
    run("ip", "netns", "add", name)
    run("ip", "link", "add", device, "type", "veth", "peer", "eth0", "netns", name)
    run("ip", "address", "add", f"{HERE}/24", "dev", device)
    run("ip", "link", "set", device, "up")
    run("ip", "-n", name, "address", "add", f"{OUTSIDE}/24", "dev", "eth0")
    run("ip", "-n", name, "link", "set", "eth0", "up")
    yield f"/run/netns/{name}"
    run("ip", "netns", "delete", name)


@contextmanager
def answering(namespace: str) -> Iterator[None]:
    """A server in a network namespace that answers with the client's address."""
    line = ["nsenter", f"--net={namespace}", "python3", "-c", SERVER]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline()
            yield
        finally:
            server.kill()


def address_shown(namespace: str, to: str, port: int = PORT) -> str:
    """The address that a connection from a network namespace has for the server."""
    client = ("nsenter", f"--net={namespace}", "python3", "-c", CLIENT, to, str(port))
    return run(*client).strip()


class Pods:
    """Sandboxes of one containerd, of which only the network matters."""

    def __init__(self, raw: RawRuntime, cgroup: str) -> None:
        self._raw, self._cgroup = raw, cgroup

    def start(self, name: str, host_port: int = 0) -> tuple[str, str, str]:
        """Start one; returns its id, its network namespace and its address."""
        config = self._raw.sandbox_config(name, cgroup_parent=f"{self._cgroup}/{name}")
        if host_port:
            config.port_mappings.add(container_port=PORT, host_port=host_port)
        sandbox = self._raw.run_sandbox(config)
        return sandbox, f"/proc/{self._raw.pid(sandbox)}/ns/net", self._raw.pod_ip(sandbox)


def rules(instance: Containerd) -> list[str]:
    """The rules of the table nat that name the pod network."""
    saved = run("iptables-save", "-t", "nat").splitlines()
    return [line for line in saved if instance.network.name in line and line.startswith("-A")]


@pytest.mark.parametrize("generation", [1, 2])
def test_pods_have_the_nodes_address_outside_and_their_own_among_themselves(
    work_dir: Path, cgroup_root: str, generation: int, outside: str
) -> None:
    instance = Containerd(work_dir / "c", programs(generation))
    instance.start()
    instance.import_images()
    try:
        made = rules(instance)
        assert len(made) == 3
        instance.restart()
        assert rules(instance) == made
        with RawRuntime(instance.socket) as raw:
            pods = Pods(raw, cgroup_root)
            _, first, address = pods.start("first")
            _, second, other = pods.start("second")
            assert rules(instance) == made, "a pod adds none"
            assert "LOOPBACK,UP" in run("nsenter", f"--net={first}", "ip", "link", "show", "lo")
            with answering(outside):
                assert address_shown(first, OUTSIDE) == HERE
            with answering(second):
                assert address_shown(first, other) == address
    finally:
        assert instance.remove() == []
    assert rules(instance) == []


def test_pods_with_rules_of_their_own_live_on_with_those_of_the_subnet(
    work_dir: Path, cgroup_root: str, outside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = Containerd(work_dir / "c", programs(1))
    with monkeypatch.context() as patch:
        patch.setattr(Network, "has_static_rules", property(lambda _: False))
        instance.start()
    instance.import_images()
    try:
        with RawRuntime(instance.socket) as raw:
            sandbox, namespace, _ = Pods(raw, cgroup_root).start("old", host_port=18099)
            assert RULE_OF_A_POD.search("\n".join(rules(instance)))
            instance.restart()
        with RawRuntime(instance.socket) as raw:
            left = "\n".join(rules(instance))
            assert not RULE_OF_A_POD.search(left)
            with answering(outside):
                assert address_shown(namespace, OUTSIDE) == HERE
            with answering(namespace):
                assert address_shown(outside, HERE, 18099) == OUTSIDE
            raw.remove_sandbox(sandbox)
        assert "CNI-DN-" not in "\n".join(rules(instance))
        instance.stop()
        found = leftovers(instance.directory, instance.network.name, instance.network.bridge)
        assert [line for line in found if line.startswith("nat rule")]
    finally:
        assert instance.remove() == []
    assert rules(instance) == []


@pytest.mark.parametrize("masquerade", [True, False])
def test_networks_of_ipv6_and_without_masquerade_get_no_rules(
    work_dir: Path, masquerade: bool
) -> None:
    subnet = "10.200.77.0/24,fd00:77::/64" if masquerade else "10.200.77.0/24"
    network = Network("kpt-none", "kptnone0", subnet, masquerade)
    instance = Containerd(work_dir / "c", programs(1), network=network)
    instance.start()
    try:
        assert rules(instance) == []
        conflist = json.loads((work_dir / "c" / "cni" / "10-pods.conflist").read_text())
        assert conflist["plugins"][0]["ipMasq"] is masquerade
    finally:
        assert instance.remove() == []


@pytest.mark.parametrize("generation", [1, 2])
def test_preflight_reads_the_settings_of_containerd(work_dir: Path, generation: int) -> None:
    instance = Containerd(work_dir / "c", programs(generation))
    instance.start()
    try:
        with RawRuntime(instance.socket) as raw:
            info = raw.runtime.Status(pb.StatusRequest(verbose=True), timeout=5).info
        for cgroup_v2, expected in ((True, ["runc", "portmap"]), (False, ["portmap"])):
            findings = speed_findings(info, cgroup_v2=cgroup_v2)
            assert [each.subject for each in findings] == expected
    finally:
        assert instance.remove() == []
