"""The programs of docs/library.md print what the page shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.examples.test_examples import ROOT, WITHIN_S, command, environment

PAGE = (ROOT / "docs" / "library.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```\n\nIt prints:\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_every_program_of_the_page_is_run() -> None:
    assert len(PROGRAMS) == PAGE.count("```python") == 2


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=["agent", "api"])
def test_a_program_prints_what_the_page_shows(tmp_path: Path, program: str, printed: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(program)
    done = subprocess.run(
        command(str(file)),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr[-2000:]


def test_the_install_line_names_directories_of_the_checkout() -> None:
    (line,) = re.findall(r"pip install (.*?)\s+#", PAGE)
    for each in line.split():
        assert (ROOT / each / "pyproject.toml").is_file()
