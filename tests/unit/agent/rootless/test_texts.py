"""Texts and bytes of a node of a login user: its filter, its wrapper of runc, its subnet."""

from __future__ import annotations

import json
import struct
import subprocess
import tomllib
from pathlib import Path

import pytest

from kubeletpy.agent.errors import LaunchError
from kubeletpy.agent.rootless.containerd import (
    Network,
    free_subnet,
    installed_generation,
    masquerade,
    render_config,
    render_conflist,
    runc_wrapper,
)
from kubeletpy.agent.rootless.machine import environment_of
from kubeletpy.agent.rootless.namespaces import chown_filter, nested
from kubeletpy.agent.rootless.possible import CHOWN, IdRange, NetworkKind, Plan

IDS = (IdRange(100000, 65536), IdRange(100000, 65536))
ALLOW, SUCCEED = 0x7FFF0000, 0x00050000


def run_filter(program: bytes, architecture: int, call: int) -> int:
    """Interpret the instructions of a filter; returns its answer."""
    instructions = list(struct.iter_unpack("<HBBI", program))
    data, position, loaded = {0: call, 4: architecture}, 0, 0
    while True:
        code, if_true, if_false, operand = instructions[position]
        position += 1
        if code == 0x20:
            loaded = data[operand]
        elif code == 0x15:
            position += if_true if loaded == operand else if_false
        else:
            assert code == 0x06
            return int(operand)


@pytest.mark.parametrize("name", CHOWN)
def test_only_changes_of_ownership_succeed_without_effect(name: str) -> None:
    number, calls = CHOWN[name]
    program = chown_filter(name)
    for call in range(500):
        expected = SUCCEED if call in calls else ALLOW
        assert run_filter(program, number, call) == expected
        assert run_filter(program, 0x40000003, call) == ALLOW


def plan(
    network: NetworkKind, ids: tuple[IdRange, IdRange] | None, *, limits: bool = False
) -> Plan:
    return Plan(network, "overlayfs", ids, limits, "iptables", ())


SPEC = (
    '{"cgroupsPath":"/k8s.io/name","resources":{"cpu":{"shares":2},"pids":{"limit":7}},"mounts":[{"destination":"/dev/pts","options":["mode=0620","gid=5"]},'
    '{"destination":"/sys","type":"sysfs","source":"sysfs","options":["nosuid","ro"]}],'
    '"namespaces":[{"type":"pid"},{"type":"network","path":"/proc/7/ns/net"},{"type":"uts"}]}'
)


@pytest.mark.parametrize(
    ("network", "ids", "absent", "present"),
    [
        (NetworkKind.PASTA, None, ["gid=5"], ["sysfs", "network"]),
        (NetworkKind.LOGIN, IDS, ["sysfs", "network"], ["gid=5", '"source":"/sys"']),
        (NetworkKind.LOGIN, None, ["sysfs", "network", "gid=5"], ['{"type":"uts"}']),
    ],
)
def test_the_wrapper_changes_what_the_kernel_would_refuse(
    tmp_path: Path,
    network: NetworkKind,
    ids: tuple[IdRange, IdRange] | None,
    absent: list[str],
    present: list[str],
) -> None:
    (tmp_path / "config.json").write_text(SPEC)
    script = tmp_path / "oci-runtime"
    script.write_text(runc_wrapper(plan(network, ids), "/bin/echo"))
    done = subprocess.run(
        ["sh", script, "create", "--bundle", tmp_path, "name"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"create --bundle {tmp_path} name\n"
    changed = (tmp_path / "config.json").read_text()
    assert not [text for text in ("/k8s.io", "shares", "limit", *absent) if text in changed]
    assert not [text for text in present if text not in changed]


def test_nothing_is_wrapped_where_all_is_allowed() -> None:
    assert runc_wrapper(plan(NetworkKind.PASTA, IDS, limits=True), "/usr/bin/runc") == ""


HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


@pytest.mark.parametrize(
    ("rows", "subnet"),
    [
        ((), "10.244.0.0/24"),
        (("eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0",), "10.244.0.0/24"),
        (("eth0\t0000F40A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0",), "172.31.244.0/24"),
    ],
)
def test_pods_get_a_subnet_that_no_route_leads_to(rows: tuple[str, ...], subnet: str) -> None:
    assert free_subnet(HEAD + "\n".join(rows)) == subnet


@pytest.mark.parametrize("generation", [1, 2])
def test_the_configuration_has_no_cgroups_and_a_snapshotter(generation: int) -> None:
    text = render_config(
        Path("/s"),
        generation,
        state=Path("/run/containerd/state"),
        snapshotter="native",
        cri_settings={"disable_cgroup": True},
    )
    read = tomllib.loads(text)
    assert read["state"] == "/run/containerd/state"
    plugins = read["plugins"]
    if generation == 1:
        cri = plugins["io.containerd.grpc.v1.cri"]
        assert cri["containerd"]["snapshotter"] == "native"
    else:
        cri = plugins["io.containerd.cri.v1.runtime"]
        assert plugins["io.containerd.cri.v1.images"]["snapshotter"] == "native"
    assert cri["disable_cgroup"] is True
    assert cri["containerd"]["runtimes"]["runc"]["options"]["Root"] == "/run/containerd/state/runc"


@pytest.mark.parametrize(
    ("stated", "generation"),
    [
        ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1", 1),
        ("containerd github.com/containerd/containerd/v2 2.1.9 2.1.9-1", 2),
        ("containerd containerd.io v1.7.27 05044ec0a9a7", 1),
    ],
)
def test_the_version_of_a_containerd_is_its_generation(
    stated: str, generation: int, tmp_path: Path
) -> None:
    program = tmp_path / "containerd"
    program.write_text(f"#!/bin/sh\necho '{stated}'\n")
    program.chmod(0o700)
    assert installed_generation(program, {}) == generation


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/sh\necho ready", "--version prints 'ready': no version in it"),
        ("no program", "can't be run: Exec format error"),
    ],
)
def test_a_containerd_without_a_version_is_refused(text: str, why: str, tmp_path: Path) -> None:
    program = tmp_path / "containerd"
    program.write_text(text)
    program.chmod(0o700)
    with pytest.raises(LaunchError, match=why):
        installed_generation(program, {})


