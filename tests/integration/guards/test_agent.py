"""Effects of an agent on this machine: its own process, and nothing that is not its own."""

from __future__ import annotations

import os
from pathlib import Path

from kubeletpy.node.guards.at_start import read_sysctls
from tests.integration.node.fixtures import MakeNode
from tools.env import kernel_limits
from tools.env.containerd import Containerd
from tools.env.sweep import cgroups
from tools.env.waiting import wait_until

SETTINGS = Path("/proc/sys")


def test_the_agents_own_process(make_node: MakeNode, session_containerd2: Containerd) -> None:
    group, kernel = f"/kpt-agent-{os.getpid()}", read_sysctls(SETTINGS)
    config = {"kubeletCgroups": group, "maxOpenFiles": 5000, "oomScoreAdj": 17}
    node = make_node(session_containerd2, config=config)
    try:
        node.start()
        pid = node.agent.pid
        assert pid is not None

        def moved() -> bool:
            roots = kernel_limits.hierarchies("cpu", "memory")
            procs = [root / group[1:] / "cgroup.procs" for root in roots]
            return all(str(pid) in file.read_text().split() for file in procs)

        wait_until(moved, "agent in its cgroup")
        limits = Path(f"/proc/{pid}/limits").read_text().split("\n")
        assert "Max open files 5000 5000 files" in [" ".join(line.split()) for line in limits]
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "17\n"
        if kernel_limits.VERSION == 1:
            node.wait_event("default", node.name, "CgroupV1: ")
        # it keeps the sysctls, as its flag requests; and the kernel's log can be read
        assert read_sysctls(SETTINGS) == kernel
        assert "the machine does not allow" not in node.agent.log_tail(200)
        assert "kernel's log can't be read" not in node.agent.log_tail(200)
        wait_until((node.root_dir / "kernel_log_mark").exists, "end of the kernel's log")
        warned = [each for each in node.events("default", node.name) if "CgroupV1" in each]
        assert bool(warned) is (kernel_limits.VERSION == 1)
    finally:
        node.kill()
        wait_until(lambda: all(_removed(path) for path in cgroups([group])), "no cgroup left")


def _removed(path: Path) -> bool:
    path.rmdir()  # OSError while the process ends: tried again
    return True
