"""Check that commit subjects have the form "area: imperative" in at most 72 characters.

python tools/commit_message.py FILE    # the message in FILE, as git's commit-msg hook passes it
python tools/commit_message.py         # the commits since the last release, for ./test.sh lint

Without a release tag the last 50 commits that the clone has are checked. Only the standard library
is used: the hook runs in whatever Python a checkout has.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST = 72
LATEST = 50
RELEASE_TAGS = "v[0-9]*"
_SUBJECT = re.compile(r"[A-Za-z0-9.]([\w./, -]*[\w.])?: (?P<what>\S.*)")
_BY_GIT = re.compile(r'Merge |Revert "|Reapply "')
"""Subjects that git writes."""
_AUTOSQUASH = re.compile(r"(fixup|squash|amend)! ")
"""Commits that a rebase melts into others: a hook lets them pass, a branch may not keep them."""
_NO_VERB = re.compile(
    r"(an?|the|no|not|what|who|when|where|why|how|as|of|by|for|in|on|with|to|if|after|before|while"
    r"|all|each|every|some|more|its?|this|that|these|those|there|they|we|is|are|was|were|has|had)"
)
_INFLECTED = re.compile(r"[a-z]{2,}(ed|ing|[^sui]s)")
_BASE_FORMS = frozenset(
    (
        *("embed", "exceed", "feed", "need", "proceed", "seed", "shed", "shred", "speed"),
        *("succeed", "bring", "ping", "ring", "spring", "string", "swing", "alias", "canvas"),
    )
)
"""Verbs whose base form ends like an inflected one."""


def problems(message: str, *, hook: bool = False) -> list[str]:
    """Return the faults of a commit message; empty if it is fine.

    ``hook``: the message is being written; comment lines and commits for a later rebase are
    accepted.

    >>> problems("Fixed the status")
    ['the subject has no area: write "area: what the commit changes"']
    """
    lines = message.splitlines()
    if hook:
        lines = [line for line in lines if not line.startswith("#")]
        while lines and not lines[0].strip():
            del lines[0]
    if not lines:
        return []  # git itself refuses an empty message
    subject = lines[0].rstrip()
    if _BY_GIT.match(subject):
        return []
    if _AUTOSQUASH.match(subject):
        return [] if hook else ["squash this commit into the one that it fixes"]
    found = []
    if len(subject) > MOST:
        found.append(f"the subject has {len(subject)} characters: {MOST} are the most")
    parts = _SUBJECT.fullmatch(subject)
    if parts is None:
        found.append('the subject has no area: write "area: what the commit changes"')
    elif problem := _not_imperative(parts["what"].split()[0]):
        found.append(problem)
    if len(lines) > 1 and lines[1].strip():
        found.append("the line after the subject is not blank")
    return found


def _not_imperative(word: str) -> str:
    """Why a word cannot be a verb in the imperative; empty if it can be one."""
    if word[0].isupper():
        return f'"{word}" begins with a capital: write the verb in lower case'
    inflected = _INFLECTED.fullmatch(word) is not None and word not in _BASE_FORMS
    if inflected or _NO_VERB.fullmatch(word):
        return f'"{word}" is no verb in the imperative: write for example "fix" or "report"'
    return ""


def commits(repository: Path) -> list[tuple[str, str]]:
    """Abbreviated hash and message of the commits to check, newest first, without merges.

    They are those since the last release tag, else the last 50; a shallow clone may have fewer.
    Empty where there is no git repository.
    """
    if not (repository / ".git").exists():
        return []
    tag = _git(repository, "describe", "--tags", "--abbrev=0", "--match", RELEASE_TAGS, check=False)
    span = [f"{tag.strip()}..HEAD"] if tag else [f"--max-count={LATEST}", "HEAD"]
    text = _git(repository, "log", "--no-merges", "-z", "--format=%h%n%B", *span)
    return [(each.partition("\n")[0], each.partition("\n")[2]) for each in text.split("\0") if each]


def _git(repository: Path, *arguments: str, check: bool = True) -> str:
    command = ["git", "-C", str(repository), *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    if check:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return ""


def main(arguments: list[str], repository: Path = ROOT) -> int:
    """Print each problem; 1 if there is one."""
    if arguments:
        found = problems(Path(arguments[0]).read_text(encoding="utf-8"), hook=True)
        for problem in found:
            print(f"commit message: {problem}", file=sys.stderr)
        return 1 if found else 0
    bad = 0
    for name, message in commits(repository):
        for problem in problems(message):
            print(f"commit {name} ({message.splitlines()[0]}): {problem}", file=sys.stderr)
            bad = 1
    return bad


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
