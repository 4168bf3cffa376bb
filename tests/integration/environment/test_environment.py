"""The environment of these tests: containerds, images, kubectls and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kubeletpy.agent.rootless.images import pause_program
from tools.env.containerd import Containerd, programs
from tools.env.cri import RawRuntime
from tools.env.images import BUSYBOX
from tools.env.kubectl import Kubectl
from tools.env.process import command_lines, run, start_time
from tools.env.prometheus import check_metrics
from tools.env.sweep import leftovers, mounts, unmount
from tools.env.waiting import NotReadyError, wait_until


@pytest.mark.needs("address translation")
@pytest.mark.parametrize("generation", [1, 2])
def test_remove_leaves_nothing(work_dir: Path, cgroup_root: str, generation: int) -> None:
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
    instance.kill()
    assert instance.remove() == []
    assert not directory.exists()
    assert leftovers(directory, network.name, network.bridge) == []
    assert network.name not in run("iptables-save", "-t", "nat")
    assert not list(Path("/var/lib/cni/results").glob(f"*{sandbox}*"))
    assert not [argv for _, argv in command_lines() if "98765" in argv]
    assert str(directory) not in Path("/proc/self/mountinfo").read_text()


def test_an_error_of_a_start_has_the_end_of_the_log(work_dir: Path) -> None:
    instance = Containerd(work_dir / "c", programs(1))
    (work_dir / "c" / "root").write_text("a file where a directory must be")
    with pytest.raises(
        TimeoutError, match=r"containerd is not running; the end of [^\n]*\n.*c/root"
    ):
        instance.start()


@pytest.fixture
def pause(work_dir: Path) -> Path:
    """The pause program of this machine."""
    program = pause_program(os.uname().machine)
    assert program is not None
    path = work_dir / "pause"
    path.write_bytes(program)
    path.chmod(0o755)
    return path


def state(pid: int) -> str:
    """The state letter of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_pause_sleeps_until_it_is_reported_to_end(pause: Path, number: signal.Signals) -> None:
    process = subprocess.Popen([pause])
    wait_until(lambda: state(process.pid) == "S", "pause asleep")
    process.send_signal(number)
    assert process.wait(5) == 0


def test_pause_reaps_as_process_one(pause: Path) -> None:
    """With pause as init of a process namespace, orphans do not stay behind as zombies."""
    script = f"(sleep 0.1 & exec true) & exec {pause}"
    process = subprocess.Popen(["unshare", "--pid", "--fork", "sh", "-c", script])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    init = wait_until(lambda: int(children.read_text() or 0), "the namespace's first process")
    wait_until(lambda: Path(f"/proc/{init}/exe").resolve() == pause, "pause as that process")
    orphans = Path(f"/proc/{init}/task/{init}/children")
    wait_until(lambda: orphans.read_text() == "", "the end of all orphans")
    os.kill(init, signal.SIGTERM)
    assert process.wait(5) == 0


def test_an_error_of_waiting_has_the_condition_and_the_cause() -> None:
    def refuse() -> bool:
        raise ConnectionRefusedError("nobody there")

    with pytest.raises(NotReadyError, match=r"the thing: not within 0\.1 s .*nobody there"):
        wait_until(refuse, "the thing", timeout=0.1)
    with pytest.raises(NotReadyError, match="the thing: it is dead"):
        wait_until(refuse, "the thing", give_up=lambda: "it is dead")


FIRST_THREAD_ENDS = """
import ctypes, os, sys, threading
kept = open(sys.argv[1], "w")
def stay():
    print("here", flush=True)
    sys.stdin.read()
threading.Thread(target=stay).start()
exit_of_a_thread = 60 if os.uname().machine == "x86_64" else 93
ctypes.CDLL(None).syscall(exit_of_a_thread, 0)
"""


def test_a_process_whose_first_thread_ended_still_uses_a_mount(work_dir: Path) -> None:
    subprocess.run(["mount", "--bind", work_dir, work_dir], check=True)
    program = [sys.executable, "-c", FIRST_THREAD_ENDS, str(work_dir / "file")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        stat = Path(f"/proc/{child.pid}/stat")
        wait_until(lambda: ") Z " in stat.read_text(), "the end of the first thread", timeout=10)
        assert start_time(child.pid) is not None
        child.stdin.close()
        wait_until(lambda: start_time(child.pid) is None, "its end", timeout=10)
        unmount(work_dir)
        assert not mounts(work_dir)


EXPOSITION = b"# HELP answers_total Answers.\n# TYPE answers_total counter\nanswers_total 42\n"


@pytest.mark.parametrize(("name", "version"), [("old", "v1.20."), ("new", "v1.36.")])
def test_kubectl_of_both_ages(
    kubectl_versions: dict[str, Kubectl], name: str, version: str
) -> None:
    assert version in run(kubectl_versions[name].program, "version", "--client")


def test_promtool_reads_expositions() -> None:
    assert check_metrics(EXPOSITION) == []
    assert check_metrics(b"# TYPE bad counter\nbad 1\n")
