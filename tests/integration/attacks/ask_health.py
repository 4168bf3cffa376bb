"""Measures an agent's health endpoint, 20 times a second, until its standard input ends.

``python -m tests.integration.attacks.ask_health PID URL`` prints an empty line when it begins, and
for each answer the seconds that the agent worked meanwhile. They are those of the machine that
limits are for: the CPU time of the process, divided by how many times slower this machine is. It is
at most the time of the answer in which the agent's loop and this process had a processor. How long
an answer takes depends on other threads, on disks, and on the host of a virtual machine, too. This
runs in a separate process: the embedded API works in the tests' process.
"""

from __future__ import annotations

import os
import select
import sys
import time
import urllib.request
from pathlib import Path

from bench.usage import cpu_seconds
from kubeletpy.metrics.trace.watched_loop import waited_for_processor
from tests.kit.costs import slowness

MATTERS_S = 0.1
"""Shorter answers are within every limit."""


def main(pid: str, url: str) -> None:
    """Print an empty line, and then one for each answer, of which there is one at least."""
    os.nice(-15)
    print(flush=True)
    threads = (Path(f"/proc/{pid}/task/{pid}"), Path("/proc/thread-self").resolve())
    ended = False
    while not ended:
        used = cpu_seconds(int(pid))
        begun, others = time.monotonic(), sum(map(waited_for_processor, threads))
        with urllib.request.urlopen(url, timeout=120) as answer:
            answer.read()
        took = time.monotonic() - begun
        took -= sum(map(waited_for_processor, threads)) - others
        # measuring takes time of the agent's core: only for an answer that could matter
        if took > MATTERS_S:
            took = min(took, cpu_seconds(int(pid)) - used) / slowness()
        print(took)
        ended = bool(select.select([sys.stdin], [], [], 0.05)[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
