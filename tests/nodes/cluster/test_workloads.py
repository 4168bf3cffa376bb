"""Deployments, DaemonSets, StatefulSets, Jobs and CronJobs on three nodes."""

from __future__ import annotations

from collections import Counter

from kubeletpy.base.api.types import JSON
from tests.cluster.watching import watched
from tests.nodes.cluster.cluster import WITHIN_S, Cluster, Namespace
from tests.nodes.cluster.member import NODES
from tests.nodes.cluster.objects import evenly_spread, spec_of, web, workload
from tests.nodes.node import SLEEPS, container
from tools.env.waiting import wait_until

REPLICAS = 6


def nodes_of(pods: list[JSON]) -> Counter[str]:
    """Node -> number of pods."""
    return Counter(each["spec"]["nodeName"] for each in pods)


def started(pods: list[JSON]) -> dict[str, str]:
    """Pod -> uid, without those that are being deleted."""
    return {
        each["metadata"]["name"]: each["metadata"]["uid"]
        for each in pods
        if "deletionTimestamp" not in each["metadata"]
    }


def test_nodes_are_ready_with_their_addresses(cluster: Cluster) -> None:
    for member in cluster.members:
        status = cluster.default.get("node", member.name)["status"]
        addresses = {each["type"]: each["address"] for each in status["addresses"]}
        assert addresses == {"InternalIP": member.address, "Hostname": member.name}
        conditions = {each["type"]: each["status"] for each in status["conditions"]}
        assert conditions.pop("Ready") == "True"
        assert set(conditions.values()) == {"False"}


def test_a_deployment_is_updated_and_rolled_back_with_none_unavailable(
    cluster: Cluster, namespace: Namespace
) -> None:
    def shop(version: str) -> JSON:
        return workload(
            "Deployment",
            "shop",
            spec_of(web(version), topologySpreadConstraints=evenly_spread("shop")),
            replicas=REPLICAS,
            strategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 3}},
        )

    def versions() -> set[str]:
        names = started(namespace.pods("shop"))
        return {namespace.kubectl("exec", name, "--", "cat", "/www/index.html") for name in names}

    namespace.apply(shop("1"))
    namespace.rollout("deployment/shop")
    assert nodes_of(namespace.pods("shop")) == {
        each.name: REPLICAS // NODES for each in cluster.members
    }
    with watched(namespace, "deployments") as changes:
        wait_until(lambda: changes, "the watch", timeout=WITHIN_S)
        namespace.apply(shop("2"))
        namespace.rollout("deployment/shop")
        assert versions() == {"2"}
        namespace.kubectl("rollout", "undo", "deployment/shop")
        namespace.rollout("deployment/shop")
    assert versions() == {"1"}
    available = [each.item["status"].get("availableReplicas", 0) for each in changes]
    assert min(available) == REPLICAS, available
    generations = [each.item["status"]["observedGeneration"] for each in changes]
    assert generations[0] == 1
    assert generations[-1] == 3, "the watch has not seen the update and its rollback"


def local_volume(node: str, name: str, storage_class: str, path: str) -> JSON:
    """A volume of a directory of one node."""
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "16Mi"},
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
        },
    }


def test_pods_of_a_stateful_set_keep_their_data(cluster: Cluster, namespace: Namespace) -> None:
    name = "disks"
    path = "/var/lib/disks"
    volumes = []
    for member in cluster.members:
        member.shell(f"mkdir {path}")
        volumes.append(local_volume(member.name, f"{name}-{member.number}", name, path))
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    main = container(
        script=f"trap 'exit 0' TERM; hostname >>/data/starts; {SLEEPS}",
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
    )
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "16Mi"}},
        "storageClassName": name,
    }
    namespace.apply(
        storage_class,
        *volumes,
        workload(
            "StatefulSet",
            "db",
            spec_of(main),
            replicas=NODES,
            serviceName="db",
            volumeClaimTemplates=[{"metadata": {"name": "data"}, "spec": claim}],
        ),
    )
    try:
        namespace.rollout("statefulset/db")
        before = namespace.pods("db")
        assert nodes_of(before) == {each.name: 1 for each in cluster.members}
        namespace.kubectl("delete", "pod", "db-1")
        namespace.wait_created("pod/db-1")
        namespace.wait("condition=Ready", "pod/db-1")
        after = namespace.pods("db")
        assert nodes_of(after) == nodes_of(before)
        assert after[1]["spec"]["nodeName"] == before[1]["spec"]["nodeName"]
        assert after[1]["metadata"]["uid"] != before[1]["metadata"]["uid"]
        starts = [
            namespace.kubectl("exec", f"db-{number}", "--", "cat", "/data/starts").split()
            for number in range(NODES)
        ]
        assert starts == [["db-0"], ["db-1", "db-1"], ["db-2"]]
    finally:
        namespace.kubectl("delete", "statefulset,pvc", "--all", "--timeout=600s")
        names = [each["metadata"]["name"] for each in volumes]
        namespace.kubectl("delete", "pv", *names)
        namespace.kubectl("delete", "storageclass", name)


def job_spec(app: str, script: str, **fields: object) -> JSON:
    """The spec of a Job, whose pods have the label app=app."""
    pod = spec_of(container(script=script), restartPolicy="Never")
    return {"template": {"metadata": {"labels": {"app": app}}, "spec": pod}, **fields}


def test_a_job_runs_its_completions_in_parallel(namespace: Namespace) -> None:
    spec = job_spec(
        "counts",
        "echo $JOB_COMPLETION_INDEX; sleep 5",
        completions=REPLICAS,
        parallelism=NODES,
        completionMode="Indexed",
    )
    with watched(namespace, "jobs") as changes:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "counts"}}
        namespace.apply({**job, "spec": spec})
        namespace.wait("condition=Complete", "job/counts")
    active = [each.item["status"].get("active", 0) for each in changes if "status" in each.item]
    assert max(active) == NODES
    found = namespace.pods("counts")
    assert {each["status"]["phase"] for each in found} == {"Succeeded"}
    logged = [namespace.kubectl("logs", each["metadata"]["name"]) for each in found]
    assert sorted(logged) == [str(number) for number in range(REPLICAS)]


def test_a_cron_job_runs_within_the_minute(namespace: Namespace) -> None:
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "minutely"}}
    template = {"spec": job_spec("minutely", "echo done")}
    namespace.apply({**cron, "spec": {"schedule": "* * * * *", "jobTemplate": template}})
    namespace.kubectl(
        "wait", "--for=jsonpath={.status.lastScheduleTime}", "cronjob/minutely", "--timeout=90s"
    )
    namespace.wait("jsonpath={.status.lastSuccessfulTime}", "cronjob/minutely")
    assert namespace.pods("minutely")[0]["status"]["phase"] == "Succeeded"
