"""Values of variables and headers are not recorded."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy.observe.recorder.redact import (
    Texts,
    redacted,
    redacted_runtime,
    secret_parts,
    unstarted_ids,
)

ACTION: dict[str, Any] = {
    "httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": "SECRET"}]}
}
CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": "i",
    "command": ["run"],
    "env": [
        {"name": "A", "value": "SECRET"},
        {"name": "B", "value": ""},
        {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ],
    "livenessProbe": {**ACTION, "periodSeconds": 3},
    "readinessProbe": ACTION,
    "startupProbe": {"exec": {"command": ["true"]}},
    "lifecycle": {"preStop": ACTION, "postStart": ACTION, "stopSignal": "SIGINT"},
}


def pod() -> dict[str, Any]:
    lists = ("containers", "initContainers", "ephemeralContainers")
    return {
        "metadata": {
            "name": "n",
            "managedFields": [{"manager": "m"}],
            "annotations": {"last-applied": "SECRET", "a": "b"},
        },
        "spec": {key: [copy.deepcopy(CONTAINER)] for key in lists},
        "status": {"phase": "Pending"},
    }


def marked(value: str) -> str:
    """A marker in place of the hash of a value."""
    return f"<{len(value)}>"


def test_everything_but_values_stays() -> None:
    supplied = pod()
    found = redacted(supplied, marked, secret_parts(supplied))
    assert supplied == pod(), "the object is shared with caches"
    assert "SECRET" not in str(found)
    action = {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": "<6>"}]}}
    container = {
        **CONTAINER,
        "env": [{"name": "A", "value": "<6>"}, *CONTAINER["env"][1:]],
        "livenessProbe": {**action, "periodSeconds": 3},
        "readinessProbe": action,
        "lifecycle": {"preStop": action, "postStart": action, "stopSignal": "SIGINT"},
    }
    assert found == {
        "metadata": {"name": "n", "annotations": {"last-applied": "<6>", "a": "<1>"}},
        "spec": {key: [container] for key in supplied["spec"]},
        "status": {"phase": "Pending"},
    }


HOOK = {"exec": {"command": ["sh", "-c", "login SECRET"]}}
GET = {"httpGet": {"path": "/ready?token=SECRET&x=1", "port": 80}}
HIDING: dict[str, Any] = {
    "metadata": {
        "name": "n",
        "labels": {"team": "SECRET"},
        "annotations": {"note": "SECRET", "kubernetes.io/config.source": "file"},
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "user:SECRET@registry.example/app:1",
                "command": ["/bin/tool", "--password", "SECRET"],
                "args": ["SECRET", "-v"],
                "livenessProbe": HOOK,
                "readinessProbe": GET,
                "lifecycle": {"postStart": HOOK, "preStop": GET},
            },
            {"name": "side", "image": "a/b:1@sha256:" + "0" * 64, "command": ["token=SECRET"]},
        ],
        "volumes": [
            {"name": "a", "csi": {"driver": "d", "volumeAttributes": {"key": "SECRET"}}},
            {"name": "b", "flexVolume": {"driver": "d", "options": {"key": "SECRET"}}},
            {"name": "c", "gitRepo": {"repository": "https://user:SECRET@git.example/x"}},
            {
                "name": "d",
                "ephemeral": {
                    "volumeClaimTemplate": {"metadata": {"annotations": {"note": "SECRET"}}}
                },
            },
        ],
    },
    "status": {
        "message": "command 'sh -c login SECRET' exited with 1",
        "containerStatuses": [
            {
                "name": "main",
                "image": "https://user:SECRET@registry.example/app:1",
                "state": {
                    "terminated": {
                        "exitCode": 1,
                        "containerID": "containerd://x",
                        "startedAt": "2026-01-01T00:00:00Z",
                        "message": "another SECRET of the program",
                    }
                },
            }
        ],
    },
}


def test_no_text_of_a_pod_holds_a_secret() -> None:
    found = redacted(HIDING, marked, secret_parts(HIDING))
    assert "SECRET" not in str(found)
    main, side = found["spec"]["containers"]
    assert main["command"] == ["/bin/tool", "<10>", "<6>"]
    assert main["args"] == ["<6>", "<2>"]
    assert main["image"] == "<11>@registry.example/app:1"
    assert main["readinessProbe"]["httpGet"]["path"] == "/ready?<16>"
    assert side["image"] == HIDING["spec"]["containers"][1]["image"]
    assert side["command"] == ["<12>"]
    assert found["metadata"]["annotations"]["kubernetes.io/config.source"] == "file"
    assert found["spec"]["volumes"][2]["gitRepo"]["repository"] == "https://<11>@git.example/x"


@pytest.mark.parametrize("odd", [None, 7, "x", [], {}, [[]], {"a": 1}])
@pytest.mark.parametrize("key", ["metadata", "spec", "status"])
def test_a_pod_of_any_shape_is_redacted(key: str, odd: Any) -> None:
    shapes: list[dict[str, Any]] = [{**HIDING, key: odd}]
    for inner in ("containers", "volumes", "initContainers"):
        shapes.append({"metadata": {}, "spec": {inner: odd}})
        shapes.append({"metadata": {"labels": odd}, "spec": {inner: [odd]}})
    for shape in shapes:
        redacted(shape, marked, secret_parts(shape))


def test_free_texts_repeat_no_value_and_agree_with_what_was_decided() -> None:
    texts = Texts(marked, secret_parts(HIDING))
    text = "Exec lifecycle hook ([sh -c login SECRET]) failed: GET http://u:p@h/ready?token=x"
    supplied = {"start_errors": {"main": {"code": "PostStartHookError", "message": text}}}
    (error,) = texts.inputs(supplied)["start_errors"].values()
    assert error["code"] == "PostStartHookError"
    assert "SECRET" not in error["message"]
    assert "u:p" not in error["message"]
    assert "token=x" not in error["message"]
    out = texts.output({"state": {"waiting": {"message": f"back-off: {text}", "reason": "main"}}})
    waiting = {"message": f"back-off: {error['message']}", "reason": "main"}
    assert out == {"state": {"waiting": waiting}}
    assert texts.text("Exec lifecycle hook ([sh -c login SEC…]) failed") == (
        "Exec lifecycle hook ([sh -c <12>…]) failed"
    )


def test_termination_messages_are_hashed_and_those_of_failed_starts_are_not() -> None:
    texts = Texts(marked, ["login SECRET"])
    ran = {"id": "c", "state": "exited", "started_at": 5, "message": "printed by the program"}
    unstarted = {"id": "c", "state": "exited", "message": 'exec: "login SECRET": not found'}
    found = redacted_runtime({"containers": [ran, unstarted], "labels": {"a": "SECRET"}}, texts)
    assert [each["message"] for each in found["containers"]] == ["<22>", 'exec: "<12>": not found']
    assert found["labels"] == {"a": "<6>"}
    assert unstarted_ids({"containers": [{**ran, "id": "d"}, unstarted]}) == {"c"}
    reported = {"containerID": "containerd://c", "exitCode": 128, "message": unstarted["message"]}
    for notified in (Texts(marked, ["login SECRET"], {"c"}), Texts(marked)):
        (state,) = notified.output([{"terminated": reported}])
        assert state == notified.inputs({"terminated": reported})
    assert state["terminated"]["message"] == "<31>"
    found = Texts(marked, ["login SECRET"], {"c"}).output({"terminated": reported})
    assert found["terminated"]["message"] == 'exec: "<12>": not found'


def test_a_pod_with_very_many_values_has_its_texts_hashed() -> None:
    texts = Texts(marked, [f"word-{number}" for number in range(4001)])
    assert texts.text("any text") == "<8>"


def test_a_pod_without_values_is_unchanged() -> None:
    get = {"httpGet": {"port": 80}}
    hook = {"name": "c", "lifecycle": {"preStop": get}}
    probe = {"name": "d", "livenessProbe": get}
    bare = {"metadata": {"name": "n"}, "spec": {"containers": [hook, probe, {"name": "e"}]}}
    assert redacted(bare, lambda _: "x", secret_parts(bare)) == bare
