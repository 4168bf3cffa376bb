"""When a process that the environment started has really ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.env.process import start_time
from tools.env.sweep import mounts, unmount
from tools.env.waiting import wait_until

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
