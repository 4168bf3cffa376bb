"""Clusters for tests that can't start, are interrupted, or whose program is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from kubeletpy.agent.launch import embed
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.library import LaunchError
from kubeletpy.library import cluster as cluster_module
from kubeletpy.library.cluster import Cluster, ClusterError, Sharing
from kubeletpy.library.control_plane import Child, Guard
from kubeletpy.node.machine import read_machine_facts
from kubeletpy.resources.admission.user_namespace import UserNamespace
from tests.unit.library.test_library import as_plain_user

WITHIN_S = 300.0


def run(
    directory: Path,
    suite: str,
    *options: str,
    variables: Mapping[str, str | None] = {},
    user: bool = False,
) -> str:
    """The output of a suite that uses the fixtures; None removes a variable."""
    with started(directory, suite, *options, variables=variables, user=user) as process:
        return process.communicate(timeout=WITHIN_S)[0]


@contextmanager
def started(
    directory: Path,
    suite: str,
    *options: str,
    variables: Mapping[str, str | None] = {},
    user: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """A run of a suite, which is killed at the end."""
    (directory / "test_suite.py").write_text(suite)
    env: dict[str, str | None] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    env |= {"KUBEBUILDER_ASSETS": None, "COLUMNS": "200", "TEST_RUN": str(directory), **variables}
    # the fixtures may be installed here, or not
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    plugins = ("-p", "kubeletpy.cli.pytest_plugin", "-p", "xdist", "-p", "no:cacheprovider")
    process = subprocess.Popen(
        [
            *(as_plain_user(directory) if user else ()),
            *(sys.executable, "-m", "pytest", "-c/dev/null", f"--rootdir={directory}"),
            *(*plugins, f"--basetemp={directory}/tmp", "-q", *options, "test_suite.py"),
        ],
        cwd=directory,
        env={name: value for name, value in env.items() if value is not None},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def until(holds: Callable[[], object]) -> None:
    """Poll what nobody notifies: the end of processes that are not ours."""
    ends = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


def processes(text: str) -> list[int]:
    """The processes whose command line or environment has a text."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parts = [(each / name).read_bytes() for name in ("cmdline", "environ")]
        except OSError:  # it has ended, or is another user's
            continue
        if any(text.encode() in part for part in parts):
            found.append(int(each.name))
    return found


EMPTY = "def test_starts(cluster, namespace): pass\ndef test_again(cluster): pass\n"


def programs(directory: Path, **texts: str) -> Path:
    """A directory of programs."""
    for name, text in texts.items():
        path = directory / name.replace("_", "-")
        path.write_text(text)
        path.chmod(0o755)
    return directory


SCRIPT = "#!/bin/sh\necho cannot work >&2\nexit 3\n"
OTHER_MACHINE = "\x7fELF\x02\x01\x01" + 9 * "\0" + "\x02\0\xff\x7f"


@pytest.mark.parametrize(
    ("etcd", "messages"),
    [
        ("", ("KUBEBUILDER_ASSETS: ", "lacks kube-apiserver", "setup-envtest use -p path")),
        (OTHER_MACHINE, ("etcd can't be run: Exec format error (this machine is ",)),
        (SCRIPT, ("etcd has ended with exit code 3; the end of ", "etcd.log:\ncannot work\n")),
    ],
    ids=["missing", "of another machine", "exits"],
)
def test_programs_that_do_not_work(tmp_path: Path, etcd: str, messages: tuple[str, ...]) -> None:
    """Each test that needs the cluster shows the reason, without a traceback of ours."""
    others = {"kube_apiserver": SCRIPT} if etcd else {}
    assets = str(programs(tmp_path, etcd=etcd, **others))
    output = run(tmp_path, EMPTY, variables={"KUBEBUILDER_ASSETS": assets})
    for each in messages:
        assert each in output, output
    assert "2 errors" in output
    assert "another exception" not in output
    assert "cluster.py" not in output
    assert len(output.splitlines()) < 30


@pytest.mark.parametrize("engine", ["embedded", "auto"])
def test_sharing_needs_the_real_engine(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "find_programs", lambda *_: None)
    with pytest.raises(ClusterError, match="can't be shared: leave out --cluster-shared"):
        Cluster(tmp_path, engine=engine, sharing=Sharing(tmp_path, "lifeline", "gw0"))


def test_a_port_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program has taken a node's port since it was chosen."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(embed, "free_port", lambda address: port)
        cluster = Cluster(tmp_path / "c", engine="embedded")
        with pytest.raises(LaunchError, match=rf"{port}.*[Aa]ddress already in use"):
            cluster.start()


@pytest.mark.parametrize(
    "variables", [{"HOME": None}, {"HOME": "/proc"}], ids=["none", "read-only"]
)
def test_no_home(tmp_path: Path, variables: Mapping[str, str | None]) -> None:
    output = run(tmp_path, EMPTY, variables=variables, user=True)
    assert "2 passed" in output, output


def test_pods_run_in_a_user_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has one user, who is not root: the runtime of the program does not care."""
    rights = UserNamespace(((1000, 1),), ((1000, 1),), owns_network=False)
    facts = replace(read_machine_facts(tmp_path), rights=rights)
    monkeypatch.setattr(embed, "read_machine_facts", lambda root: facts)
    with Cluster(tmp_path / "c", engine="embedded") as cluster, cluster.namespace() as namespace:
        loaded = client.Configuration()
        load: Any = config.load_kube_config
        load(str(cluster.kubeconfig), client_configuration=loaded)
        core: Any = client.CoreV1Api(client.ApiClient(loaded))
        spec = {"containers": [{"name": "c", "image": "idle", "ports": [{"containerPort": 80}]}]}
        core.create_namespaced_pod(namespace, {"metadata": {"name": "p"}, "spec": spec})

        def runs(pod: JSON) -> bool:
            return bool(pod.get("status", {}).get("phase") == "Running")

        cluster.wait("v1/pods", "p", namespace, until=runs)


RUNS = """
import pathlib, time
from kubernetes import client, config

