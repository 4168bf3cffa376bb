"""One cluster for all tests; each test has a namespace of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.nodes.cluster.cluster import Cluster, Namespace, running_cluster
from tests.nodes.guest import HasEvidence


@pytest.fixture(scope="session")
def cluster(
    lab_directory: Path,
    journaled_disk: Path,
    suite: str,
    evidence: list[HasEvidence],
    record_testsuite_property: Callable[[str, object], None],
) -> Iterator[Cluster]:
    """A cluster with three Ready nodes."""
    with running_cluster(lab_directory / "c", journaled_disk, suite) as made:
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
