"""Kept inputs: ``corpus/TARGET``, one a line in base64; lines after # describe the find.

They were chosen by the fuzzer because each reaches code that the others don't, or they are finds.
"""

from __future__ import annotations

import base64
from pathlib import Path

from tests.fuzz.target import Target

FOLDER = Path(__file__).parent / "corpus"
MAX_KEPT = 120
"""Inputs of a target."""
MAX_INPUT = 400
"""Bytes of one that is no find."""


def kept(target: Target) -> list[bytes]:
    """All inputs that a run begins with."""
    path = FOLDER / target.name
    lines = path.read_text().splitlines() if path.exists() else []
    return [*target.seeds, *(base64.b64decode(each) for each in lines if each[:1] != "#")]


def keep(target: Target, chosen: list[bytes]) -> None:
    """Replace the inputs that are no finds by the smallest of these."""
    path = FOLDER / target.name
    lines = path.read_text().splitlines() if path.exists() else []
    finds: list[str] = []
    for number, line in enumerate(lines):
        if line.startswith("#"):
            finds += lines[number : number + 2]
    small = sorted({each for each in chosen if len(each) <= MAX_INPUT}, key=lambda x: (len(x), x))
    encoded = [base64.b64encode(each).decode() for each in small if each][:MAX_KEPT]
    new = [each for each in encoded if each not in finds]
    if finds or new:
        path.write_text("\n".join([*finds, *new]) + "\n")
