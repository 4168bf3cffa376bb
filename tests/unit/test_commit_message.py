"""The check of commit subjects: which ones it accepts, and which commits it reads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.commit_message import LATEST, commits, main, problems

GOOD = (
    "status: skip recomposing unchanged pods",
    "config, launch: take the Kubernetes version of the API server",
    "embedded API: check both kinds of subdomains with one function",
    "test.sh: run sim and fuzz at idle priority beside integration",
    "volumes/csi: pass the fsGroup to drivers",
    "docs: need root for the benchmarks",
    "remote: process answers in order",
    "probes: ping the container",
    "pods: address a static pod by its name",
    "x: " + "y" * 69,
    "status: fix it\n\nThe body says why.",
    'Revert "status: fix it"',
    'Reapply "status: fix it"',
)
NO_AREA = ["the subject has no area"]
NO_VERB = ["is no verb in the imperative"]
BAD = {
    "What a plan is told as is a Struct": NO_AREA,
    "status : fix it": NO_AREA,
    "status:fix it": NO_AREA,
    "status: ": NO_AREA,
    "x: " + "y" * 70: ["73 characters"],
    "A sentence that is far too long for a subject, and has no area either, too": [
        "74 characters",
        "no area",
    ],
    "status: Fix it": ["begins with a capital"],
    "status: fixed it": NO_VERB,
    "status: fixes it": NO_VERB,
    "status: fixing it": NO_VERB,
    "status: adds a row": NO_VERB,
    "csi: a stale CSINode is recreated": NO_VERB,
    "status: no second write": NO_VERB,
    "status: fix it\nmore of it": ["not blank"],
    "fixup! status: fix it": ["squash this commit"],
}


@pytest.mark.parametrize("message", GOOD)
def test_accepted(message: str) -> None:
    assert problems(message) == []


@pytest.mark.parametrize(("message", "expected"), BAD.items())
def test_refused(message: str, expected: list[str]) -> None:
    found = problems(message)
    assert len(found) == len(expected)
    assert all(part in problem for part, problem in zip(expected, found, strict=True))


@pytest.mark.parametrize("word", ["pass", "focus", "discuss", "embed", "seed", "string", "read"])
def test_base_forms_with_inflected_endings_are_accepted(word: str) -> None:
    assert problems(f"area: {word} it") == []


def test_a_hook_ignores_comments_and_accepts_commits_for_a_rebase(tmp_path: Path) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    for text in ("# a comment\n\nstatus: fix it\n# another\n", "fixup! status: fix it\n", "# x\n"):
        message.write_text(text)
        assert main([str(message)]) == 0
    message.write_text("Fixed it\n")
    assert main([str(message)]) == 1


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def commit(folder: Path, subject: str) -> None:
    git(folder, "commit", "-q", "--allow-empty", "-m", subject)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "Old sentence")
    commit(folder, "status: fix it")
    return folder


def subjects(folder: Path) -> list[str]:
    return [message.strip() for _, message in commits(folder)]


def test_without_a_tag_the_latest_commits_are_checked(repository: Path) -> None:
    assert subjects(repository) == ["status: fix it", "Old sentence"]
    assert main([], repository) == 1
    for number in range(LATEST - 1):
        commit(repository, f"status: fix {number}")
    assert "Old sentence" not in subjects(repository)
    assert main([], repository) == 0


def test_the_commits_since_the_last_release_are_checked(repository: Path) -> None:
    git(repository, "tag", "v0.1.0")
    assert subjects(repository) == []
    commit(repository, "status: fix more")
    git(repository, "tag", "another-tag")
    assert subjects(repository) == ["status: fix more"]


def test_merges_are_not_checked(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "side")
    commit(repository, "status: fix more")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "Pull 7", "side")
    assert "Pull 7" not in subjects(repository)


def test_a_clone_of_one_commit_passes(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "clone")
    assert subjects(tmp_path / "clone") == ["status: fix it"]
    assert main([], tmp_path / "clone") == 0


def test_sources_without_git_pass(tmp_path: Path) -> None:
    assert main([], tmp_path) == 0


def test_a_repository_that_git_cannot_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    with pytest.raises(SystemExit, match="git"):
        main([], tmp_path)
