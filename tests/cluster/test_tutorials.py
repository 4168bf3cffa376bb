"""Each tutorial and recipe for CI works as its text describes, for a plain user in an empty folder.

One page needs a node with a kubelet, and is run by :mod:`tests.nodes.test_adopt`. The wheels are
built from the checkout. A stand-in for curl has the archive of kubebuilder's test environment,
because tests reach only registries of packages; its programs are our own build.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from tests.cluster.conftest import control_plane_programs
from tests.kit.pages import BLOCK, follow_page
from tests.unit.library.test_library import as_plain_user
from tools.check_wheels import DISTRIBUTIONS, ROOT, build
from tools.control_plane.plane import programs_of
from tools.env.debian import locked

PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
ON_A_NODE = "one-node"
WITHIN_S = 1200
Follow = Callable[[str, Mapping[str, str]], str]
"""Runs shell code with variables, in whose values $HOME is the folder; returns its output."""
MAX_WORDS = 500


@pytest.fixture(scope="session")
def of_all_workers(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The directory of a run of pytest, which its workers share."""
    own = tmp_path_factory.getbasetemp()
    return own if worker_id == "master" else own.parent


@pytest.fixture(scope="session")
def wheels(of_all_workers: Path) -> Path:
    """A directory with the wheels of the checkout."""
    place, complete = of_all_workers / "wheels", of_all_workers / "wheels.complete"
    with locked(of_all_workers):
        if not complete.exists():
            place.mkdir()
            for package in DISTRIBUTIONS:
                shutil.move(build(package, place), place)
            complete.touch()
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


@pytest.fixture(scope="session")
def pip_cache(of_all_workers: Path) -> Path:
    """The cache of pip: the pages install the same packages."""
    path = of_all_workers / "pip"
    path.mkdir(exist_ok=True)
    as_plain_user(path)
    return path


@pytest.fixture
def follow(wheels: Path, archive: Path, pip_cache: Path) -> Iterator[Follow]:
    """Runs shell code as a plain user in an empty folder, which must succeed."""
    folder = Path(tempfile.mkdtemp(prefix="tutorial-", dir="/tmp"))
    tools, home = folder / "tools", folder / "home"
    tools.mkdir()
    (tools / "curl").write_text(f"#!/bin/sh\ncat {archive}\n")
    (tools / "curl").chmod(0o755)
    (tools / "python3").symlink_to(sys.executable)
    home.mkdir()
    user = as_plain_user(home)
    folder.chmod(0o755)
    fixed = {
        "HOME": str(home),
        "PATH": f"{home}/venv/bin:{tools}:/usr/bin:/bin",
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
        "PIP_FIND_LINKS": f"{wheels} {os.environ.get('PIP_FIND_LINKS', '')}",
        "PIP_CACHE_DIR": str(pip_cache),
        "PIP_NO_COMPILE": "1",
    }

    def run(script: str, variables: Mapping[str, str]) -> str:
        done = subprocess.run(
            [*user, "bash", "-c", f"set -euo pipefail\n{script}"],
            cwd=home,
            env=fixed
            | {name: Template(value).substitute(HOME=home) for name, value in variables.items()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-8000:]
        return done.stdout

    yield run
    shutil.rmtree(folder)


@pytest.mark.timeout(WITHIN_S)
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.stem != ON_A_NODE], ids=lambda page: page.stem
)
def test_a_tutorial(page: Path, follow: Follow) -> None:
    follow_page(page.read_text(), lambda script: follow(script, {}))


SUITE = """
import os

def test_the_engine(cluster, namespace):
    assert cluster.engine == ("real" if "KUBEBUILDER_ASSETS" in os.environ else "embedded")
"""


def of_github(recipe: Any) -> tuple[Sequence[str], dict[str, str]]:
    """The steps of its job, each with what earlier ones have added to the environment."""
    steps = [step["run"] for step in recipe["jobs"]["test"]["steps"] if "run" in step]
    before = "set -a; [ ! -e $GITHUB_ENV ] || . $GITHUB_ENV; set +a\n"
    return [before + step for step in steps], {"GITHUB_ENV": "$HOME/env", "RUNNER_TEMP": "$HOME"}


def of_gitlab(recipe: Any) -> tuple[Sequence[str], dict[str, str]]:
    """The lines of its script, in one shell."""
    variables = recipe["test"]["variables"].items()
    own = {name: value.replace("CI_PROJECT_DIR", "HOME") for name, value in variables}
    return ["\n".join(recipe["test"]["script"])], own


RECIPES = {".github/workflows/test.yml": of_github, ".gitlab-ci.yml": of_gitlab}


INSTALLED = """
rm -r controller-tools
pip() { echo "pip $*"; }
pytest() { test -x "$KUBEBUILDER_ASSETS/etcd" && echo "pytest $*"; }
"""
"""Stand-ins for what the first recipe has run."""


@pytest.mark.timeout(WITHIN_S)
def test_the_recipes_for_ci(follow: Follow) -> None:
    """Their steps run in an environment as the service's, one recipe after the other.

    The second, which has the same commands, does not install and test again. The tests alone then
    have the other engine.
    """
    text = (ROOT / "docs" / "testing.md").read_text()
    recipes = {each[2]: yaml.safe_load(each[3]) for each in BLOCK.finditer(text) if each[2]}
    assert recipes.keys() == RECIPES.keys()
    follow(f"python3 -m venv venv\nprintf %s {shlex.quote(SUITE)} > test_suite.py", {})
    (first, variables), (second, more) = (RECIPES[each](recipes[each]) for each in RECIPES)
    assert first[0].endswith("pip install 'kubeletpy[pytest]'")
    assert "1 passed" in [follow(step, variables) for step in first][-1]
    stated = [follow(INSTALLED + step, more) for step in second]
    assert stated == ["pip install kubeletpy[pytest]\npytest \n"]
    assert "1 passed" in follow("pytest", {})


def test_tutorials_are_short() -> None:
    for page in PAGES:
        prose = BLOCK.sub("", page.read_text())
        assert len(prose.split()) <= MAX_WORDS
