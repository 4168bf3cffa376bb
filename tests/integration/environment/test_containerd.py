"""The private containerds themselves: real pods, a daemon killed under them, nothing left after."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from kubeletpy.remote.generated import api_pb2 as pb
from tools.env.containerd import Containerd, programs
from tools.env.cri import RawRuntime
from tools.env.images import BUSYBOX, PAUSE
from tools.env.process import command_lines, run
from tools.env.sweep import cgroups, leftovers
from tools.env.waiting import wait_until

EXPECTED = {"containerd16": "1.", "containerd2": "2."}


def start_pod(raw: RawRuntime, name: str, cgroup: str, *command: str) -> tuple[str, str]:
    """A sandbox and a busybox container in it; returns both ids."""
    config = raw.sandbox_config(name, cgroup_parent=f"{cgroup}/{name}")
    sandbox = raw.run_sandbox(config)
    container = raw.create(sandbox, config, BUSYBOX, command)
    raw.start(container)
    return sandbox, container


def test_version_and_images(containerd: Containerd, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["containerd"]
    with RawRuntime(containerd.socket) as raw:
        assert raw.version()[1].startswith(EXPECTED[name])
        assert raw.has_image(PAUSE)
        assert raw.has_image(BUSYBOX)


def test_a_pod_has_an_address_and_answers_exec(containerd: Containerd, cgroup_root: str) -> None:
    with RawRuntime(containerd.socket) as raw:
        sandbox, container = start_pod(raw, "pod", cgroup_root, "sleep", "1000")
        code, output = raw.exec(container, "sh", "-c", "ip -4 -o addr show eth0; exit 3")
        assert code == 3
        assert f"{raw.pod_ip(sandbox)}/24" in output
        assert cgroups([cgroup_root]), "the container runs in the cgroup it was given"


def test_exit_code_is_known(containerd: Containerd, cgroup_root: str) -> None:
    with RawRuntime(containerd.socket) as raw:
        _, container = start_pod(raw, "pod", cgroup_root, "sh", "-c", "exit 7")
        wait_until(
            lambda: raw.container(container).state == pb.CONTAINER_EXITED, "the container's exit"
        )
        assert raw.container(container).exit_code == 7


def test_containers_outlive_a_killed_daemon(containerd: Containerd, cgroup_root: str) -> None:
    with RawRuntime(containerd.socket) as raw:
        _, container = start_pod(raw, "pod", cgroup_root, "sleep", "1000")
        started = raw.container(container).started_at
    containerd.kill()
    with RawRuntime(containerd.socket) as raw, pytest.raises(grpc.RpcError):
        raw.container(container)
    containerd.start()
    with RawRuntime(containerd.socket) as raw:
        status = raw.container(container)
        assert (status.state, status.started_at) == (pb.CONTAINER_RUNNING, started)


def test_a_paused_daemon_answers_again_after_resume(containerd2: Containerd) -> None:
    containerd2.pause()
    with RawRuntime(containerd2.socket) as raw:
        request = pb.VersionRequest(version="v1")
        with pytest.raises(grpc.RpcError) as error:
            raw.runtime.Version(request, timeout=0.3)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        containerd2.resume()
        assert raw.version()[0] == "containerd"


@pytest.mark.needs("address translation")
@pytest.mark.parametrize("generation", [1, 2])
@pytest.mark.parametrize("how", ["in order", "after kill -9"])
def test_remove_leaves_nothing(work_dir: Path, cgroup_root: str, generation: int, how: str) -> None:
    directory = work_dir / "c"
    instance = Containerd(directory, programs(generation))
    instance.start()
    instance.import_images()
    with RawRuntime(instance.socket) as raw:
        config = raw.sandbox_config("web", cgroup_parent=f"{cgroup_root}/web")
        config.port_mappings.add(container_port=80, host_port=18000 + generation)
        sandbox = raw.run_sandbox(config)
        container = raw.create(sandbox, config, BUSYBOX, ["sleep", "98765"])
        raw.start(container)
    network = instance.network
    assert network.name in run("iptables-save", "-t", "nat")
    assert leftovers(directory, network.name, network.bridge)
    if how != "in order":
        instance.kill()
    assert instance.remove() == []
    assert not directory.exists()
    assert leftovers(directory, network.name, network.bridge) == []
    assert network.name not in run("iptables-save", "-t", "nat")
    assert not list(Path("/var/lib/cni/results").glob(f"*{sandbox}*"))
    assert not [argv for _, argv in command_lines() if "98765" in argv]
    assert str(directory) not in Path("/proc/self/mountinfo").read_text()


def test_two_daemons_have_networks_of_their_own(work_dir: Path, containerd2: Containerd) -> None:
    other = Containerd(work_dir / "c", programs(2))
    assert other.network.subnet != containerd2.network.subnet
    assert other.network.bridge != containerd2.network.bridge
    again = Containerd(work_dir / "c", programs(2))
    assert again.network == other.network


def test_an_error_of_a_start_has_the_end_of_the_log(work_dir: Path) -> None:
    instance = Containerd(work_dir / "c", programs(1))
    (work_dir / "c" / "root").write_text("a file where a directory must be")
    with pytest.raises(
        TimeoutError, match=r"containerd is not running; the end of [^\n]*\n.*c/root"
    ):
        instance.start()
