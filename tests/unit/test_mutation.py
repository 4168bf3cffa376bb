"""Which faults `./test.sh mutation` makes, and that a change in place is the fault in the text."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.mutation import trial
from tools.mutation.equivalent import Equivalents
from tools.mutation.mutations import mutations


@pytest.mark.parametrize(
    ("source", "mutated"),
    [
        ("x < 3", {"(x <= 3)", "(x >= 3)", "x < 2", "x < 4"}),
        ("x is not None", {"(x is None)"}),
        ("x = a and b", {"x = (a or b)", "x = a", "x = b"}),
        ("x = not a", {"x = a"}),
        ("x = a or ()", set()),
        ("x = a or None", set()),
        ("x = 0", {"x = 1", "x = (-1)"}),
        ("x: int = True", {"x: int = False"}),
        ("if a:\n  f()", {"if True:\n  f()", "if False:\n  f()"}),
        ("[b for b in a if b]", {"[b for b in a if True]", "[b for b in a if False]"}),
        ("x = min(a, b)", {"x = max(a, b)"}),
        ("é = f(a + b)", {"é = f((a - b))"}),
        ("x = 'a' + b", set()),
        ("if TYPE_CHECKING:\n  a = 1", set()),
        ("@d(slots=True)\nclass A:\n  pass", set()),
        ("def f(a: Literal[1]) -> Literal[2]: ...", set()),
        ("def f(a: int = 1) -> None:\n  'text'\n  ...", set()),
        (
            "def f(a: int = 0) -> None:\n  g()",
            {f"def f(a: int = {n}) -> None:\n  g()" for n in ("1", "(-1)")},
        ),
    ],
)
def test_each_fault_is_one_change(source: str, mutated: set[str]) -> None:
    assert {m.apply(source) for m in mutations("a.py", source)} == mutated


def test_a_mutation_knows_where_it_is() -> None:
    source = "class A:\n    def f(self):\n        return  self.a <  2\n"
    first = mutations("a.py", source)[0]
    assert (first.function, first.line) == ("A.f", 3)
    assert first.lines(source) == ("return self.a < 2", "return (self.a <= 2)")
    assert "+        return  (self.a <= 2)" in first.diff(source)


def test_the_list_of_equivalents_names_mutations_that_there_are() -> None:
    tree = Path(__file__).parents[2]
    listed = Equivalents.read(tree / "tools" / "mutation" / "equivalent.toml")
    sources = {key.path: (tree / key.path).read_text() for key in listed.reasons}
    found = [m for path, source in sources.items() for m in mutations(path, source)]
    assert listed.unknown(found, sources) == []


def _loop() -> None:
    while True:
        pass


def _grow() -> None:
    bytearray(2 * trial.BYTES)


@pytest.mark.parametrize(
    ("trial_does", "seconds", "code"),
    [
        (lambda: None, 60, 0),
        (_loop, 60, -1),
        (_grow, 60, 3),
        (lambda: time.sleep(60), 0.1, -1),
    ],
    ids=["ends", "loops", "grows", "waits"],
)
def test_a_trial_ends(trial_does: Callable[[], None], seconds: float, code: int) -> None:
    pid = os.fork()
    if pid == 0:
        left = 3
        try:
            trial.enclose(cpu_seconds=1)
            trial_does()
            left = 0
        finally:
            os._exit(left)
    assert trial.wait(pid, time.monotonic() + seconds) == code
