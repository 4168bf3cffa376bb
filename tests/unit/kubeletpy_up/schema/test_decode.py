"""Decoding: wrong types, unknown and repeated fields, canonical values."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy_up import resources
from kubeletpy_up.errors import ApiError
from kubeletpy_up.schema import decode as schema
from kubeletpy_up.schema import formats


def served(plural: str) -> resources.ResourceInfo:
    found = resources.find(plural)
    assert found is not None
    return found


PODS = served("pods")
PREFIX = 'Pod in version "v1" cannot be handled as a Pod: '


def pod(**container: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", **container}]}}


def refusal(obj: Any, mode: str = "Strict") -> str:
    with pytest.raises(ApiError) as caught:
        schema.decode(PODS, obj, mode)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    return caught.value.message


def test_fills_in_type_and_leaves_the_input_alone() -> None:
    supplied = pod(resources={"limits": {"cpu": "1000m"}}, image=None)
    before = copy.deepcopy(supplied)
    decoded, warnings = schema.decode(PODS, supplied, "Strict")
    assert (decoded["apiVersion"], decoded["kind"], warnings) == ("v1", "Pod", [])
    assert decoded["spec"]["containers"] == [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]
    assert supplied == before


@pytest.mark.parametrize(
    ("container", "message"),
    [
        (
            {"ports": [{"containerPort": "x"}]},
            "json: cannot unmarshal string into Go struct field "
            "ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            {"ports": [{"containerPort": 2**31}]},
            "json: cannot unmarshal number 2147483648 into Go struct field "
            "ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            {"env": [{"name": "A", "value": 1}]},
            "json: cannot unmarshal number into Go struct field "
            "EnvVar.spec.containers.env.value of type string",
        ),
        (
            {"tty": "yes"},
            "json: cannot unmarshal string into Go struct field "
            "Container.spec.containers.tty of type bool",
        ),
        (
            {"stdin": True, "args": {"a": "b"}},
            "json: cannot unmarshal object into Go struct field "
            "Container.spec.containers.args of type []string",
        ),
        (
            {"resources": {"limits": {"cpu": "many"}}},
            "quantities must match the regular expression "
            r"'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ({"resources": {"limits": {"cpu": "1iK"}}}, "unable to parse quantity's suffix"),
    ],
)
def test_wrong_type(container: dict[str, Any], message: str) -> None:
    assert refusal(pod(**container)) == PREFIX + message
    assert refusal(pod(**container), "Ignore") == PREFIX + message


def test_unknown_fields_by_mode() -> None:
    supplied = {**pod(foo=1, image="i"), "bar": {}}
    assert refusal(supplied) == (
        PREFIX + "strict decoding error: "
        'unknown field "spec.containers[0].foo", unknown field "bar"'
    )
    for mode, warnings in (
        ("Warn", ['unknown field "spec.containers[0].foo"', 'unknown field "bar"']),
        ("Ignore", []),
    ):
        decoded, stated = schema.decode(PODS, supplied, mode)
        assert stated == warnings
        assert "bar" not in decoded
        assert decoded["spec"]["containers"] == [{"name": "c", "image": "i", "resources": {}}]


def test_repeated_fields() -> None:
    supplied = schema.parse_json(
        b'{"spec": {"containers": [{"name": "a", "name": "b"}]}, "metadata": {}, "metadata": {}}'
    )
    stated = ['duplicate field "metadata"', 'duplicate field "spec.containers[0].name"']
    assert schema.decode(PODS, supplied, "Warn")[1] == stated
    assert schema.decode(PODS, supplied, "Warn")[0]["spec"]["containers"][0]["name"] == "b"
    assert refusal(supplied).endswith("strict decoding error: " + ", ".join(stated))


@pytest.mark.parametrize("body", [b"", b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000])
def test_not_json(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        schema.parse_json(body)
    assert caught.value.code == 400


@pytest.mark.parametrize("obj", [[], "pod", None, 3])
def test_not_an_object(obj: Any) -> None:
    assert "must be of type Pod" in refusal(obj)


def test_deep_nesting_is_an_answer_not_a_crash() -> None:
    nested: Any = {}
    for _ in range(100_000):
        nested = {"a": nested}
    supplied = {**pod(), "spec": {"containers": [], "x": nested}}
    assert "nested too deep" in refusal(supplied) or "unknown field" in refusal(supplied)


@pytest.mark.parametrize(
    ("supplied", "stored"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.9Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05+02:00", "2026-01-02T01:04:05Z"),
    ],
)
def test_times_are_utc_seconds(supplied: str, stored: str) -> None:
    decoded, _ = schema.decode(PODS, {**pod(), "status": {"startTime": supplied}}, "Strict")
    assert decoded["status"]["startTime"] == stored


@pytest.mark.parametrize("supplied", ["yesterday", "2026-01-02", "2026-01-02T03:04:05", 5])
def test_not_a_time(supplied: Any) -> None:
    refusal({**pod(), "status": {"startTime": supplied}})


def test_int_or_string() -> None:
    for value in (80, "http"):
        probe = {"tcpSocket": {"port": value}}
        decoded, _ = schema.decode(PODS, pod(livenessProbe=probe), "Strict")
        assert decoded["spec"]["containers"][0]["livenessProbe"] == probe
    refusal(pod(livenessProbe={"tcpSocket": {"port": 1.5}}))


def test_bytes() -> None:
    secrets = served("secrets")
    with pytest.raises(ApiError, match="illegal base64 data"):
        schema.decode(secrets, {"data": {"a": "***"}})
    assert schema.decode(secrets, {"data": {"a": "YQ=="}})[0]["data"] == {"a": "YQ=="}


def test_empty_lists_are_dropped_and_empty_structures_kept() -> None:
    spec: dict[str, Any] = {
        "containers": [],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "tolerations": [],
        "nodeSelector": {},
    }
    decoded, _ = schema.decode(PODS, {"metadata": {"labels": {}}, "spec": spec}, "Strict")
    assert decoded["metadata"] == {}
    assert decoded["spec"] == {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}


@pytest.mark.parametrize(
    ("supplied", "spelled"),
    [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1000Mi", "1000Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("100000", "100k"),
        ("0.1n", "1n"),
        ("-5", "-5"),
        ("0Mi", "0"),
        ("12E", "9223372036854775807"),
    ],
)
def test_quantities_have_one_spelling(supplied: str, spelled: str) -> None:
    assert formats.canonical(supplied) == spelled
    assert formats.canonical(spelled) == spelled


def test_hostile_quantities_cost_nothing() -> None:
    for supplied in ("1e999999999", "1" * 100_000, "1e-99999", "..", "+", "1Kii"):
        try:
            formats.canonical(supplied)
        except ValueError as error:
            assert "quanti" in str(error)
