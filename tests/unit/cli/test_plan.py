"""``kubeletpy plan``: requests to the agent, output, and refused files."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.cli import own_api, plan
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.node.eviction.decide import Signal
from kubeletpy.node.eviction.report import EvictionOrder
from kubeletpy.observe.explain.server import MAX_PLAN_BYTES, ExplainServer
from kubeletpy.observe.foresee.model import Foreseen, ForeseenOutcome, Need, NeedKind, NeedState
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.pod_volumes.planned import plan_volumes

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}


class Agent:
    """Records its requests, and answers with an outcome."""

    def __init__(self, at: str) -> None:
        self.at = at
        self.requested: list[Any] = []
        self.outcome = ForeseenOutcome.RUNS
        self.needs: tuple[Need, ...] = ()
        self.evictions: tuple[EvictionOrder, ...] = ()
        self.fits: int | None = None

    async def foresee(self, requested: Any) -> Foreseen:
        self.requested.append(requested)
        if "name" in requested and requested["name"] == "nobody":
            raise ValueError("no pod ns/nobody on this node")
        return Foreseen(
            "ns",
            "web",
            "n1",
            self.outcome,
            message="because",
            needs=self.needs,
            evictions=self.evictions,
            fits=self.fits,
        )


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    path = tmp_path / "explain.sock"
    made = Agent(f"--socket={path}")
    server = ExplainServer(path, None, Traces(), foresee=made.foresee)  # type: ignore[arg-type]
    await server.serve()
    yield made
    await server.close()


async def run(*arguments: str) -> int:
    return await asyncio.to_thread(plan.main, arguments)


async def test_a_file_with_pods_and_workloads(agent: Agent, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "all.yaml"
    documents = [
        {"kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
        {"kind": "Service", "metadata": {"name": "s"}},
        {"kind": "Deployment", "metadata": {"name": "d", "namespace": "x"}, "spec": {}},
    ]
    documents[2]["spec"] = {"template": TEMPLATE}
    file.write_text("---\n".join(json.dumps(each) + "\n" for each in documents) + "---\n")
    assert await run(agent.at, "-n", "ns", "-f", str(file)) == 0
    assert agent.requested == [
        {"pod": {"kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": {}}},
        {
            "pod": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"labels": {"a": "b"}, "name": "d", "namespace": "x"},
                "spec": {"containers": []},
            }
        },
    ]
    line = "ns/web: n1 would admit and start it\n"
    assert capsys.readouterr().out == f"{line}\n{line}"


async def test_a_patch_and_standard_input(
    agent: Agent, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await run(agent.at, "ns/web", "-p", "spec: {hostNetwork: true}", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)[0]["outcome"] == "runs"
    monkeypatch.setattr("sys.stdin", io.StringIO("kind: Pod\nmetadata: {name: p}\n"))
    assert await run(agent.at, "-f", "-") == 0
    assert await run(agent.at, "web", "-p", "{}", "--type", "merge", "-n", "y") == 0
    operations = [{"op": "remove", "path": "/spec/tolerations"}]
    assert await run(agent.at, "web", "-p", json.dumps(operations), "--type", "json") == 0
    patch = {"spec": {"hostNetwork": True}}
    assert agent.requested == [
        {"namespace": "ns", "name": "web", "patch": patch, "type": "strategic"},
        {"pod": {"kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}},
        {"namespace": "y", "name": "web", "patch": {}, "type": "merge"},
        {"namespace": "default", "name": "web", "patch": operations, "type": "json"},
    ]


async def test_a_patch_from_a_file(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "patch.yaml"
    file.write_text("spec:\n  hostNetwork: true\n")
    assert await run(agent.at, "ns/web", "--patch-file", str(file)) == 0
    monkeypatch.setattr("sys.stdin", io.StringIO('[{"op": "test", "path": "/a", "value": 1}]'))
    assert await run(agent.at, "web", "--patch-file", "-", "--type", "json") == 0
    assert [(each["patch"], each["type"]) for each in agent.requested] == [
        ({"spec": {"hostNetwork": True}}, "strategic"),
        ([{"op": "test", "path": "/a", "value": 1}], "json"),
    ]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (ForeseenOutcome.RUNS, 0),
        (ForeseenOutcome.PREEMPTS, 0),
        (ForeseenOutcome.RESTARTS, 0),
        (ForeseenOutcome.IN_PLACE, 0),
        (ForeseenOutcome.UNCHANGED, 0),
        (ForeseenOutcome.ENDS, 0),
        (ForeseenOutcome.RECREATES, 0),
        (ForeseenOutcome.WAITS, 1),
        (ForeseenOutcome.STUCK, 1),
        (ForeseenOutcome.REFUSED, 1),
        (ForeseenOutcome.FORBIDDEN, 1),
        (ForeseenOutcome.DEFERRED, 1),
        (ForeseenOutcome.INFEASIBLE, 1),
        (ForeseenOutcome.UNKNOWN, 1),
    ],
)
async def test_the_exit_code_reports_the_outcome(
    agent: Agent, outcome: ForeseenOutcome, code: int
) -> None:
    agent.outcome = outcome
    assert await run(agent.at, "web", "-p", "{}") == code


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Service\n", "there is no pod, and nothing that makes pods, in it"),
        ("", "there is no pod, and nothing that makes pods, in it"),
        ("- 1\n", "a document is no object"),
        ("{", "expected"),
        ("kind: Job\nmetadata: {name: j}\n", "Job j has no pod template"),
        ("kind: CronJob\nspec: {jobTemplate: 3}\n", "CronJob None has no pod template"),
    ],
)
async def test_refused_files(
    agent: Agent, tmp_path: Path, capsys: Any, text: str, why: str
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    assert await run(agent.at, "-f", str(file)) == 1
    assert why in capsys.readouterr().err


async def test_errors_of_the_agent_and_of_files(agent: Agent, tmp_path: Path, capsys: Any) -> None:
    assert await run(agent.at, "nobody", "-p", "{}") == 1
    assert capsys.readouterr().err == "kubeletpy plan: no pod ns/nobody on this node\n"
    assert await run(agent.at, "-f", str(tmp_path / "none.yaml")) == 1
    assert "No such file" in capsys.readouterr().err
    assert await run(agent.at, "web", "-p", "{}\n---\n{}") == 1
    assert "more than one document" in capsys.readouterr().err
    assert await run(agent.at, "web", "--patch-file", str(tmp_path / "none.yaml")) == 1
    assert "none.yaml: [Errno 2] No such file" in capsys.readouterr().err
    large = tmp_path / "large.yaml"
    large.write_text(f"kind: Pod\nmetadata: {{name: p}}\nspec: {{x: {'y' * MAX_PLAN_BYTES}}}\n")
    assert await run(agent.at, "-f", str(large)) == 1
    assert "it is larger than 3145728 bytes" in capsys.readouterr().err


EITHER = "give either -f FILE, or POD and --patch or --patch-file"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], EITHER),
        (["web"], EITHER),
        (["-p", "{}"], EITHER),
        (["--patch-file", "x"], EITHER),
        (["-f", "x", "web", "-p", "{}"], EITHER),
        (["-f", "x", "--patch-file", "y"], EITHER),
        (["web", "-p", "{}", "--patch-file", "y"], "give either --patch or --patch-file"),
    ],
)
def test_either_a_file_or_a_patch(arguments: list[str], why: str, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        plan.main(arguments)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_lists_and_workloads() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}
    jobs = {"spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}
    cron = {"kind": "CronJob", "metadata": {"name": "c"}, **jobs}
    found = list(plan.pods_of({"kind": "List", "items": [pod, cron, {"kind": "Secret"}]}, "d"))
    assert [
        (each["metadata"]["namespace"], each["metadata"]["name"], claims) for each, claims in found
    ] == [("n", "p", frozenset()), ("d", "c", frozenset())]


def stateful(**more: Any) -> dict[str, Any]:
    mounts = [{"name": "data", "mountPath": "/data"}]
    spec = {
        "containers": [{"name": "a", "image": "a:1", "volumeMounts": mounts}],
        "volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
    }
    templates = [{"metadata": {"name": "data"}, "spec": {}}]
    return {
        "kind": "StatefulSet",
        "metadata": {"name": "db"},
        "spec": {"template": {"spec": spec}, "volumeClaimTemplates": templates, **more},
    }


def test_the_claims_of_a_stateful_set_are_volumes() -> None:
    """The claims replace volumes of the same name, as in the StatefulSet controller."""
    ((pod, claims),) = plan.pods_of(stateful(), "d")
    assert claims == {"data-db-0"}
    assert pod["spec"]["volumes"] == [
        {"name": "tmp", "emptyDir": {}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}},
    ]
    pod["metadata"]["uid"] = "u"
    assert plan_volumes(Pod(cast(api.Pod, pod))).problems == {}
    ((_, claims),) = plan.pods_of(stateful(ordinals={"start": 5}), "d")
    assert claims == {"data-db-5"}


@pytest.mark.parametrize("templates", [None, 3, [3], [{"metadata": 3}]])
def test_invalid_templates_are_ignored(templates: Any) -> None:
    ((pod, claims),) = plan.pods_of(stateful(volumeClaimTemplates=templates), "d")
    assert (len(pod["spec"]["volumes"]), claims) == (2, frozenset())


NEEDS = (
    Need(NeedKind.CLAIM, "data-db-0", ("volume data",)),
    Need(NeedKind.CONFIG_MAP, "conf", ("volume c",)),
)


async def test_objects_absent_from_the_api_of_up_are_waited_for(
    agent: Agent, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.needs = NEEDS
    requested = []

    class Api:
        async def need_states(self, namespace: str, needs: Any) -> Any:
            requested.append((namespace, [each["name"] for each in needs]))
            kinds = [(each["kind"], each["name"]) for each in needs]
            return dict.fromkeys(kinds, NeedState.MISSING)

    monkeypatch.setattr(own_api, "once", lambda path, read: asyncio.run(read(Api())))
    monkeypatch.setattr(own_api, "kubeconfig", lambda socket: socket.with_name("admin"))
    file = tmp_path / "set.yaml"
    file.write_text(json.dumps(stateful()))
    assert await run(agent.at, "-f", str(file)) == 1
    assert requested == [("ns", ["data-db-0", "conf"])]
    assert capsys.readouterr().out == (
        "ns/web: this API has no StatefulSets: apply would be refused with 405. Apply the pod "
        "template as a Pod. Its replica was judged: n1 would admit it; it would wait for "
        "configMap conf\n\n"
        "Waits for\n  configMap conf, which does not exist: needed by volume c\n"
    )
    assert await run(agent.at, "-f", str(file), "-o", "json") == 1
    (answer,) = json.loads(capsys.readouterr().out)
    assert (answer["outcome"], answer["workload"]["outcome"]) == ("unserved", "waits")
    assert [each["state"] for each in answer["needs"]] == ["missing"]


OBJECTS: list[dict[str, Any]] = [
    {"kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"a": "1"}},
    {"kind": "Secret", "metadata": {"name": "key", "namespace": "ns"}, "stringData": {"b": "1"}},
    {"kind": "PersistentVolumeClaim", "metadata": {"name": "data"}},
    {"kind": "Service", "metadata": {"name": "web"}},
]
POD = {"kind": "Pod", "metadata": {"name": "web"}, "spec": {}}
NEEDED = (
    Need(NeedKind.CLAIM, "data", ("volume data",)),
    Need(NeedKind.CONFIG_MAP, "conf", ("volume c",), keys=("a",)),
    Need(NeedKind.SECRET, "key", ("container a",), keys=("b",)),
)


def yaml_of(*documents: dict[str, Any]) -> str:
    return "\n---\n".join(json.dumps(each) for each in documents)


@pytest.mark.parametrize("form", ["documents", "list", "files", "standard input"])
@pytest.mark.parametrize("up", [True, False])
async def test_objects_of_the_same_files_exist(
    *,
    form: str,
    up: bool,
    agent: Agent,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent.needs = NEEDED
    monkeypatch.setattr(own_api, "kubeconfig", lambda socket: socket if up else None)
    monkeypatch.setattr(own_api, "once", lambda path, read: pytest.fail("everything is known"))
    file, other = tmp_path / "all.yaml", tmp_path / "other.yaml"
    other.write_text(yaml_of(*OBJECTS))
    arguments = ["-f", str(file)]
    if form == "documents":  # the pod may come first
        file.write_text(yaml_of(POD, *OBJECTS))
    elif form == "list":
        config_maps = {"kind": "ConfigMapList", "items": OBJECTS[:1]}
        file.write_text(json.dumps({"kind": "List", "items": [*OBJECTS[1:], POD, config_maps]}))
    elif form == "files":
        file.write_text(yaml_of(POD))
        arguments += ["-f", str(other)]
    else:
        monkeypatch.setattr("sys.stdin", io.StringIO(yaml_of(POD)))
        arguments = ["-f", "-", "-f", str(other)]
    assert await run(agent.at, "-n", "ns", *arguments) == 0
    assert capsys.readouterr() == ("ns/web: n1 would admit and start it\n", "")


@pytest.mark.parametrize(
    ("objects", "waits"),
    [
        ([{**OBJECTS[0], "data": {"b": "1"}}], "configMap conf, which has no key a"),
        ([{**OBJECTS[0], "data": None}], "configMap conf, which has no key a"),
        ([{**OBJECTS[0], "binaryData": {"a": "MQ=="}, "data": {}}], ""),
    ],
)
async def test_an_object_of_the_file_may_lack_a_key(
    objects: list[dict[str, Any]], waits: str, agent: Agent, tmp_path: Path, capsys: Any
) -> None:
    agent.needs = NEEDED[1:2]
    file = tmp_path / "all.yaml"
    file.write_text(yaml_of(POD, *objects))
    assert await run(agent.at, "-n", "ns", "-f", str(file)) == bool(waits)
    assert waits in capsys.readouterr().out


async def test_objects_of_another_namespace_do_not_count(
    agent: Agent, tmp_path: Path, capsys: Any
) -> None:
    agent.needs = NEEDED[1:2]
    file = tmp_path / "all.yaml"
    elsewhere = {**OBJECTS[0], "metadata": {"name": "conf", "namespace": "other"}}
    file.write_text(yaml_of(POD, elsewhere))
    assert await run(agent.at, "-n", "ns", "-f", str(file)) == 0
    assert "not checked: configMap conf" in capsys.readouterr().out


def workload(kind: str, **spec: Any) -> dict[str, Any]:
    made = {"template": TEMPLATE, **spec}
    if kind == "CronJob":
        made = {"jobTemplate": {"spec": made}}
    return {"kind": kind, "metadata": {"name": "web"}, "spec": made}


@pytest.mark.parametrize(
    ("kind", "spec", "replicas"),
    [
        ("Deployment", {"replicas": 2}, 2),
        ("ReplicaSet", {"replicas": 0}, 0),
        ("ReplicationController", {"replicas": 3}, 3),
        ("StatefulSet", {"replicas": 3}, 3),
        ("DaemonSet", {}, 1),
        ("Job", {"parallelism": 4}, 4),
        ("CronJob", {"parallelism": 4}, 4),
        ("Deployment", {"replicas": "many"}, 1),
    ],
)
@pytest.mark.parametrize("up", [True, False])
async def test_a_workload_names_what_was_judged(
    *,
    kind: str,
    spec: dict[str, Any],
    replicas: int,
    up: bool,
    agent: Agent,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent.fits = 2
    monkeypatch.setattr(own_api, "kubeconfig", lambda socket: socket if up else None)
    file = tmp_path / "workload.yaml"
    file.write_text(json.dumps(workload(kind, **spec)))
    assert await run(agent.at, "-f", str(file)) == up
    assert agent.requested[0].get("replicas", 1) == replicas
    stated = capsys.readouterr().out
    if up:
        assert f"this API has no {kind}s: apply would be refused with 405" in stated
        assert ("Its replica" if replicas == 1 else f"One of {replicas} replicas") in stated
    elif replicas == 1:
        assert stated == "ns/web: n1 would admit and start it\n"
    else:
        assert stated == (
            "ns/web: n1 would admit and start it; one of "
            f"{replicas} replicas was judged, 2 of {replicas} fit on this node\n"
        )


async def test_without_up_unchecked_objects_are_named(
    agent: Agent, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.needs = NEEDS
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Pod\nmetadata: {name: p}\n")
    stated = (
        "ns/web: n1 would admit and start it\n\nNot known\n"
        "  not checked: claim data-db-0, configMap conf; without them it would wait\n"
    )
    assert await run(agent.at, "-f", str(file)) == 0
    assert capsys.readouterr() == (stated, "")
    monkeypatch.setattr(own_api, "kubeconfig", lambda socket: socket)

    def unread(path: Path, read: Any) -> Any:
        raise own_api.OwnApiUnavailable("it did not answer")

    monkeypatch.setattr(own_api, "once", unread)
    assert await run(agent.at, "-f", str(file)) == 0
    assert capsys.readouterr() == (
        stated,
        "kubeletpy plan: existence of objects not checked: it did not answer\n",
    )


async def test_the_order_of_evictions_is_shown_on_request(agent: Agent, capsys: Any) -> None:
    agent.evictions = (EvictionOrder((Signal.MEMORY,), False, (), (), 0, 3),)
    assert await run(agent.at, "web", "-p", "{}") == 0
    assert "Eviction order" not in capsys.readouterr().out
    assert await run(agent.at, "web", "-p", "{}", "--evictions") == 0
    assert "Eviction order\n  memory.available" in capsys.readouterr().out
    assert await run(agent.at, "web", "-p", "{}", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)[0]["evictions"][0]["stay"] == 3
