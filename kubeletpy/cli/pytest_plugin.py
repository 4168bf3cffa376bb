"""The pytest plugin: a cluster for each test session, and a namespace for each test.

Loaded by each pytest where kubeletpy is installed, so that it imports nothing of the agent before a
test uses a fixture: it is apart from kubeletpy.library for that.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kubeletpy.library.cluster import Cluster

_OPTIONS = {
    "cluster_engine": "auto, real (programs of a control plane) or embedded",
    "cluster_nodes": "the names of the cluster's nodes",
    "cluster_assets": "the directory of etcd, kube-apiserver and the other programs",
}
_SHARED = "workers of pytest-xdist share one control plane of the engine 'real'"
_LIFELINE = "kubeletpy_lifeline"
_listener = pytest.StashKey[socket.socket]()
_ENDS_S = 30.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, on the command line and in the configuration file."""
    group = parser.getgroup("kubeletpy")
    defaults = {"cluster_engine": "auto", "cluster_nodes": "node-1", "cluster_assets": ""}
    for name, text in _OPTIONS.items():
        group.addoption(f"--{name.replace('_', '-')}", default=None, help=text)
        parser.addini(name, text, default=defaults[name])
    group.addoption("--cluster-shared", action="store_true", help=_SHARED)
    parser.addini("cluster_shared", _SHARED, type="bool", default=False)


def _option(config: pytest.Config, name: str) -> str:
    return str(config.getoption(name) or config.getini(name))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass a worker of pytest-xdist the name of the socket with which a shared cluster ends."""
    config: pytest.Config = node.config
    if config.getoption("cluster_shared") or config.getini("cluster_shared"):
        if _listener not in config.stash:
            listener = config.stash[_listener] = socket.socket(socket.AF_UNIX)
            listener.bind(f"\0kubeletpy-{secrets.token_hex(8)}")
            listener.listen()
        name = config.stash[_listener].getsockname()
        node.workerinput[_LIFELINE] = name.decode().removeprefix("\0")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the shared cluster after all workers, and wait until its processes have ended."""
    if (listener := config.stash.get(_listener, None)) is None:
        return
    listener.setblocking(False)
    with listener, contextlib.suppress(BlockingIOError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(_ENDS_S)
                connection.sendall(b"stopped\n")
                connection.recv(1)


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A running cluster; one for each worker of pytest-xdist, which may share a control plane."""
    from kubeletpy.library import ConfigError, LaunchError
    from kubeletpy.library.cluster import Cluster, ClusterError, Sharing
    from kubeletpy.library.control_plane import ControlPlaneError, named_programs

    config = request.config
    assets, engine = _option(config, "cluster_assets"), _option(config, "cluster_engine")
    names = _option(config, "cluster_nodes").replace(",", " ").split()
    directory, sharing, why = tmp_path_factory.mktemp("cluster"), None, ""
    worker = getattr(config, "workerinput", {})
    if _LIFELINE in worker:
        sharing = Sharing(directory.parent.parent, worker[_LIFELINE], worker["workerid"])
    try:
        programs = named_programs("cluster_assets", Path(assets)) if assets else None
        running = Cluster(directory, engine=engine, nodes=names, programs=programs, sharing=sharing)
        running.start()
    except (ClusterError, ConfigError, ControlPlaneError, LaunchError) as error:
        why = str(error)
    if why:  # outside of the handler, so that the sentence is shown once
        pytest.fail(f"the cluster does not start: {why}", pytrace=False)
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def kubeconfig(cluster: Cluster) -> Iterator[Path]:
    """The path of an administrator's kubeconfig, which is in KUBECONFIG as well."""
    path, constant = str(cluster.kubeconfig), "KUBE_CONFIG_DEFAULT_LOCATION"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", path)
        for name, module in list(sys.modules.items()):
            if name.startswith("kubernetes") and constant in vars(module):
                patch.setattr(module, constant, path)  # clients read the variable on import
        yield cluster.kubeconfig


@pytest.fixture
def namespace(cluster: Cluster, kubeconfig: Path) -> Iterator[str]:
    """The name of a fresh namespace."""
    with cluster.namespace() as name:
        yield name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    """Add the pods and events of a failed test's namespace to its report."""
    report = yield
    supplied = getattr(item, "funcargs", {})
    if report.failed and call.when == "call" and {"cluster", "namespace"} <= set(supplied):
        running, name = supplied["cluster"], supplied["namespace"]
        lines = list(running.lacks)
        error = call.excinfo.value if call.excinfo is not None else None
        if getattr(error, "namespace", None) != name:  # its own text has the report otherwise
            lines.append(running.report(name))
        report.sections.append((f"namespace {name} ({running.engine})", "\n".join(lines)))
    return report
