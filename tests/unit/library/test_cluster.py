"""The cluster for tests: its embedded engine, images as commands and functions, the fixtures."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.stream import portforward, stream
from kubernetes.stream.ws_client import ERROR_CHANNEL

from kubeletpy.base.api.types import JSON
from kubeletpy.library.cluster import Cluster, ClusterError
from kubeletpy.library.control_plane import ControlPlaneError, find_programs, programs_in
from kubeletpy.library.images import BLOCK, Images, Running
from kubeletpy.remote.streams import ProcessStreams

PODS = "v1/pods"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with Cluster(directory, engine="embedded", nodes=("n1", "n2")) as running:
        yield running


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    with cluster.namespace() as name:
        yield name


@pytest.fixture
def core(cluster: Cluster) -> Any:
    """A user's own client: that of the project Kubernetes."""
    loaded = client.Configuration()
    load: Any = config.load_kube_config
    load(str(cluster.kubeconfig), client_configuration=loaded)
    return client.CoreV1Api(client.ApiClient(loaded))


def pod(name: str, image: str = "idle", **container: Any) -> JSON:
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "containers": [{"name": "c", "image": image, **container}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def in_phase(phase: str) -> Callable[[JSON], bool]:
    return lambda found: bool(found) and found["status"].get("phase") == phase


def exit_code(found: JSON) -> int:
    (status,) = found["status"]["containerStatuses"]
    return int(status["state"]["terminated"]["exitCode"])


def test_a_function_is_a_container(cluster: Cluster, namespace: str, core: Any) -> None:
    def work(container: Running) -> int:
        found = container.path("/etc/data/key").read_text()
        container.print(*container.args, container.env["A"], found)
        return 3

    cluster.image("work", work)
    core.create_namespaced_config_map(
        namespace, {"metadata": {"name": "m"}, "data": {"key": "value"}}
    )
    made = pod("p", "work:1", args=["x"], env=[{"name": "A", "value": "b"}])
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": "/etc/data"}]
    made["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "m"}}]
    core.create_namespaced_pod(namespace, made)
    assert exit_code(cluster.wait(PODS, "p", namespace, until=in_phase("Failed"))) == 3
    assert core.read_namespaced_pod_log("p", namespace) == "x b value\n"


def test_an_exception_is_in_the_log(cluster: Cluster, namespace: str, core: Any) -> None:
    def breaks(container: Running) -> None:
        raise ValueError("on purpose")

    cluster.image("breaks", breaks)
    core.create_namespaced_pod(namespace, pod("p", "breaks"))
    assert exit_code(cluster.wait(PODS, "p", namespace, until=in_phase("Failed"))) == 1
    assert "ValueError: on purpose" in core.read_namespaced_pod_log("p", namespace)


def test_a_command_is_a_container(cluster: Cluster, namespace: str, core: Any) -> None:
    cluster.image("shell", ("sh", "-c"))
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    made = pod("p", "shell", args=["echo hello; exec sleep 1000"], readinessProbe=probe)
    core.create_namespaced_pod(namespace, made)
    cluster.wait(
        PODS,
        "p",
        namespace,
        until=lambda found: any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in found["status"].get("conditions", ())
        ),
    )
    assert core.read_namespaced_pod_log("p", namespace) == "hello\n"
    core.delete_namespaced_pod("p", namespace)
    cluster.wait(PODS, "p", namespace, until=lambda found: not found)


def test_processes_in_the_background_end_with_their_container(
    cluster: Cluster, namespace: str, core: Any
) -> None:
    """They hold its output; a line of it that is too long becomes several."""
    cluster.image("shell", ("sh", "-c"))
    script = f"setsid sleep 1000 & sleep 1000 & head -c {3 * BLOCK} /dev/zero | tr '\\0' x; exit 5"
    core.create_namespaced_pod(namespace, pod("p", "shell", args=[script]))
    assert exit_code(cluster.wait(PODS, "p", namespace, until=in_phase("Failed"))) == 5
    assert len(core.read_namespaced_pod_log("p", namespace).replace("\n", "")) == 3 * BLOCK


def in_pod(core: Any, namespace: str, name: str, *command: str, text: bytes = b"") -> Any:
    """A command in a pod over a WebSocket, after it has ended."""
    answer = stream(
        core.connect_get_namespaced_pod_exec,
        name,
        namespace,
        command=list(command),
        stdin=bool(text),
        stdout=True,
        stderr=True,
        _preload_content=False,
    )
    if text:
        answer.write_stdin(text)
    answer.run_forever(timeout=30)
    return answer


def test_commands_in_containers(cluster: Cluster, namespace: str, core: Any) -> None:
    """A process runs them on this machine, a function may do so itself."""

    def offers(container: Running) -> None:
        async def run(command: Sequence[str], client: ProcessStreams) -> int:
            await client.stdout.write(" ".join(command).encode())
            return 4

        container.exec = run
        container.stopped.wait()

    for image, run in (("shell", ("sh", "-c")), ("offers", offers)):
        cluster.image(image, run)
        core.create_namespaced_pod(namespace, pod(image, image, args=["exec sleep 1000"]))
        cluster.wait(PODS, image, namespace, until=in_phase("Running"))
    core.create_namespaced_pod(namespace, pod("none", "none"))
    cluster.wait(PODS, "none", namespace, until=in_phase("Running"))
    script = "read line; echo $line; echo err >&2; exit 3"
    answer = in_pod(core, namespace, "shell", "sh", "-c", script, text=b"hello\n")
    assert (answer.read_stdout(), answer.read_stderr()) == ("hello\n", "err\n")
    assert answer.returncode == 3
    answer = in_pod(core, namespace, "offers", "a", "b")
    assert (answer.read_stdout(), answer.returncode) == ("a b", 4)
    failed = in_pod(core, namespace, "none", "true")
    assert "only containers that are processes" in failed.read_channel(ERROR_CHANNEL)


def test_a_client_is_attached(cluster: Cluster, namespace: str, core: Any) -> None:
    """It gets the output from then on, and a process with stdin gets what it sends."""

    def greets(container: Running) -> None:
        while not container.stopped.wait(0.05):
            container.print("hello")

    cluster.image("shell", ("sh", "-c"))
    cluster.image("greets", greets)
    core.create_namespaced_pod(namespace, pod("greets", "greets"))
    script = "while read line; do echo got $line; done; exit 3"
    core.create_namespaced_pod(namespace, pod("shell", "shell", args=[script], stdin=True))
    for name, sent, expected in (("greets", "", "hello"), ("shell", "word\n", "got word")):
        cluster.wait(PODS, name, namespace, until=in_phase("Running"))
        answer = stream(
            core.connect_get_namespaced_pod_attach,
            name,
            namespace,
            stdin=bool(sent),
            stdout=True,
            _preload_content=False,
        )
        if sent:
            answer.write_stdin(sent)
        assert answer.readline_stdout(timeout=30) == expected
        answer.close()


async def test_a_port_of_a_pod(cluster: Cluster, namespace: str, core: Any) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    def client(port: int) -> bytes:
        forward = portforward(
            core.connect_get_namespaced_pod_portforward, "p", namespace, ports=str(port)
        )
        connection = forward.socket(port)
        connection.sendall(b"hello\n")
        return bytes(connection.recv(100))

    await asyncio.to_thread(core.create_namespaced_pod, namespace, pod("p"))
    await cluster.reached(PODS, "p", namespace, until=in_phase("Running"))
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await asyncio.to_thread(client, port) == b"hello\n"


async def test_async_tests_and_functions(cluster: Cluster, namespace: str, core: Any) -> None:
    ended = []

    async def serve(container: Running) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(container.pod)

    cluster.image("serve", serve)
    await asyncio.to_thread(core.create_namespaced_pod, namespace, pod("p", "serve"))
    await cluster.reached(PODS, "p", namespace, until=in_phase("Running"))
    await asyncio.to_thread(core.delete_namespaced_pod, "p", namespace)
    await cluster.reached(PODS, "p", namespace, until=lambda found: not found)
    assert ended == ["p"]


def test_an_image_without_a_name_runs_nothing(cluster: Cluster, namespace: str, core: Any) -> None:
    """Each node runs pods, and more of them than a machine has threads for."""
    names = [f"p{number}" for number in range(20)]
    for name in names:
        made = pod(name)
        made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": f"n{1 + len(name) % 2}"}
        core.create_namespaced_pod(namespace, made)
    found = [cluster.wait(PODS, name, namespace, until=in_phase("Running")) for name in names]
    assert {each["spec"]["nodeName"] for each in found} == {"n1", "n2"}


FAILED = r"(?s)within 1 s \(Failed\)\n\S+/p: it has ended.*with 7.*\nLog of c\n  sorry\n.*Started"


def test_waiting_in_vain_shows_the_pods_and_events(
    cluster: Cluster, namespace: str, core: Any
) -> None:
    cluster.image("shell", ("sh", "-c"))
    core.create_namespaced_pod(namespace, pod("p", "shell", args=["echo sorry; exit 7"]))
    cluster.wait(PODS, "p", namespace, until=in_phase("Failed"))
    with pytest.raises(ClusterError, match=FAILED):
        cluster.wait(PODS, "p", namespace, until=in_phase("Succeeded"), timeout=1)
    with pytest.raises(ClusterError, match="it does not exist"):
        cluster.wait(PODS, "other", namespace, timeout=1)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a", 1),
        ("a:2", 1),
        ("b:1", 2),
        ("b:2", None),
        ("registry:5000/a", None),
        ("host:5000/team/c@sha256:ab", 3),
    ],
)
def test_images_by_name(name: str, found: int | None) -> None:
    supplied: Any = {"a": 1, "b:1": 2, "host:5000/team/c": 3}
    result: Any = Images(supplied).find(name)
    assert result == found


