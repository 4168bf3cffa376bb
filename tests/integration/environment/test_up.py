"""Work of ./up.sh around the agent: prepare a machine, find it again, and give all of it back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubeletpy.remote.generated import api_pb2 as pb
from tools.env.cgroup_drivers import CGROUPFS, SYSTEMD, TRIAL_PARENT
from tools.env.containerd import Containerd, programs
from tools.env.cri import RawRuntime
from tools.env.down import down
from tools.env.images import BUSYBOX, PAUSE
from tools.env.process import CommandError, write_pid
from tools.env.record import Record
from tools.env.runtime_choice import choose, private_containerd
from tools.env.up import agent_pid, prepare, provide_kubectl
from tools.env.waiting import wait_until


@pytest.fixture
def home(work_dir: Path, cgroup_root: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory, with a runtime of its own unless a test chooses another."""
    assert cgroup_root, "the cgroup must outlive the node's pods"
    monkeypatch.setenv("KUBELETPY_RUNTIME", "private")
    path = work_dir / "home"
    path.mkdir()
    return path


def start_pod(home: Path, cgroup: str) -> tuple[str, Path]:
    """A pod as the agent makes it, with its log directory; returns container id and directory.

    ``cgroup`` is its parent's, unless systemd makes the cgroups.
    """
    record = Record.read(home)
    parent = f"{cgroup}/pod" if record.cgroup_driver == CGROUPFS else TRIAL_PARENT[SYSTEMD]
    with RawRuntime(Path(record.endpoint.removeprefix("unix://"))) as raw:
        config = raw.sandbox_config("pod", cgroup_parent=parent)
        logs = Path(f"/var/log/pods/default_pod_{config.metadata.uid}")
        logs.mkdir(parents=True)
        config.log_directory = str(logs)
        sandbox = raw.run_sandbox(config)
        container = raw.create(sandbox, config, BUSYBOX, ["sleep", "1000"])
        raw.start(container)
        return container, logs


def test_down_copes_with_a_dead_containerd(home: Path, cgroup_root: str) -> None:
    prepare(home)
    _, logs = start_pod(home, cgroup_root)
    private_containerd(home).kill()
    assert down(home) == 0
    assert not logs.exists()


def test_somebody_elses_process_is_never_taken_for_the_agent(home: Path) -> None:
    (home / "agent.pid").write_text(f"{os.getpid()} 1")
    assert agent_pid(home) is None


def test_a_process_of_before_the_last_boot_is_never_taken_for_the_agent(home: Path) -> None:
    write_pid(home / "agent.pid", os.getpid())
    assert agent_pid(home) == os.getpid()
    pid, _, started = (home / "agent.pid").read_text().partition(" ")
    ticks, _, _ = started.partition("@")
    (home / "agent.pid").write_text(f"{pid} {ticks}@another-boot")
    assert agent_pid(home) is None


def test_files_that_were_only_half_written_are_made_again(home: Path, cgroup_root: str) -> None:
    """After a power cut every small file of the state directory is empty."""
    endpoint = prepare(home)
    container, _ = start_pod(home, cgroup_root)
    before = private_containerd(home)
    driver = Record.read(home).cgroup_driver
    for path in (*home.glob("*"), *before.directory.glob("*")):
        if path.is_file():
            path.write_text("")
    assert prepare(home) == endpoint
    assert private_containerd(home).network == before.network
    assert Record.read(home).cgroup_driver == driver
    with RawRuntime(before.socket) as raw:
        assert raw.container(container).state == pb.CONTAINER_RUNNING
    assert down(home) == 0


def test_a_running_containerd_is_used_and_given_back(
    home: Path, work_dir: Path, cgroup_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = Containerd(work_dir / "theirs", programs(2))
    theirs.start()
    monkeypatch.setenv("KUBELETPY_RUNTIME", theirs.endpoint)
    try:
        assert prepare(home) == theirs.endpoint
        container, _ = start_pod(home, cgroup_root)
        with RawRuntime(theirs.socket) as raw:
            assert raw.has_image(PAUSE), "where no registry has the sandbox image, ours stands in"
            assert prepare(home) == theirs.endpoint, "its own pods are no reason to refuse"
            assert raw.container(container).state == pb.CONTAINER_RUNNING
            assert down(home) == 0
            assert theirs.pid is not None
            assert raw.sandboxes() == []
            assert theirs.ctr("images", "list", "-q").strip() == ""
    finally:
        assert theirs.remove() == []


def test_a_containerd_with_other_pods_is_left_alone(
    home: Path, cgroup_root: str, containerd2: Containerd
) -> None:
    with RawRuntime(containerd2.socket) as raw:
        raw.run_sandbox(raw.sandbox_config("theirs", cgroup_parent=f"{cgroup_root}/x"))
        with pytest.raises(CommandError, match="pods of another agent"):
            choose(home, Record(), containerd2.endpoint, print)
        assert len(raw.sandboxes()) == 1


def test_a_node_does_not_change_its_runtime(home: Path) -> None:
    record = Record(endpoint="unix:///run/old.sock")
    with pytest.raises(CommandError, match=r"old\.sock: ./up.sh down first"):
        choose(home, record, "private", print)


def test_kubectl_is_provided_where_there_is_none(
    home: Path, work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.env.up.LINKS", work_dir)
    monkeypatch.setattr("tools.env.up.shutil.which", lambda _: None)
    record = Record()
    link = Path(provide_kubectl(home, record))
    assert link == work_dir / "kubectl"
    assert link.resolve() == home / "bin" / "kubectl"
    assert record.links == [str(link)]
    assert down(home) == 0
    assert not link.is_symlink()


def test_two_starts_at_once_become_one_agent(home: Path) -> None:
    """The second waits for the first one's preparations, then sees it running."""
    stub = home.parent / "kubeletpy"
    stub.write_text("#!/bin/sh\nexec sleep 1000\n")
    stub.chmod(0o755)
    script = (
        "import sys; sys.executable = sys.argv.pop(1)\n"
        "from tools.env.up import main; raise SystemExit(main([]))"
    )
    command = [sys.executable, "-c", script, str(home.parent / "python")]
    environment = {**os.environ, "KUBELETPY_HOME": str(home)}
    root = Path(__file__).resolve().parents[3]
    starts = [
        subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        wait_until(
            lambda: [s for s in starts if s.poll() is not None], "the end of one start", timeout=100
        )
        (loser,) = [s for s in starts if s.poll() is not None]
        (winner,) = [s for s in starts if s.poll() is None]
        assert agent_pid(home) == winner.pid
        assert loser.returncode == 1
        assert f"runs already (pid {winner.pid})" in (loser.communicate()[1])
    finally:
        assert down(home) == 0
        for process in starts:
            process.communicate(timeout=10)
