"""Each tutorial works as its text describes, for a plain user in an empty folder.

A code block with a title is a file to write, a block ``sh`` is run, and the block ``text`` after it
is the output (``…``: any text). All of a page runs in one shell, in the order of the page. The
wheels are built from the checkout. A stand-in for curl has the archive of kubebuilder's test
environment, because tests reach only registries of packages; its programs are our own build.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import control_plane_programs
from tests.unit.library.test_library import as_plain_user
from tools.check_wheels import DISTRIBUTIONS, ROOT, build
from tools.control_plane.plane import programs_of

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
_BLOCK = re.compile(r'^```(\w+)(?: title="([\w./-]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_PRINTED = "--- printed ---"
WITHIN_S = 600
MAX_WORDS = 500


def steps(page: str) -> Iterator[tuple[str, str]]:
    """Shell code that follows a page, each with the output that it prints."""
    blocks = [(found[1], found[2], found[3]) for found in _BLOCK.finditer(page)]
    assert len(blocks) * 2 == len(re.findall("^```", page, re.MULTILINE)), "a block is not marked"
    for index, (language, title, text) in enumerate(blocks):
        if title:
            yield f"printf %s {shlex.quote(text)} > {title}", ""
        elif language == "sh":
            after = blocks[index + 1] if index + 1 < len(blocks) else ("", "", "")
            yield text, after[2] if after[0] == "text" else ""
        else:
            assert language == "text", f"a block {language} without a title"


def contains(output: str, expected: str) -> bool:
    """Whether an output has the expected lines, one after the other."""
    return bool(
        re.search(".*".join(map(re.escape, expected.strip().split("…"))), output, re.DOTALL)
    )


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheels of the checkout."""
    place = tmp_path_factory.mktemp("wheels")
    for package in DISTRIBUTIONS:
        shutil.move(build(package, place), place)
    return place


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """An archive as setup-envtest downloads it."""
    found = programs_of(control_plane_programs(request.config))
    path = tmp_path_factory.mktemp("envtest") / "envtest.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=0) as made:
        for name, program in (("etcd", found.etcd), ("kube-apiserver", found.api_server)):
            made.add(program.resolve(), f"controller-tools/envtest/{name}")
    return path


@pytest.fixture
def empty() -> Iterator[Path]:
    """An empty folder."""
    path = Path(tempfile.mkdtemp(prefix="tutorial-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def follow(folder: Path, script: str, wheels: Path, archive: Path) -> str:
    """The output of shell code that a plain user runs in a folder; it must succeed."""
    tools, home = folder / "tools", folder / "home"
    tools.mkdir()
    (tools / "curl").write_text(f"#!/bin/sh\ncat {archive}\n")
    (tools / "curl").chmod(0o755)
    (tools / "python3").symlink_to(sys.executable)
    user = as_plain_user(folder)
    home.mkdir()
    if user:
        os.chown(home, 1000, 1000)
    done = subprocess.run(
        [*user, "bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=home,
        env={
            "HOME": str(home),
            "PATH": f"{tools}:/usr/bin:/bin",
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            "PIP_FIND_LINKS": f"{wheels} {os.environ.get('PIP_FIND_LINKS', '')}",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_tutorial(page: Path, empty: Path, wheels: Path, archive: Path) -> None:
    followed = list(steps(page.read_text()))
    script = "".join(f"{code}\necho '{_PRINTED}'\n" for code, _ in followed)
    printed = follow(empty, script, wheels, archive).split(_PRINTED)
    for (code, expected), output in zip(followed, printed, strict=False):
        assert contains(output, expected), f"{code} prints:\n{output}"


def test_tutorials_are_short() -> None:
    for page in PAGES:
        prose = _BLOCK.sub("", page.read_text())
        assert len(prose.split()) <= MAX_WORDS
