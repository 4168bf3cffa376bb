"""Every attack on docs/security.md has a test, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_named_tests_exist() -> None:
    missing = []
    for path, test in NAMED.findall(PAGE):
        file = ROOT / path
        if not file.is_file() or (test and f"def {test}(" not in file.read_text()):
            missing.append(f"{path}::{test}")
    assert missing == []


def test_every_attack_names_a_test() -> None:
    attacks = PAGE[PAGE.index("## Tenants") :]
    rows = [line for line in attacks.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| attack |", "| fault |", "| --- |"))]
    assert len(rows) > 40
    assert [row for row in rows if not NAMED.search(row)] == []
