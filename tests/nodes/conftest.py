"""One virtual node for all tests of a process. It boots in half a minute.

A failing test leaves the node's console, its journal and the flight recorder's file in
``build/nodes/TEST``. Must be run as root.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.nodes.node import VirtualNode, clear
from tools.lab.image import CHECKOUT, build, default_recipe
from tools.lab.requests import GuestError
from tools.lab.uml import UserModeLinux

APPARMOR = ("apparmor=1", "security=apparmor")
"""Arguments of a kernel that is to have it."""
LEFT = CHECKOUT / "build" / "nodes"
_NODES = pytest.StashKey[list[VirtualNode]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many power cuts, and when."""
    group = parser.getgroup("virtual nodes")
    group.addoption("--cuts", type=int, default=3, help="number of power cuts (3)")
    group.addoption("--seed", type=int, default=0, help="of their moments (a fresh one)")


def pytest_configure(config: pytest.Config) -> None:
    """No node has booted yet."""
    config.stash[_NODES] = []


@pytest.fixture(scope="session")
def lab_directory() -> Iterator[Path]:
    """For disks and consoles."""
    with tempfile.TemporaryDirectory(prefix="kpn-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def virtual_nodes(pytestconfig: pytest.Config) -> list[VirtualNode]:
    """The nodes that a failing test asks for what they have to say."""
    return pytestconfig.stash[_NODES]


@pytest.fixture(scope="session")
def machine(lab_directory: Path) -> Iterator[UserModeLinux]:
    """A machine that has booted."""
    made = UserModeLinux(build(default_recipe()), lab_directory / "m", more=APPARMOR)
    made.boot()
    try:
        yield made
    finally:
        made.cut_power()


@pytest.fixture(scope="session")
def shared_node(
    machine: UserModeLinux, lab_directory: Path, virtual_nodes: list[VirtualNode]
) -> VirtualNode:
    """A node with everything installed; `configure` starts the agent."""
    node = VirtualNode(machine, lab_directory)
    virtual_nodes.append(node)
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
    """Let a failing test leave what its node has to say."""
    report = yield
    if report.failed:
        name = item.nodeid.rpartition("/")[2].replace("::", "-").replace("/", "-")
        nodes: list[VirtualNode] = item.config.stash[_NODES]
        for number, node in enumerate(nodes):
            directory = LEFT / name / (str(number) if number else "")
            clear(directory)
            try:
                node.leave(directory)
            except GuestError as error:
                (directory / "unreachable.log").write_text(f"{error}\n")
            report.sections.append(("virtual node", f"see {directory}"))
    return report
