"""Upstream end-to-end tests on the cluster: `--upstream REGEX` chooses them."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.nodes.cluster.cluster import Cluster
from tests.nodes.cluster.member import NODES, Member
from tools.conformance.images import needed, stand_ins
from tools.conformance.results import Outcome, outcomes
from tools.conformance.suite import Choice, run_ginkgo
from tools.control_plane.building import END_TO_END_TESTS, programs
from tools.control_plane.releases import NEWEST
from tools.env.images import write_archive
from tools.env.process import run
from tools.lab.image import CHECKOUT

REPORT = CHECKOUT / "build" / "nodes" / "upstream"


def test_upstream_tests_pass(
    cluster: Cluster, lab_directory: Path, pytestconfig: pytest.Config
) -> None:
    built = programs(NEWEST, END_TO_END_TESTS)
    pair = cluster.plane.authority.issue("images", "localhost", names=("localhost",))
    images = stand_ins(needed(run(built / "e2e.test", "--list-images")), built, *pair)
    archive = write_archive(lab_directory / "upstream.tar", *images)

    def load(member: Member) -> None:
        member.machine.copy_in(archive, "/tmp/upstream.tar")
        member.shell("ctr -n k8s.io images import /tmp/upstream.tar && rm /tmp/upstream.tar")

    with ThreadPoolExecutor() as together:
        list(together.map(load, cluster.members))
    shutil.rmtree(REPORT, ignore_errors=True)
    REPORT.mkdir(parents=True)
    choice = Choice(pytestconfig.getoption("--upstream"), skip="^$", at_once=NODES)
    run_ginkgo(built, cluster.plane, choice, REPORT, NODES)
    found: dict[str, Outcome] = {}
    for file in REPORT.glob("*junit*.xml"):
        found |= outcomes(file.read_text())
    ran = {name: each for name, each in found.items() if each is not Outcome.SKIPPED}
    print(*(f"{each.name} {name}" for name, each in sorted(ran.items())), sep="\n")
    assert set(ran.values()) == {Outcome.PASSED}
