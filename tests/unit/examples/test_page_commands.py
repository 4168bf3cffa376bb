"""Every command on a page exists, with the options that the page gives it.

Programs and tutorials are run (``test_library_page.py``, ``tests/cluster/test_tutorials.py``). A
command that needs a cluster, root or an hour is compared with its parser here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from kubeletpy.cli import why
from kubeletpy.cli.completion import command_parsers
from tests.unit.examples.test_examples import ROOT

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_OURS = ("kubeletpy ", "kubectl why ", "./test.sh ", "./up.sh ", "python -m ", "python tools/")
_ENDS = ("&&", ";", "|", ">")
_SECTIONS = re.search(
    r"^all=\((.*)\)\nnamed=\((.*)\) ", (ROOT / "test.sh").read_text(), re.MULTILINE
)


def commands(page: str) -> Iterator[list[str]]:
    """The words of each command of ours on a page, in blocks of shell code and in sentences."""
    shell = [body for language, body in _BLOCK.findall(page) if language == "sh"]
    lines = "\n".join(shell).replace("\\\n", " ").splitlines()
    lines += _INLINE.findall(_BLOCK.sub("", page))
    for line in lines:
        if any(each in f"{line} " for each in _OURS):
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            parts: list[list[str]] = [[]]
            for word in lexer:
                if word in _ENDS:
                    parts.append([])
                else:
                    parts[-1].append(word)
            yield from (each for each in parts if f"{' '.join(each)} ".startswith(_OURS))


@cache
def options(command: str) -> frozenset[str]:
    """The options of a command of ``kubeletpy``, or of ``kubectl why``."""
    found = why.parser() if command == "why" else command_parsers()[command]
    return frozenset(found._option_string_actions)


def problem(words: list[str]) -> str:
    """Return why a command cannot be right, or ""."""
    match words:
        case ["kubectl" | "kubeletpy", command, *rest] if not command.startswith("-"):
            try:
                unknown = {each.partition("=")[0] for each in rest if each.startswith("-")}
                return ", ".join(unknown - options(command))
            except KeyError:
                return f"no command {command}"
        case ["./test.sh", *rest]:
            assert _SECTIONS is not None
            known = " ".join(_SECTIONS.groups()).split()
            paths = [each for each in rest if each.startswith("tests/")]
            missing = [each for each in paths if not (ROOT / each).exists()]
            if rest and not rest[0].startswith(("-", "tests/")) and rest[0] not in known:
                missing.append(rest[0])
            return ", ".join(missing)
        case ["python", "-m", module, *_]:
            return "" if find_spec(module) else f"no module {module}"
        case ["python", path, *_] if not (ROOT / path).exists():
            return f"no file {path}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    wrong = [(words, found) for words in commands(page.read_text()) if (found := problem(words))]
    assert wrong == []


def test_wrong_commands_are_found() -> None:
    assert sum(1 for page in PAGES for _ in commands(page.read_text())) > 150
    text = (
        "`kubeletpy expalin` `kubeletpy explain --nod`\n```sh\n./test.sh unti && ./test.sh\n```\n"
    )
    found = [problem(words) for words in commands(f"{text}`python -m tools.no` `kubeletpy run`")]
    assert [each for each in found if each] == [
        "unti",
        "no command expalin",
        "--nod",
        "no module tools.no",
    ]
