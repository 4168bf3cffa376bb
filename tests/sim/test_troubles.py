"""Over forty unhealthy pods of a simulated node: points for the answers of ``kubeletpy explain``.

The table of the docs has the points of every trouble; ``python -m tests.sim.test_troubles`` prints
it.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.sim import troubles_containers, troubles_devices, troubles_endings, troubles_storage
from tests.sim.troubles import QUESTIONS, Answers, Trouble, play_trouble

ALL: tuple[Trouble, ...] = (
    *troubles_storage.TROUBLES,
    *troubles_devices.TROUBLES,
    *troubles_containers.TROUBLES,
    *troubles_endings.TROUBLES,
)
DESIRED = 0.95
"""Share of the points below which the test fails; the first score was 72 %."""


def table(found: Iterable[Answers]) -> str:
    """Kind, trouble and points, and at the end how often each question was answered."""
    answers = list(found)
    rows = [f"| {each.trouble.kind} | {each.trouble.name} | {each.points} |" for each in answers]
    missed = Counter(question for each in answers for question in each.missed)
    total = sum(each.points for each in answers)
    by_question = ", ".join(f"{q} {len(answers) - missed[q]}" for q in QUESTIONS)
    most = len(QUESTIONS) * len(answers)
    rows.append(f"| | {by_question} | {total} of {most} ({total / most:.0%}) |")
    return "\n".join(["| Kind | Trouble | Points |", "| --- | --- | --- |", *rows])


def test_explain_answers_the_four_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for number, trouble in enumerate(ALL):
        root = tmp_path / str(number)
        root.mkdir()
        found.append(play_trouble(trouble, root))
    missed = [
        f"{each.trouble.name}: {question}: {why}"
        for each in found
        for question, why in each.missed.items()
    ]
    with capsys.disabled():
        print("", table(found), *missed, sep="\n")
    assert len(ALL) >= 40
    assert len({each.name for each in ALL}) == len(ALL)
    points = sum(each.points for each in found)
    assert points / (len(QUESTIONS) * len(ALL)) >= DESIRED, "\n".join(missed)


if __name__ == "__main__":

    def _played(trouble: Trouble) -> Answers:
        with tempfile.TemporaryDirectory() as root:
            return play_trouble(trouble, Path(root))

    print(table(map(_played, ALL)))
