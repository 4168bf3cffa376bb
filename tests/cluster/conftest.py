"""A control plane and a node of it, for all tests of a run.

``--programs DIR`` names built programs; without it those of ``--kubernetes`` are built, which takes
minutes the first time. Must be run as root.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.node import ClusterNode
from tools.control_plane.building import programs
from tools.control_plane.plane import ControlPlane
from tools.control_plane.releases import NEWEST, release
from tools.env import containerd
from tools.env.cri import RawRuntime


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which control plane."""
    group = parser.getgroup("control plane")
    group.addoption("--kubernetes", type=release, default=NEWEST, help="its release")
    group.addoption("--programs", default="", help="a directory with its programs")


@pytest.fixture(scope="session")
def short_dir() -> Iterator[Path]:
    """A directory with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="kpc-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def plane(short_dir: Path, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """etcd, the API server, the controllers and the scheduler, ready."""
    given = request.config.getoption("--programs")
    built = Path(given) if given else programs(request.config.getoption("--kubernetes"))
    made = ControlPlane(short_dir / "plane", built)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def node(short_dir: Path, plane: ControlPlane) -> Iterator[ClusterNode]:
    """A node of that control plane, Ready, on a containerd of its own."""
    runtime = containerd.Containerd(short_dir / "c", containerd.programs(2))
    runtime.start()
    try:
        runtime.import_images()
        made = ClusterNode(short_dir / "n", plane, runtime)
        try:
            made.start()
            yield made
        finally:
            made.stop()
            with RawRuntime(runtime.socket) as raw:
                raw.remove_all()
            made.remove()
    finally:
        runtime.remove()