PAUSE = 1000

def test_waits(cluster, kubeconfig, namespace, request):
    cluster.image("shell", ("sh", "-c"))
    config.load_kube_config(str(kubeconfig))
    volumes = [{"name": "m", "emptyDir": {"medium": "Memory"}}]
    mounts = [{"name": "m", "mountPath": "/m"}]
    container = {"name": "c", "image": "shell", "args": ["sleep 1000 & setsid sleep 1000 & wait"]}
    spec = {"containers": [{**container, "volumeMounts": mounts}], "volumes": volumes}
    core = client.CoreV1Api()
    core.create_namespaced_pod(namespace, {"metadata": {"name": "p"}, "spec": spec})
    runs = lambda pod: pod.get("status", {}).get("phase") == "Running"
    cluster.wait("v1/pods", "p", namespace, until=runs)
    pathlib.Path(request.config.rootpath, "running").touch()
    time.sleep(PAUSE)
"""


def mounted_below(directory: Path) -> bool:
    return f" {directory}/" in Path("/proc/self/mounts").read_text()


def remains(directory: Path) -> list[object]:
    """The remains of a run: processes, data and mounts."""
    mounts = Path("/proc/self/mounts").read_text()
    mounted = [line for line in mounts.splitlines() if f" {directory}/" in line]
    data = (*directory.glob("tmp/cluster?"), *directory.glob("tmp/*/cluster?"))
    return [*processes(str(directory)), *data, *mounted]


@contextmanager
def running(
    directory: Path, *options: str, user: bool = False, suite: str = RUNS
) -> Iterator[subprocess.Popen[str]]:
    """A run whose container has processes, one of them in a session of its own."""
    if not any(each.startswith("--cluster-assets") for each in options):
        options = ("--cluster-engine=embedded", *options)
    with started(directory, suite, *options, user=user) as process:
        until(lambda: (directory / "running").exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()[0]
        assert not mounted_below(directory)
        assert len(processes(str(directory))) >= 5  # pytest, its guard, and the container's
        yield process


@pytest.mark.parametrize("user", [False, True], ids=["this user", "plain user"])
def test_a_killed_run_leaves_nothing(tmp_path: Path, user: bool) -> None:
    with running(tmp_path, user=user) as process:
        process.kill()
    until(lambda: not remains(tmp_path))


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_no_process(tmp_path: Path, ending: signal.Signals) -> None:
    with running(tmp_path) as process:
        process.send_signal(ending)
        process.communicate(timeout=WITHIN_S)
    until(lambda: not processes(str(tmp_path)))


def test_killed_workers_leave_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "-n1", "--max-worker-restart=0") as process:
        for worker in set(children(process.pid)):
            os.kill(worker, signal.SIGKILL)
        process.communicate(timeout=WITHIN_S)
        until(lambda: not remains(tmp_path))


def test_workers_of_a_killed_run_end_with_their_test(tmp_path: Path) -> None:
    with running(tmp_path, "-n1", suite=RUNS.replace("1000", "1")) as process:
        process.kill()
    until(lambda: not processes(str(tmp_path)))


def children(pid: int) -> list[int]:
    """The children of a process, by its threads, of which one may end meanwhile."""
    texts = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            texts.append((task / "children").read_text())
    return [int(each) for text in texts for each in text.split()]


def test_ctrl_c_while_a_control_plane_starts(tmp_path: Path) -> None:
    """It ends at once, although a program that never gets ready is being waited for."""
    waits = f"#!/bin/sh\ntouch {tmp_path}/begun\nexec sleep 1000\n"
    assets = str(programs(tmp_path, etcd=waits, kube_apiserver=waits))
    with started(tmp_path, EMPTY, variables={"KUBEBUILDER_ASSETS": assets}) as process:
        until((tmp_path / "begun").exists)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=WITHIN_S)[0]
    assert "KeyboardInterrupt" in output
    assert not processes(str(tmp_path))


@pytest.mark.parametrize("killed", [False, True])
def test_a_guard_of_another_program(tmp_path: Path, killed: bool) -> None:
    """Processes end with the program that listens; without its message the directory, too."""
    directory = tmp_path / "cluster"
    directory.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{directory}")
        listener.listen()
        guard = Guard(directory, str(directory))
        guard.start()
        child = Child("sleep", directory, guard.environment)
        child.start(("sleep", "1000"))
        if not killed:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"stopped\n")
                assert connection.recv(1) == b""
            assert child.died()
    until(child.died)
    until(lambda: directory.exists() != killed)
    assert ("was removed" in (child.died() or "")) is killed
    with pytest.raises(ConnectionRefusedError):
        guard.start()


FORGOTTEN = """
import sys
from pathlib import Path
from kubeletpy.library.cluster import Cluster

clusters = [Cluster(Path(sys.argv[1], f"tmp/cluster{n}"), engine="embedded") for n in range(4)]
for each in clusters:
    each.start()
print(*(each.kubeconfig.exists() for each in clusters))
"""


def test_forgotten_clusters_end_with_the_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORGOTTEN, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TEST_RUN": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True True True True\n"), done.stderr
    assert done.stderr == ""
    until(lambda: not remains(tmp_path))
