"""How many instructions of the interpreter a pod costs: the same number on a loaded machine.

Counts those of the agent's own code, in virtual time, with the simulated runtime and API server.
The work of libraries, the interpreter's C code and the kernel is measured by ``bench/``, not here.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import kubeletpy
from tests.sim.loop import run
from tests.sim.test_scenarios import until
from tests.sim.user import container, pod
from tests.sim.world import World

PODS = 20
START, END = 116_000, 90_000
"""Instructions per pod: 112,121 and 87,976 with CPython 3.11. Raise a bound only with a reason."""
AGENT = str(Path(kubeletpy.__file__).parent) + "/"
REPORTED = 25


class Instructions:
    """Counts what the agent's functions execute."""

    def __init__(self) -> None:
        self.by_function: Counter[CodeType] = Counter()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count while the block runs."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def per_pod(self) -> int:
        """Instructions for each of PODS."""
        return self.by_function.total() // PODS

    def report(self) -> str:
        """The functions that execute most, with their instructions per pod."""
        return "\n".join(
            f"{count / PODS:8.0f}  {code.co_filename.removeprefix(AGENT)}"
            f":{code.co_firstlineno} {code.co_name}"
            for code, count in self.by_function.most_common(REPORTED)
        )

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(AGENT):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._instruction

    def _instruction(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            self.by_function[frame.f_code] += 1
        return self._instruction


def test_a_pod_costs_no_more_instructions(tmp_path: Path) -> None:
    start, end = Instructions(), Instructions()

    async def scenario() -> None:
        world = World(1, tmp_path)
        world.start()
        await world.converges(60)
        with start.counted():
            for number in range(PODS):
                world.user.create(pod(f"p{number}", [container("c", "run")]))
            await world.converges(120)
        with end.counted():
            for obj in world.user.pods():
                world.user.delete(obj["metadata"]["name"])
            await until(world, lambda: not world.user.pods(), 60)
            await asyncio.sleep(3)  # removals after the last pod's deletion count, too
        await world.stop()

    run(scenario())
    assert START / 2 < start.per_pod() < START, start.report()
    assert END / 2 < end.per_pod() < END, end.report()