def test_programs_are_found(tmp_path: Path) -> None:
    store = tmp_path / ".local/share/kubebuilder-envtest/k8s"
    assert find_programs({}, tmp_path) is None
    for version in ("1.9.0", "1.37.2"):
        directory = store / f"{version}-linux-amd64"
        directory.mkdir(parents=True)
        for program in ("etcd", "kube-apiserver"):
            (directory / program).touch()
    newest = store / "1.37.2-linux-amd64"
    assert find_programs({}, tmp_path) == programs_in(newest)
    assert find_programs({"KUBEBUILDER_ASSETS": str(newest)}, Path("/none")) is not None
    with pytest.raises(ControlPlaneError, match="KUBEBUILDER_ASSETS: /none lacks etcd and"):
        find_programs({"KUBEBUILDER_ASSETS": "/none"}, tmp_path)


def test_an_engine_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    with pytest.raises(ClusterError, match="engine 'fast': must be one of auto, real, embedded"):
        Cluster(tmp_path, engine="fast")
    with pytest.raises(ClusterError, match="set KUBEBUILDER_ASSETS"):
        Cluster(tmp_path, engine="real")
    assert Cluster(tmp_path).engine == "embedded"


SUITE = """
import os, pytest
from kubernetes import client, config

def test_passes(cluster, namespace, kubeconfig):
    config.load_config()
    assert client.CoreV1Api().read_namespace(namespace)
    assert os.environ["KUBECONFIG"] == str(kubeconfig) == str(cluster.kubeconfig)
    assert cluster.nodes == ("a", "b")

def test_fails(cluster, namespace):
    cluster.wait("v1/serviceaccounts", "default", namespace)
    pytest.fail("on purpose")

def test_waits_in_vain(cluster, namespace):
    cluster.wait("v1/pods", "p", namespace, timeout=0.5)
"""


def test_the_fixtures_of_a_suite(tmp_path: Path) -> None:
    """pytest loads the fixtures where kubeletpy is installed; a failed test shows its namespace."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\ncluster_nodes = a b\n")
    plugin = ("-p", "kubeletpy.cli.pytest_plugin", "-p", "no:cacheprovider")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # it may be installed here, or not
    environment.pop("KUBEBUILDER_ASSETS", None)
    environment.pop("CI", None)  # pytest's summary repeats whole messages there
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "--cluster-engine", "embedded"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("it has no pods") == 2
    assert "cluster.py" not in done.stdout
    assert "(embedded)" in done.stdout
    assert "CustomResourceDefinitions" in done.stdout
