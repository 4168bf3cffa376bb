"""The commit from which the agent of the last release is taken."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.release import earlier


def git(directory: Path, *arguments: str) -> str:
    command = ("git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments)
    done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a release and a later change of the changelog."""
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet")
    log = repository / "CHANGELOG.md"
    for text in ("# Changelog\n", "# Changelog\n## [0.1.0]\n", "# Changelog\n\n## [0.1.0]\n- x\n"):
        log.write_text(text)
        git(repository, "add", ".")
        git(repository, "commit", "--quiet", "--message", "change")
    monkeypatch.setattr(earlier, "CHECKOUT", repository)
    return repository


def test_the_release_is_the_commit_that_added_its_heading(checkout: Path) -> None:
    assert earlier.release_commit() == git(checkout, "rev-parse", "HEAD~1")


def test_a_shallow_history_has_no_release(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shallow = checkout.parent / "shallow"
    git(checkout.parent, "clone", "--quiet", "--depth=1", f"file://{checkout}", str(shallow))
    monkeypatch.setattr(earlier, "CHECKOUT", shallow)
    assert earlier.release_commit() == ""


def test_files_without_a_repository_have_no_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier, "CHECKOUT", tmp_path)
    assert earlier.release_commit() == ""
