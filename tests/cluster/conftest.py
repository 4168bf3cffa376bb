"""A control plane and a node of it, for all tests of a run.

``--programs DIR`` names built programs; without it those of ``--kubernetes`` are built, which takes
minutes the first time. ``--upgrade-from RELEASE`` adds a test that upgrades a control plane of that
release, whose programs are built, too. ``--agent-from COMMIT`` and ``--agent-pods NUMBER`` are for
the test that upgrades the agent: by default from the last release, with few pods. ``--switches
NUMBER`` adds a test that hands a node between a Go kubelet, which is built, and the agent, with
``--switch-pods NUMBER``. Must be run as root.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.node import ClusterNode, own_runtime
from tests.integration.node import agent
from tools.control_plane.building import KUBELET, programs
from tools.control_plane.plane import ControlPlane
from tools.control_plane.releases import NEWEST, release
from tools.env.cri import RawRuntime
from tools.env.debian import cache_dir


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that choose the control plane."""
    group = parser.getgroup("control plane")
    group.addoption(
        "--kubernetes", type=release, default=NEWEST, help="release of the control plane"
    )
    group.addoption("--programs", default="", help="directory of its programs")
    upgraded = "release from which a control plane is upgraded to --kubernetes"
    group.addoption("--upgrade-from", type=release, help=upgraded)
    group.addoption("--agent-from", default="", help="commit whose agent is upgraded")
    group.addoption("--agent-pods", type=int, default=5, help="pods of its test")
    group.addoption("--switches", type=int, default=0, help="switches to and from a Go kubelet")
    group.addoption("--switch-pods", type=int, default=4, help="rich pods of its test")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The test of an upgrade is collected when the older release is named, that of a Go kubelet
    where one is built, which only conformance runs do."""
    if collection_path.name == "test_upgrade.py" and not config.getoption("--upgrade-from"):
        return True
    with_kubelet = (
        "test_preflight.py",
        "test_switches.py",
        "test_control_plane_pods.py",
        "test_endpoints.py",
    )
    if collection_path.name in with_kubelet and not kubelet_program(config).exists():
        return True if not config.getoption("--switches") else None
    return None


def kubelet_program(config: pytest.Config) -> Path:
    """The Go kubelet of the release, which may not be built."""
    supplied = config.getoption("--programs")
    built = cache_dir() / "control-plane" / config.getoption("--kubernetes")
    return (Path(supplied) if supplied else built) / "kubelet"


def built_kubelet(config: pytest.Config) -> Path:
    """The Go kubelet of the release, built if it is not there."""
    program = kubelet_program(config)
    if not program.exists() and not config.getoption("--programs"):
        programs(config.getoption("--kubernetes"), KUBELET)
    return program


def control_plane_programs(config: pytest.Config) -> Path:
    """The programs of the control plane under test."""
    supplied = config.getoption("--programs")
    return Path(supplied) if supplied else programs(config.getoption("--kubernetes"))


@pytest.fixture(scope="session")
def short_dir() -> Iterator[Path]:
    """A directory with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="kpc-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def plane(short_dir: Path, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """etcd, the API server, the controllers and the scheduler, ready."""
    made = ControlPlane(short_dir / "plane", control_plane_programs(request.config))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def node(short_dir: Path, plane: ControlPlane) -> Iterator[ClusterNode]:
    """A node of that control plane, Ready, on a containerd of its own."""
    with node_of(short_dir / "n", plane) as made:
        yield made


@contextmanager
def node_of(
    directory: Path,
    plane: ControlPlane,
    command: Sequence[str] = agent.COMMAND,
    name: str = "cluster-node",
) -> Iterator[ClusterNode]:
    """A node on a containerd of its own; ``command`` starts the agent."""
    with own_runtime(directory) as runtime:
        made = ClusterNode(directory / "n", plane, runtime, name)
        try:
            made.start(command)
            yield made
        finally:
            made.stop()
            with RawRuntime(runtime.socket) as raw:
                raw.remove_all()
            made.remove()
