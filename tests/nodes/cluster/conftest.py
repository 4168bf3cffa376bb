"""One cluster for all tests; each test has a namespace of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.nodes.cluster.cluster import Cluster, Namespace, running_cluster
from tests.nodes.guest import HasEvidence
from tools.control_plane.building import END_TO_END_TESTS, programs
from tools.control_plane.releases import NEWEST


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Upstream tests are collected when some are named."""
    named = config.getoption("--upstream") or collection_path.name != "test_upstream.py"
    return None if named else True


@pytest.fixture(scope="session")
def cluster(
    lab_directory: Path,
    journaled_disk: Path,
    evidence: list[HasEvidence],
    pytestconfig: pytest.Config,
    record_testsuite_property: Callable[[str, object], None],
) -> Iterator[Cluster]:
    """A cluster with three Ready nodes."""
    if pytestconfig.getoption("--upstream"):  # the cluster's network has no way to their source
        programs(NEWEST, END_TO_END_TESTS)
    suite, kernel = (str(pytestconfig.getoption(option)) for option in ("--suite", "--kernel"))
    with running_cluster(lab_directory / "c", journaled_disk, suite, kernel) as made:
        for program, version in made.members[0].versions.items():
            record_testsuite_property(program, version)
        evidence += [made, *made.members]
        yield made


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace that is empty, and removed with everything in it afterwards."""
    name = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:40].strip("-")
    made = cluster.new_namespace(name)
    yield made
    made.remove()
