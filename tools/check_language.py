"""Check prose for words that docs/glossary.md forbids, by package.

python tools/check_language.py               # exits 1 where a package has more of them than before
python tools/check_language.py PACKAGE …     # prints each place, such as: kubeletpy/status, docs
python tools/check_language.py --write       # lowers the baseline to what is there now

Pages, the README, docstrings and messages are read; code in backticks is not. The words are the
first table below "Words that are not used"; tools/language_baseline.csv has the counts so far.
"""

from __future__ import annotations

import ast
import csv
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASELINE = Path("tools/language_baseline.csv")
_HEADING = "## Words that are not used"
_ROW = re.compile(r"\| ([^|]+) \| ([^|]+) \|")
_NOT_PROSE = re.compile(
    r"```.*?```|``.*?``|`[^`]*`|\]\([^)]*\)|https?://\S+|<[^>]*>|\blook(s|ed|ing)?\s+up\b",
    re.DOTALL,
)
Find = tuple[Path, int, str]
"""A file, the number of a line, and the word there."""


def forbidden(glossary: str) -> dict[str, str]:
    """What to write instead, by forbidden word or phrase."""
    found: dict[str, str] = {}
    begun = False
    for line in glossary.partition(_HEADING)[2].splitlines():
        row = _ROW.fullmatch(line)
        if row is None:
            if begun:
                break
            continue
        begun = True
        if row[1] != "instead of" and not row[1].startswith("-"):
            found.update({word.strip(): row[2] for word in row[1].split(",")})
    return found


def pattern(words: Mapping[str, str]) -> re.Pattern[str]:
    """Finds each of the words; in phrases a line may be broken."""
    longest = sorted(words, key=len, reverse=True)
    phrases = [r"\s+".join(map(re.escape, word.split())) for word in longest]
    return re.compile(rf"(?<![\w-])({'|'.join(phrases)})(?![\w-])", re.IGNORECASE)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of a file, each with the number of its first line."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        head, mark, _ = text.partition(_HEADING)
        yield 1, head if mark else text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def finds(path: Path, words: re.Pattern[str]) -> Iterator[Find]:
    """Each forbidden word of a file."""
    for first, text in prose(path):
        blank = _NOT_PROSE.sub(lambda each: re.sub(r"[^\n]", " ", each[0]), text)
        for match in words.finditer(blank):
            yield path, first + blank.count("\n", 0, match.start()), " ".join(match[0].split())


def package(path: Path) -> str:
    """What a file is counted with: docs, kubeletpy, or a package below kubeletpy."""
    if path.suffix == ".md":
        return "docs"
    return "/".join(path.parts[:2]) if len(path.parts) > 2 else path.parts[0]


def files(root: Path) -> list[Path]:
    """What is checked, relative to the repository."""
    pages = [root / "README.md", *root.glob("docs/*.md"), *root.glob("docs/runbooks/*.md")]
    generated = {root / "docs/differences.md"}
    modules = [each for each in root.glob("kubeletpy/**/*.py") if "generated" not in each.parts]
    return sorted(each.relative_to(root) for each in {*pages, *modules} - generated)


def excess(counts: Mapping[str, int], baseline: Mapping[str, int]) -> list[str]:
    """A line for each package with more forbidden words than its baseline."""
    return [
        f"{name}: {count} words that docs/glossary.md forbids, {baseline.get(name, 0)} before: "
        f"run python tools/check_language.py {name}"
        for name, count in counts.items()
        if count > baseline.get(name, 0)
    ]


def main(arguments: list[str]) -> int:
    """Entry point."""
    instead = forbidden((ROOT / "docs/glossary.md").read_text(encoding="utf-8"))
    words = pattern(instead)
    found = [
        (each, line, word) for path in files(ROOT) for each, line, word in finds(ROOT / path, words)
    ]
    counts: dict[str, int] = {}
    for path, _, _ in found:
        name = package(path.relative_to(ROOT))
        counts[name] = counts.get(name, 0) + 1
    with (ROOT / BASELINE).open(encoding="utf-8", newline="") as file:
        baseline = {row["package"]: int(row["words"]) for row in csv.DictReader(file)}
    if arguments == ["--write"]:
        rows = [f"{name},{min(n, baseline.get(name, n))}" for name, n in sorted(counts.items())]
        (ROOT / BASELINE).write_text("\n".join(["package,words", *rows, ""]), encoding="utf-8")
        return 0
    for path, line, word in found:
        short = path.relative_to(ROOT)
        if package(short) in arguments:
            print(f'{short}:{line}: "{word}": {instead[word.lower()]}')
    problems = [] if arguments else excess(counts, baseline)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
