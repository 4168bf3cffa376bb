"""The images made on the spot, and the pause program as bytes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from tools.env.images import busybox_image, pause_image, write_archive
from tools.env.pause import pause_program
from tools.env.waiting import NotReadyError, wait_until


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


def test_same_input_same_archive(work_dir: Path) -> None:
    images = [pause_image(), busybox_image()]
    first = write_archive(work_dir / "a.tar", *images).read_bytes()
    assert write_archive(work_dir / "b.tar", *images).read_bytes() == first
    other = busybox_image(extra={"etc/mark": b"1"})
    assert write_archive(work_dir / "c.tar", other).read_bytes() != first


def test_archive_names_its_images(work_dir: Path) -> None:
    path = write_archive(work_dir / "a.tar", pause_image("one:1"), busybox_image("two:2"))
    with tarfile.open(path) as archive:
        member = archive.extractfile("index.json")
        assert member is not None
        index = json.load(member)
    names = [m["annotations"]["io.containerd.image.name"] for m in index["manifests"]]
    assert names == ["one:1", "two:2"]


def test_an_error_of_waiting_has_the_condition_and_the_cause() -> None:
    def refuse() -> bool:
        raise ConnectionRefusedError("nobody there")

    with pytest.raises(NotReadyError, match=r"the thing: not within 0\.1 s .*nobody there"):
        wait_until(refuse, "the thing", timeout=0.1)
    with pytest.raises(NotReadyError, match="the thing: it is dead"):
        wait_until(refuse, "the thing", give_up=lambda: "it is dead")
