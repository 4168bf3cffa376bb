"""The check of forbidden words: what it reads, what it counts, and when it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import check_language
from tools.check_language import excess, finds, forbidden, main, package, pattern

GLOSSARY = """# Glossary

## Words that are not used

| instead of | write |
| --- | --- |
| tell, told (anybody) | report |
| at rest | idle |

More:

| instead of | write |
| --- | --- |
| step | sync |
"""
MODULE = '''"""The module tells nothing; ``told`` is code."""

told = "told"


def report() -> str:
    """First line.

    The node is at
    rest, and was told. Beat-tell is one word.
    """
    return f"TOLD {told}: never mind `tell`"
'''
WORDS = pattern({"told": "", "tell": "", "at rest": ""})


def found(path: Path) -> list[tuple[int, str]]:
    return [(line, word) for _, line, word in finds(path, WORDS)]


def test_the_first_table_of_the_glossary_has_the_words() -> None:
    glossary = GLOSSARY.replace(" (anybody)", "")
    assert forbidden(glossary) == {"tell": "report", "told": "report", "at rest": "idle"}


def test_the_real_glossary_has_words() -> None:
    assert "told" in forbidden((check_language.ROOT / "docs/glossary.md").read_text())


def test_docstrings_and_messages_are_prose(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(MODULE)
    assert found(module) == [(9, "at rest"), (10, "told"), (12, "TOLD")]


def test_pages_are_prose_but_for_code_and_the_table_itself(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"He was told.\n\n```\ntold\n```\n\n[a](told.md) `told` told\n\n{GLOSSARY}")
    assert found(page) == [(1, "told"), (7, "told")]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("README.md", "docs"),
        ("docs/runbooks/x.md", "docs"),
        ("kubeletpy/clock.py", "kubeletpy"),
        ("kubeletpy/volumes/csi/names.py", "kubeletpy/volumes"),
    ],
)
def test_files_count_with_their_package(path: str, name: str) -> None:
    assert package(Path(path)) == name


def test_more_words_than_before_are_a_problem() -> None:
    counts = {"docs": 3, "kubeletpy/api": 1, "kubeletpy/cli": 2}
    found = excess(counts, {"docs": 2, "kubeletpy/cli": 2})
    assert [each.partition(":")[0] for each in found] == ["docs", "kubeletpy/api"]


def test_the_baseline_only_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check_language, "ROOT", tmp_path)
    for folder in ("docs", "tools", "kubeletpy/api", "kubeletpy/cli"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs/glossary.md").write_text(GLOSSARY.replace(" (anybody)", ""))
    (tmp_path / "README.md").write_text("Tell me what you were told.\n")
    (tmp_path / "kubeletpy/api/x.py").write_text('"""It is at rest."""\n')
    baseline = tmp_path / check_language.BASELINE
    baseline.write_text("package,words\ndocs,1\nkubeletpy/api,5\nkubeletpy/cli,2\n")
    assert main([]) == 1
    assert "docs: 2 words that docs/glossary.md forbids, 1 before" in capsys.readouterr().err
    assert main(["--write"]) == 0
    assert baseline.read_text() == "package,words\ndocs,1\nkubeletpy/api,1\n"
    assert main(["docs"]) == 0
    assert capsys.readouterr().out == 'README.md:1: "Tell": report\nREADME.md:1: "told": report\n'
