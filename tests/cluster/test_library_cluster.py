"""The cluster for tests on a real control plane: what operators need, and what lacks without it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from kubeletpy.base.structs import replace
from kubeletpy.library.cluster import Cluster
from kubeletpy.library.control_plane import ControlPlane, ControlPlaneError
from tests.cluster.conftest import control_plane_programs
from tests.unit.library.test_cluster_faults import processes, remains, run, running, until
from tools.control_plane.plane import programs_of

pytestmark = pytest.mark.timeout(400)
CRD: Any = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "ships.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "ships", "singular": "ship", "kind": "Ship"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


def clients(cluster: Cluster) -> Any:
    loaded = client.Configuration()
    load: Any = config.load_kube_config
    load(str(cluster.kubeconfig), client_configuration=loaded)
    return client.ApiClient(loaded)


def established(found: dict[str, Any]) -> bool:
    conditions = found.get("status", {}).get("conditions", ())
    return any(each["type"] == "Established" for each in conditions)


def test_an_operator_has_its_kinds_and_its_deployments_run(
    short_dir: Path, request: pytest.FixtureRequest
) -> None:
    programs = programs_of(control_plane_programs(request.config))
    with Cluster(short_dir / "c", programs=programs, nodes=("n1", "n2")) as cluster:
        assert (cluster.engine, cluster.lacks) == ("real", ())
        api = clients(cluster)
        client.ApiextensionsV1Api(api).create_custom_resource_definition(CRD)
        path = "apiextensions.k8s.io/v1/customresourcedefinitions"
        cluster.wait(path, "ships.example.com", until=established)
        with cluster.namespace() as namespace:
            ship = {"apiVersion": "example.com/v1", "kind": "Ship", "metadata": {"name": "a"}}
            client.CustomObjectsApi(api).create_namespaced_custom_object(
                "example.com", "v1", namespace, "ships", ship
            )
            cluster.wait("example.com/v1/ships", "a", namespace)
            cluster.image("web", lambda container: container.stopped.wait())
            labels = {"app": "web"}
            template = {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "web"}]},
            }
            deployment = {
                "metadata": {"name": "d"},
                "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template},
            }
            apps: Any = client.AppsV1Api(api)
            apps.create_namespaced_deployment(namespace, deployment)
            cluster.wait(
                "apps/v1/deployments",
                "d",
                namespace,
                until=lambda found: found.get("status", {}).get("readyReplicas") == 3,
            )


def test_an_api_server_alone_runs_pods(short_dir: Path, request: pytest.FixtureRequest) -> None:
    """The control plane of setup-envtest, without the controller manager and the scheduler."""
    programs = programs_of(control_plane_programs(request.config))
    alone = replace(programs, controller_manager=None, scheduler=None)
    with Cluster(short_dir / "c", programs=alone) as cluster, cluster.namespace() as namespace:
        assert [each.split(":")[0] for each in cluster.lacks] == [
            "There is no kube-controller-manager",
            "There is no kube-scheduler",
        ]
        spec = {"containers": [{"name": "c", "image": "idle"}]}
        core: Any = client.CoreV1Api(clients(cluster))
        core.create_namespaced_pod(namespace, {"metadata": {"name": "p"}, "spec": spec})
        cluster.wait(
            "v1/pods",
            "p",
            namespace,
            until=lambda found: found.get("status", {}).get("phase") == "Running",
        )
        assert core.read_namespaced_pod_log("p", namespace) == ""


def test_a_port_that_is_taken(short_dir: Path, request: pytest.FixtureRequest) -> None:
    """Another program has taken the API server's port since it was chosen."""
    programs = programs_of(control_plane_programs(request.config))
    plane = ControlPlane(short_dir / "taken", programs)
    with socket.create_server(("127.0.0.1", plane.port)):
        try:
            with pytest.raises(ControlPlaneError, match=r"(?s)kube-apiserver has ended.*in use"):
                plane.start()
        finally:
            plane.stop()


def servers(directory: Path) -> set[int]:
    """The API servers of the runs in a directory."""
    return set(processes("--etcd-servers=")) & set(processes(str(directory)))


def assets(directory: Path, request: pytest.FixtureRequest) -> str:
    """An option of pytest: a directory such as setup-envtest makes."""
    programs = programs_of(control_plane_programs(request.config))
    made = directory / "assets"
    made.mkdir()
    for name, program in (("etcd", programs.etcd), ("kube-apiserver", programs.api_server)):
        (made / name).symlink_to(program.resolve())
    return f"--cluster-assets={made}"


def test_a_killed_run_leaves_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with running(tmp_path, assets(tmp_path, request), user=True) as process:
        assert len(servers(tmp_path)) == 1
        process.kill()
    until(lambda: not remains(tmp_path))


SHARED = """
import os, pathlib, signal, time
import pytest
from kubernetes import client, config

@pytest.mark.parametrize("number", [0, 1])
def test_runs_pods(cluster, kubeconfig, namespace, worker_id, number, request):
    root = pathlib.Path(request.config.rootpath)
    cluster.image("mine", lambda container: container.print("of", worker_id))
    config.load_kube_config(str(kubeconfig))
    core = client.CoreV1Api()

    def runs(name):
        spec = {"containers": [{"name": "c", "image": "mine"}], "restartPolicy": "Never"}
        core.create_namespaced_pod(namespace, {"metadata": {"name": name}, "spec": spec})
        ended = lambda pod: pod.get("status", {}).get("phase") == "Succeeded"
        pod = cluster.wait("v1/pods", name, namespace, until=ended)
        assert (pod["spec"]["nodeName"],) == cluster.nodes == (f"node-1-{worker_id}",)
        assert core.read_namespaced_pod_log(name, namespace) == f"of {worker_id}\\n"

    def until(holds):
        while not holds():
            time.sleep(0.05)

    runs("p"), runs("q")
    (root / worker_id).write_text(core.api_client.configuration.host)
    until(lambda: all((root / each).exists() for each in ("gw0", "gw1")))
    assert (root / "gw0").read_text() == (root / "gw1").read_text()
    if f"cluster-{worker_id}/" in str(kubeconfig):  # this one has started it
        (root / "killed").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    until((root / "killed").exists)
    until(lambda: not pathlib.Path("/proc", (root / "killed").read_text(), "exe").exists())
    runs("r")
"""


def test_workers_share_a_control_plane(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each runs the pods of its namespaces; the one that started it is killed."""
    output = run(tmp_path, SHARED, assets(tmp_path, request), "--cluster-shared", "-n2")
    assert "1 failed, 1 passed" in output, output
    assert not processes(str(tmp_path))
