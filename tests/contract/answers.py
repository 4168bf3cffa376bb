"""The conversations, and the answers that a Kubernetes 1.37 API server gave in them."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Sequence
from pathlib import Path

from tests.contract import conversations
from tests.contract.client import JSON
from tests.contract.conversation import Step

FOLDER = Path(__file__).parent / "answers"


def names() -> list[str]:
    """Every conversation."""
    found = [each.name for each in pkgutil.iter_modules(conversations.__path__)]
    return [name for name in found if name != "objects"]


def steps(name: str) -> Sequence[Step]:
    """The requests of a conversation."""
    module = importlib.import_module(f"{conversations.__name__}.{name}")
    listed: Sequence[Step] = module.STEPS
    return listed


def recorded(name: str) -> dict[str, JSON]:
    """The recorded answers of a conversation, by the step's name."""
    answers: dict[str, JSON] = json.loads((FOLDER / f"{name}.json").read_text())
    return answers


def record(name: str, answers: dict[str, JSON]) -> None:
    """Write the answers of a conversation: one line for each step, in order."""
    lines = [f"{json.dumps(key)}: {json.dumps(answer)}" for key, answer in answers.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (FOLDER / f"{name}.json").write_text(text)
