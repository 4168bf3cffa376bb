"""Record of a simulation's events, in order, as text: the story shown for a failing seed.

Two runs of one seed must give the same story, letter by letter.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import dataclass, field

TOLD = int(os.environ.get("KUBELETPY_SIM_LINES", "120"))
"""Lines of the story shown with a failure."""


class Violation(AssertionError):
    """Something happened that must never happen."""


@dataclass(slots=True)
class History:
    """The story so far."""

    seed: object = ""
    lines: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    _now: float = 0.0

    def note(self, who: str, what: str) -> None:
        """Record one event with the time; a thread has no clock and uses that of the last event."""
        try:
            now = self._now = asyncio.get_running_loop().time()
        except RuntimeError:
            now = self._now
        self.lines.append(f"{now:11.4f} {who:<8} {what}")

    def violated(self, what: str) -> None:
        """Record something that must never happen; the run goes on, the test will fail."""
        self.note("BROKEN", what)
        self.violations.append(what)

    def digest(self) -> str:
        """A short name of this story."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]

    def check(self) -> None:
        """Raise Violation if anything was violated."""
        if self.violations:
            raise Violation(self.report(self.violations))

    def report(self, problems: list[str]) -> str:
        """The violations, and the last events before them."""
        listed = "\n".join(f"  - {problem}" for problem in problems[:20])
        notified = "\n".join(self.lines[-TOLD:])
        return (
            f"seed {self.seed} broke:\n{listed}\n\nthe end of its story:\n{notified}\n\n"
            f"replay: KUBELETPY_SIM_SEED={self.seed} pytest {_running()}"
        )


def _running() -> str:
    """The file of the test that runs, as pytest has it in the environment."""
    return os.environ.get("PYTEST_CURRENT_TEST", "tests/sim").partition("::")[0]
