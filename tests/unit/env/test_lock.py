"""The lock files of a checkout's packages agree with pyproject.toml."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.lock import CHECKOUT, LOCKS, Lock, build_requirements, constraints, path, pins

TEXT = """# comment
h2==4.2.0 \\
    --hash=sha256:00
Some_Name==1.0 ; python_full_version < '3.11.5' \\
    --hash=sha256:01 \\
    --hash=sha256:02
some-name==2.0b1 ; python_full_version >= '3.11.5' \\
    --hash=sha256:03
"""


def test_pins_are_read_by_canonical_name() -> None:
    assert pins(TEXT) == {"h2": {"4.2.0"}, "some-name": {"1.0", "2.0b1"}}


def test_constraints_have_no_hashes() -> None:
    assert constraints(TEXT).splitlines() == [
        "h2==4.2.0",
        "Some_Name==1.0 ; python_full_version < '3.11.5'",
        "some-name==2.0b1 ; python_full_version >= '3.11.5'",
    ]


def direct(extras: tuple[str, ...]) -> list[Requirement]:
    """Requirements in pyproject.toml with the extras, including extras that they name."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    found = [Requirement(text) for text in project["dependencies"]]
    for extra in extras:
        for requirement in map(Requirement, project["optional-dependencies"][extra]):
            if requirement.name == "kubeletpy":
                found += direct(tuple(sorted(requirement.extras)))
            else:
                found.append(requirement)
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_covers_what_is_required(lock: Lock) -> None:
    text = path(lock.name).read_text()
    found = pins(text)
    desired = [*direct(lock.extras), *map(Requirement, build_requirements())]
    assert len(desired) > 12
    for requirement in desired:
        for version in found[canonicalize_name(requirement.name)]:
            assert version in requirement.specifier, requirement
    blocks = re.split(r"^(?=[A-Za-z])", text, flags=re.MULTILINE)[1:]
    assert [block for block in blocks if "--hash=sha256:" not in block] == []


def test_users_get_the_versions_that_were_tested() -> None:
    dev = pins(path("dev").read_text())
    run = pins(path("run").read_text())
    assert run == {name: dev[name] for name in run}


def test_lower_bounds_are_tested_versions() -> None:
    lowest = pins(path("lowest").read_text())
    for requirement in (*direct(("test",)), *map(Requirement, build_requirements())):
        (bound,) = (each.version for each in requirement.specifier if each.operator == ">=")
        (version,) = lowest[canonicalize_name(requirement.name)]
        assert f"{version}.".startswith(f"{bound}."), requirement
