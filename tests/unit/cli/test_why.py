"""``kubectl why``: its calls of kubectl, and its output when a node explains nothing."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.cli import why

POD = {
    "metadata": {"namespace": "ns", "name": "web", "uid": "u1"},
    "spec": {"nodeName": "n1"},
    "status": {"phase": "Running"},
}
EVENTS = {"items": [{"type": "Warning", "reason": "Bad", "message": "luck"}]}
GIVEN = ("--kubeconfig=K", "--context=C", "--namespace=ns")


class FakeKubectl:
    """Program that answers by the kind of request and records its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.answers(pod=POD, events=EVENTS)
        program = folder / "kubectl"
        program.write_text(
            "#!/bin/sh\n"
            f'echo "$*" >> {folder}/calls\n'
            'case "$*" in\n'
            '*--raw=*) what=raw;; *--all-namespaces*) what=others;; *"get pods"*) what=pods;;\n'
            '*"get pod "*) what=pod;; *) what=events;; esac\n'
            f"cat {folder}/$what.out 2>/dev/null && exit 0\n"
            f"cat {folder}/$what.err >&2; exit 1\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def answers(self, **supplied: Any) -> None:
        for name, answer in supplied.items():
            text = answer if isinstance(answer, str) else json.dumps(answer)
            kind = "err" if isinstance(answer, str) and answer.startswith("Error") else "out"
            (self.folder / f"{name}.out").unlink(missing_ok=True)
            (self.folder / f"{name}.{kind}").write_text(text)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return FakeKubectl(tmp_path)


def test_calls_of_kubectl(kubectl: FakeKubectl, capsys: Any) -> None:
    kubectl.answers(raw='{"verdict": "fine"}')
    supplied = ("-n", "ns", "--kubeconfig", "K", "--context=C", "-o", "json")
    assert why.main([*supplied, "web"]) == 0
    assert json.loads(capsys.readouterr().out) == {"verdict": "fine"}
    start = " ".join(GIVEN)
    assert kubectl.calls == [
        f"{start} get pod web --output=json",
        f"{start} get --raw=/api/v1/nodes/n1/proxy/explain/ns/web",
    ]


def test_names_of_pods(kubectl: FakeKubectl) -> None:
    kubectl.answers(raw='{"verdict": "fine"}')
    for name in ("ns/web", "pod/web", "web"):
        why.main([name, "-o", "json"])
    assert [call for call in kubectl.calls if "get pod" in call] == [
        "--namespace=ns get pod web --output=json",
        "get pod web --output=json",
        "get pod web --output=json",
    ]


NO_NODE = (
    "the API has no Node object n1: it was deleted, or its machine has never registered; "
    "restart the agent on that machine, or create the Node object"
)


@pytest.mark.parametrize(
    ("raw", "stated"),
    [
        (
            "Error from server (NotFound): the server could not find the requested resource",
            "node n1 explains nothing about it: it runs the kubelet, or no longer this pod",
        ),
        ('Error from server (NotFound): nodes "n1" not found', NO_NODE),
        (
            "Error from server (Forbidden): nodes is forbidden",
            "you may not query node n1: that requires permission to get nodes/proxy",
        ),
        (
            "Error from server (ServiceUnavailable): dial tcp: refused",
            "node n1 does not answer: Error from server (ServiceUnavailable): dial tcp: refused",
        ),
        ("<html>", "node n1 answers with something else than an explanation"),
        ("[]", "node n1 answers with something else than an explanation"),
        ('{"a": 1}', "node n1 answers with something else than an explanation"),
    ],
)
def test_nodes_that_explain_nothing(
    kubectl: FakeKubectl, capsys: Any, raw: str, stated: str
) -> None:
    kubectl.answers(raw=raw)
    assert why.main(["ns/web"]) == 0
    assert capsys.readouterr().out == (
        f"ns/web: Running, not Ready\n\n  {stated}; this is what the API has:\n\n  on node n1\n\n"
        "Warnings\n    Bad  luck\n"
    )
    assert kubectl.calls[-1] == (
        "--namespace=ns get events --field-selector=involvedObject.uid=u1 --output=json"
    )
    assert why.main(["ns/web", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"error": stated}


def test_a_pod_without_a_node_and_forbidden_events(kubectl: FakeKubectl, capsys: Any) -> None:
    kubectl.answers(pod={**POD, "spec": {}}, events="Error from server (Forbidden)")
    assert why.main(["web"]) == 0
    assert capsys.readouterr().out == (
        "ns/web: not scheduled: no scheduler has processed it yet\n"
        "\n"
        "  To do      see whether that scheduler runs, and its log\n"
        "  Waits for  scheduler default-scheduler\n"
    )
    assert not [call for call in kubectl.calls if "--raw" in call]


MIRROR = {"kubernetes.io/config.mirror": "x"}
NOT_FOUND = 'Error from server (NotFound): pods "dns" not found'


def listed(name: str, namespace: str = "ns", node: str = "n1", **metadata: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **metadata}
    return {"metadata": about, "spec": {"nodeName": node}}


@pytest.mark.parametrize(
    ("requested", "pods", "others", "found"),
    [
        ("dns", [listed("x"), listed("dns-n1", annotations=MIRROR)], [], "dns-n1"),
        ("uid-x", [listed("x"), listed("y")], [], "x"),
        ("dns", [listed("dns-n1")], [], "Error: dns"),
        (
            "dns",
            [listed(f"dns-{node}", node=node.upper(), annotations=MIRROR) for node in ("a", "b")],
            [],
            "use ns/dns-a or ns/dns-b",
        ),
        ("dns", [], [listed("dns", "kube-system")], "use kube-system/dns"),
    ],
)
def test_pods_by_uid_by_their_manifests_name_or_in_another_namespace(
    kubectl: FakeKubectl,
    capsys: Any,
    *,
    requested: str,
    pods: list[Any],
    others: list[Any],
    found: str,
) -> None:
    kubectl.answers(
        pod=NOT_FOUND, pods={"items": pods}, others={"items": others}, raw='{"verdict": "fine"}'
    )
    code = why.main([f"ns/{requested}", "-o", "json"])
    if found.startswith("use"):
        assert (code, capsys.readouterr().err) == (1, f"kubectl why: {NOT_FOUND}; {found}\n")
    elif found.startswith("Error"):
        assert (code, capsys.readouterr().err) == (1, f"kubectl why: {NOT_FOUND}\n")
    else:
        assert code == 0
        assert kubectl.calls[-1].endswith(f"/nodes/n1/proxy/explain/ns/{found}")


def test_lines_of_kubectls_log_are_left_out(kubectl: FakeKubectl, capsys: Any) -> None:
    log = 'E1129 23:43:32.123456    1234 memcache.go:265] "Unhandled Error" err="couldn\'t get"\n'
    refused = "Error: The connection to the server 127.0.0.1:1 was refused"
    kubectl.answers(pod=refused)
    (kubectl.folder / "pod.err").write_text(log * 5 + refused)
    assert why.main(["ns/web"]) == 1
    assert capsys.readouterr().err == f"kubectl why: {refused}\n"


def test_the_pod_that_has_a_host_port_is_named(kubectl: FakeKubectl, capsys: Any) -> None:
    about = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    message = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested ports."
    spec = {"containers": [{"name": "a", "ports": [{"hostPort": 80}]}]}
    status = {"conditions": [{**about, "message": message}]}
    holder = {**listed("front"), "spec": {**spec, "nodeName": "n1"}}
    kubectl.answers(
        pod={**POD, "spec": spec, "status": status}, others={"items": [holder]}, events=EVENTS
    )
    assert why.main(["ns/web"]) == 0
    hint = "use another hostPort, or end the pod that has it: port 80/TCP: ns/front on node n1"
    assert f"  To do      {hint}\n" in capsys.readouterr().out
    assert kubectl.calls[-1].endswith(
        "get pods --all-namespaces --field-selector=spec.nodeName!= --output=json"
    )


def test_no_pod_and_no_kubectl(
    kubectl: FakeKubectl, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl.answers(pod='Error from server (NotFound): pods "x" not found')
    assert why.main(["x"]) == 1
    expected = 'kubectl why: Error from server (NotFound): pods "x" not found\n'
    assert capsys.readouterr().err == expected
    monkeypatch.setenv("PATH", "/nowhere")
    assert why.main(["x"]) == 1
    assert capsys.readouterr().err == "kubectl why: there is no kubectl on the PATH\n"