def test_fetched_programs_come_after_installed_ones(tmp_path: Path) -> None:
    made = environment_of(tmp_path, {"PATH": "/usr/bin:/opt/x", "NOTIFY_SOCKET": "/x"})
    path = made["PATH"].split(":")
    assert path[:2] == ["/usr/bin", "/opt/x"]
    assert path.index("/usr/sbin") < path.index(f"{tmp_path}/usr/sbin")
    assert "NOTIFY_SOCKET" not in made


def test_processes_of_containers_are_those_of_nested_namespaces(tmp_path: Path) -> None:
    for process, line in {"1": "1", "7": "7\t1", "9": "9"}.items():
        (tmp_path / process).mkdir()
        (tmp_path / process / "status").write_text(f"Name:\tx\nNSpid:\t{line}\n")
    (tmp_path / "sys").mkdir()
    assert list(nested(tmp_path)) == [7]


NAME = 'name: "pods"'
JUMP = f"POSTROUTING -s 10.1.0.0/24 -m comment --comment {NAME} -j CNI-pods"
RULES = [
    "-N CNI-pods",
    "-F CNI-pods",
    f"-A CNI-pods -d 10.1.0.0/24 -m comment --comment {NAME} -j ACCEPT",
    f"-A CNI-pods ! -d 224.0.0.0/4 -m comment --comment {NAME} -j MASQUERADE",
    f"-A {JUMP}",
]


@pytest.mark.parametrize(
    ("subnet", "masquerades", "refused", "rules"),
    [
        ("10.1.0.0/24", True, "*-C*", [f"-C {JUMP}", *RULES]),
        ("10.1.0.0/24", True, "*-C*|*-N*", [f"-C {JUMP}", *RULES]),
        ("10.1.0.0/24", True, "nothing", [f"-C {JUMP}"]),
        ("10.1.0.0/24", False, "*-C*", []),
        ("10.1.0.0/24,fd00:1::/64", True, "*-C*", []),
        ("fd00:1::/64", True, "*-C*", []),
    ],
)
def test_the_rules_of_a_subnet_are_made_once(
    tmp_path: Path, subnet: str, masquerades: bool, refused: str, rules: list[str]
) -> None:
    log = tmp_path / "log"
    network = Network("pods", "pods0", subnet, masquerades)
    masquerade(network, refusing(tmp_path, refused))
    made = log.read_text().splitlines() if log.exists() else []
    assert made == [f"--wait -t nat {each}" for each in rules]
    bridge = json.loads(render_conflist(network, tmp_path))["plugins"][0]
    assert bridge["ipMasq"] is (masquerades and ":" in subnet)


def test_a_refused_rule_is_an_error_with_the_text_of_iptables(tmp_path: Path) -> None:
    network = Network("pods", "pods0", "10.1.0.0/24")
    with pytest.raises(LaunchError, match=r"outside: iptables -A CNI-pods ! .*: no such target$"):
        masquerade(network, refusing(tmp_path, "*-C*|*!*"))
    with pytest.raises(LaunchError, match="No such file or directory"):
        masquerade(network, {"PATH": str(tmp_path / "none")})


def refusing(directory: Path, refused: str) -> dict[str, str]:
    """An environment whose iptables writes its arguments to a log and refuses some commands."""
    program = directory / "iptables"
    program.write_text(
        f"""#!/bin/sh
echo "$@" >> {directory}/log
case "$*" in {refused})
    echo "no such target" >&2
    exit 1
esac
"""
    )
    program.chmod(0o755)
    return {"PATH": f"{directory}:/usr/bin:/bin"}
