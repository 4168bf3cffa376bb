"""One virtual node for all tests of a process. It boots in half a minute, under QEMU in minutes.

``--cluster`` runs the tests of a cluster of three such nodes instead.

Tests with the marker ``machine("qemu")`` need what only that kind has; they are collected with
``--machine qemu`` alone. The node's file system has a journal, as any must that loses its power.
Tests that switch it off come last, because one that fails may leave it off. A failing test leaves
the node's console, its journal and the flight recorder's file in ``build/nodes/TEST``. Must be run
as root.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.nodes.guest import HasEvidence
from tests.nodes.node import VirtualNode, clear
from tools.env.process import CommandError, run
from tools.lab.image import CHECKOUT, build, default_recipe
from tools.lab.kinds import KINDS, UML, architecture_of, make_machine
from tools.lab.machine import Machine
from tools.lab.recipe import CRUN, NEWEST_STABLE, RUNC, SUITES
from tools.lab.requests import GuestError

APPARMOR = ("apparmor=1", "security=apparmor")
"""Kernel arguments that enable it."""
OF_CLUSTERS = "bookworm"
"""The Debian on which clusters have been tested."""
FIRST = ("test_kubeadm",)
"""Tests whose own machines are off before others boot."""
LAST = ("test_boot", "test_reboot", "test_power", "test_node_loss")
LEFT = CHECKOUT / "build" / "nodes"
_EVIDENCE = pytest.StashKey[list[HasEvidence]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that choose nodes and tests."""
    group = parser.getgroup("virtual nodes")
    group.addoption(
        "--suite",
        choices=SUITES,
        default="",
        help=f"Debian of the nodes ({NEWEST_STABLE}; {OF_CLUSTERS} of a cluster)",
    )
    group.addoption("--cluster", action="store_true", help="run the tests of a cluster instead")
    group.addoption("--upstream", default="", help="upstream tests to run on the cluster, too")
    group.addoption("--machine", choices=KINDS, default=UML, help="what runs the nodes (uml)")
    group.addoption("--kernel", choices=SUITES, default="", help="the Debian of its kernel")
    group.addoption("--oci", choices=(RUNC, CRUN), default=RUNC, help="OCI runtime (runc)")
    group.addoption("--cuts", type=int, default=3, help="number of power cuts (3)")
    group.addoption("--reboots", type=int, default=3, help="number of shutdowns (3)")
    agents = ("kubeletpy", "kubelet")
    group.addoption("--agent", choices=agents, default=agents[0], help="what is shut down")
    group.addoption("--boots", type=int, default=4, help="boots without an API server (4)")
    group.addoption("--seed", type=int, default=0, help="seed for their times (random)")


def pytest_configure(config: pytest.Config) -> None:
    """No node has booted yet."""
    if not config.option.suite:
        config.option.suite = OF_CLUSTERS if config.option.cluster else NEWEST_STABLE
    config.addinivalue_line("markers", "long: not in a run of all sections (-m 'not long')")
    config.addinivalue_line("markers", "machine(kind): only on nodes of that kind (--machine)")
    config.addinivalue_line("markers", "suite(*names): only on nodes of these Debians (--suite)")
    config.stash[_EVIDENCE] = []


@pytest.fixture(scope="session")
def lab_directory() -> Iterator[Path]:
    """Directory for disks and consoles."""
    with tempfile.TemporaryDirectory(prefix="kpn-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def evidence(pytestconfig: pytest.Config) -> list[HasEvidence]:
    """The nodes whose evidence a failing test collects."""
    return pytestconfig.stash[_EVIDENCE]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The tests of a cluster are collected with --cluster, and the others without."""
    chosen: bool = config.getoption("--cluster")
    if collection_path.is_dir():
        return True if collection_path.name == "cluster" and not chosen else None
    return True if chosen and collection_path.parent.name != "cluster" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests of other machines and suites, and put those of FIRST and LAST there."""
    chosen = {name: config.getoption(f"--{name}") for name in ("machine", "suite")}
    others = [
        item
        for item in items
        if any(
            value not in each.args
            for name, value in chosen.items()
            for each in item.iter_markers(name)
        )
    ]
    config.hook.pytest_deselected(items=others)
    kept = [item for item in items if item not in others]
    items[:] = sorted(kept, key=lambda item: _turn(Path(item.path).stem))


def _turn(module: str) -> int:
    return int(module in LAST) - int(module in FIRST)


@pytest.fixture(scope="session")
def suite(pytestconfig: pytest.Config) -> str:
    """The Debian of the nodes."""
    return str(pytestconfig.getoption("--suite"))


@pytest.fixture(scope="session")
def journaled_disk(lab_directory: Path, suite: str, pytestconfig: pytest.Config) -> Path:
    """A disk of machines that lose their power."""
    disk = lab_directory / "journaled.img"
    architecture = architecture_of(str(pytestconfig.getoption("--machine")))
    # the image's own file must stay as it is: other machines have overlays of it
    run("cp", "--sparse=always", build(default_recipe(suite, architecture)), disk)
    run("tune2fs", "-O", "has_journal", disk)
    return disk


@pytest.fixture(scope="session")
def machine(
    lab_directory: Path, journaled_disk: Path, suite: str, pytestconfig: pytest.Config
) -> Iterator[Machine]:
    """A machine that has booted, with a journal on its disk."""
    kind = str(pytestconfig.getoption("--machine"))
    kernel = str(pytestconfig.getoption("--kernel"))
    directory = lab_directory / "m"
    made = make_machine(kind, suite, journaled_disk, directory, more=APPARMOR, kernel=kernel)
    made.boot()
    try:
        yield made
    finally:
        made.cut_power()


@pytest.fixture(scope="session")
def shared_node(
    machine: Machine,
    lab_directory: Path,
    evidence: list[HasEvidence],
    pytestconfig: pytest.Config,
    record_testsuite_property: Callable[[str, object], None],
) -> VirtualNode:
    """A node with everything installed; `configure` starts the agent."""
    suite, oci = (str(pytestconfig.getoption(option)) for option in ("--suite", "--oci"))
    node = VirtualNode(machine, lab_directory, suite, oci)
    for program, version in node.versions.items():
        record_testsuite_property(program, version)
    evidence.append(node)
    node.install()
    return node


@pytest.fixture
def node(shared_node: VirtualNode) -> Iterator[VirtualNode]:
    """A node without pods, before and after."""
    yield shared_node
    shared_node.remove_pods()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Copy the evidence of the nodes of a failing test."""
    report = yield
    if report.failed:
        name = item.nodeid.rpartition("/")[2].replace("::", "-").replace("/", "-")
        nodes = item.config.stash[_EVIDENCE]
        for number, node in enumerate(nodes):
            directory = LEFT / name / (str(number) if number else "")
            clear(directory)
            try:
                node.leave(directory)
            except (GuestError, CommandError) as error:
                (directory / "unreachable.log").write_text(f"{error}\n")
            report.sections.append(("virtual node", f"see {directory}"))
    return report
