"""Environment of integration tests: real containerds, kubectls, registries, Prometheus.

``--runtime unix:///PATH`` puts another CRI runtime where the containerds are. Its abilities are
probed (:mod:`tools.env.abilities`). A test that needs more (``@pytest.mark.needs("…")``) isn't
run: the end of the report names it with what is missing. So it is with ``--lacking NAMES``: what
the machine lacks of :mod:`tools.env.machine_abilities`.

Session fixtures start each thing once per test process, also under xdist: all of it can exist
several times side by side. Function fixtures hand it out clean and take back what a test left.
A machine that cannot run them fails the tests: nothing is skipped.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.node.fixtures import make_node, namespace, node, node2, node16
from tools.env import debian, machine_abilities
from tools.env.containerd import Containerd, programs
from tools.env.cri import RawRuntime
from tools.env.given import GivenRuntime
from tools.env.kubectl import Kubectl, kubectl
from tools.env.no_skips import LACKS
from tools.env.prometheus import Prometheus
from tools.env.registry import Registry
from tools.env.runc import current_runc
from tools.env.sweep import remove_cgroup, unmount

__all__ = ["make_node", "namespace", "node", "node2", "node16"]

NEEDED = (
    "runc",
    "containerd",
    "containernetworking-plugins",
    "iptables",
    "busybox-static",
    "stress-ng",
    "docker-registry",
    "skopeo",
    "apache2-utils",
    "prometheus",
    "dbus",
)

_GIVEN = pytest.StashKey[GivenRuntime]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The runtime that somebody else runs."""
    group = parser.getgroup("runtime")
    group.addoption(
        "--runtime", default="", help="unix:///PATH of a CRI runtime for the tests alone"
    )
    group.addoption(
        "--load-images",
        default="",
        metavar="COMMAND",
        help="a shell command that loads $IMAGE of the OCI archive $ARCHIVE into that runtime",
    )
    group.addoption(
        "--lacking",
        default="",
        metavar="NAMES",
        help=f"what the machine may lack, with commas: {', '.join(machine_abilities.FOUND)}",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Markers."""
    config.addinivalue_line(
        "markers", "needs(*abilities): what a runtime or a machine must have for this test"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test whose needs the runtime or the machine can't meet is named, with what is missing."""
    needs = [need for marker in item.iter_markers("needs") for need in marker.args]
    supplied = _supplied(item.config)
    machine = [need for need in needs if need in machine_abilities.FOUND]
    of_runtime = [need for need in needs if need not in machine]
    missing = (
        []
        if supplied is None
        else [need for need in of_runtime if not supplied.abilities.get(need)]
    )
    admitted = item.config.getoption("--lacking").split(",")
    lacking = [need for need in machine if need in admitted and not machine_abilities.FOUND[need]()]
    for who, what in (("the runtime", missing), ("the machine", lacking)):
        if what:
            reason = f"{who} lacks {', '.join(what)}"
            item.user_properties.append((LACKS, reason))
            pytest.skip(reason)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with the longest tests first, by the time they are given, then those with most tests.

    Files are handed out one by one (``--dist loadfile --no-loadscope-reorder``). A file that takes
    minutes must not be the last one, with nothing left for the other worker. The order of xdist, by
    the number of tests alone, puts just these last.
    """
    if config.getoption("--runtime"):
        _once(config, items)
    files: dict[Path, tuple[float, int]] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        longest, count = files.get(item.path, (0.0, 0))
        supplied = float(marker.args[0]) if marker is not None else 0.0
        files[item.path] = (max(longest, supplied), count + 1)
    items.sort(key=lambda item: files[item.path], reverse=True)  # stable: tests keep their order


def _once(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test of both containerds runs once on a given runtime, in place of the 2.x one."""
    names = {"node16", "containerd16", "session_containerd16"}
    old = [item for item in items if names & set(_values(item))]
    config.hook.pytest_deselected(items=old)
    items[:] = [item for item in items if item not in old]


def _values(item: pytest.Item) -> list[str]:
    """The values of a test's parameters that are names."""
    spec = getattr(item, "callspec", None)
    return [] if spec is None else [each for each in spec.params.values() if isinstance(each, str)]


@pytest.fixture(scope="session", autouse=True)
def machine() -> None:
    """Fail at once, with what to do, where these tests cannot run."""
    if os.geteuid() != 0:
        pytest.exit("integration tests start containers: run them as root", returncode=3)
    missing = debian.missing(NEEDED)
    if missing:
        pytest.exit(f"integration tests need packages: apt-get install {' '.join(missing)}", 3)


@pytest.fixture(scope="session")
def session_dir() -> Iterator[Path]:
    """A directory of this test process, with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="kpt-", dir="/tmp"))
    path.chmod(0o711)  # a container's root in a user namespace is nobody here
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def work_dir() -> Iterator[Path]:
    """An empty directory for one test, with a path short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="kpw-", dir="/tmp"))
    yield path
    unmount(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def cgroup_root() -> Iterator[str]:
    """A cgroup of this test's own ("/kpt-…"), for `cgroupRoot`; removed after the test's pods."""
    name = f"/kpt-{os.getpid()}-{os.urandom(3).hex()}"
    yield name
    assert remove_cgroup(name, kill=True) == []


@pytest.fixture(scope="session")
def session_containerd16(session_dir: Path, request: pytest.FixtureRequest) -> Iterator[Containerd]:
    """The containerd 1.x that lives as long as the test process; tests use `containerd16`."""
    yield from _session(request, session_dir / "c1", 1)


@pytest.fixture(scope="session")
def session_containerd2(session_dir: Path, request: pytest.FixtureRequest) -> Iterator[Containerd]:
    """The containerd 2.x that lives as long as the test process; tests use `containerd2`."""
    yield from _session(request, session_dir / "c2", 2)


@pytest.fixture(scope="session")
def session_containerd2_idmap(
    session_dir: Path, request: pytest.FixtureRequest
) -> Iterator[Containerd]:
    """A containerd 2.x with a runc that mounts with mapped ids, for user namespaces."""
    yield from _session(request, session_dir / "c2i", 2, current_runc)


@pytest.fixture
def containerd16(cgroup_root: str, session_containerd16: Containerd) -> Iterator[Containerd]:
    """A containerd 1.x without pods, with the pause and busybox images."""
    yield session_containerd16
    _take_back(session_containerd16)


@pytest.fixture
def containerd2(cgroup_root: str, session_containerd2: Containerd) -> Iterator[Containerd]:
    """A containerd 2.x without pods, with the pause and busybox images."""
    yield session_containerd2
    _take_back(session_containerd2)


@pytest.fixture(params=["containerd16", "containerd2"])
def containerd(request: pytest.FixtureRequest) -> Containerd:
    """Each of the two containerds in turn."""
    instance: Containerd = request.getfixturevalue(request.param)
    return instance


@pytest.fixture(scope="session")
def kubectl_versions() -> dict[str, Kubectl]:
    """kubectl at both ends of the supported range: "old" (v1.20) and "new" (v1.36)."""
    return {name: kubectl(name) for name in ("old", "new")}


@pytest.fixture(scope="session")
def registry(session_dir: Path) -> Iterator[Registry]:
    """A registry that requires `user` and `password`; pulls need `Containerd.trust(server)`."""
    instance = Registry(session_dir / "registry", authenticated=True)
    instance.start()
    yield instance
    instance.remove()


@pytest.fixture
def prometheus(work_dir: Path) -> Iterator[Callable[[str], Prometheus]]:
    """Call it with "127.0.0.1:PORT": a Prometheus that scrapes that address each second."""
    started: list[Prometheus] = []

    def start(target: str) -> Prometheus:
        instance = Prometheus(work_dir / f"prometheus{len(started)}", target)
        started.append(instance)
        instance.start()
        return instance

    yield start
    for instance in started:
        instance.remove()


def _supplied(config: pytest.Config) -> GivenRuntime | None:
    """The runtime of ``--runtime``, the same for all tests of this process."""
    endpoint = config.getoption("--runtime")
    if not endpoint:
        return None
    found = config.stash.get(_GIVEN, None)
    if found is None:
        directory = Path(tempfile.mkdtemp(prefix="kpg-", dir="/tmp"))
        config.add_cleanup(partial(shutil.rmtree, directory, ignore_errors=True))
        found = GivenRuntime(endpoint, directory, config.getoption("--load-images"))
        found.import_images()
        print(
            f"\n{endpoint} has: {', '.join(name for name, has in found.abilities.items() if has)}"
        )
        config.stash[_GIVEN] = found
    return found


def _session(
    request: pytest.FixtureRequest,
    directory: Path,
    generation: int,
    runc: Callable[[], Path] | None = None,
) -> Iterator[Containerd]:
    supplied = _supplied(request.config)
    if supplied is not None:
        yield supplied
        supplied.remove()
        return
    instance = Containerd(directory, programs(generation), runc() if runc is not None else None)
    instance.start()
    instance.import_images()
    yield instance
    assert instance.remove() == []


def _take_back(instance: Containerd) -> None:
    """Bring a containerd back to life if a test killed or stopped it, and remove its pods."""
    instance.resume()
    instance.start()
    with RawRuntime(instance.socket) as raw:
        raw.remove_all()
