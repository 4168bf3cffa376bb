"""The fields of 1.37 that concern volumes: refusals, with the messages of the API."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.shape import problems

SUPPORTED = 'supported values: "nodev", "noexec", "nosuid"'
OPTIONS = "spec.containers[0].volumeMounts[0].bindMountOptions"


def spec(mount: dict[str, Any], volume: dict[str, Any] | None = None) -> dict[str, Any]:
    container = {"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    volumes = [{"name": "v", **({"emptyDir": {}} if volume is None else volume)}]
    return {"containers": [container], "volumes": volumes}


@pytest.mark.parametrize(
    ("mount", "volume", "expected"),
    [
        ({}, None, []),
        ({"bindMountOptions": []}, None, []),
        ({"bindMountOptions": ["noexec", "nodev", "nosuid"]}, None, []),
        (
            {"bindMountOptions": ["exec", "noexec", "noexec"]},
            None,
            [
                f'{OPTIONS}[0]: Unsupported value: "exec": {SUPPORTED}',
                f'{OPTIONS}[2]: Duplicate value: "noexec"',
            ],
        ),
        (
            {"bindMountOptions": ["ro", "ro"]},
            None,
            [
                f'{OPTIONS}[0]: Unsupported value: "ro": {SUPPORTED}',
                f'{OPTIONS}[1]: Unsupported value: "ro": {SUPPORTED}',
                f'{OPTIONS}[1]: Duplicate value: "ro"',
            ],
        ),
        (
            {"bindMountOptions": ["nodev"]},
            {"image": {"reference": "i"}},
            [
                f'{OPTIONS}: Invalid value: ["nodev"]: bindMountOptions may not be used with '
                "image volumes"
            ],
        ),
    ],
)
def test_bind_mount_options(mount: Any, volume: Any, expected: list[str]) -> None:
    assert [str(each) for each in problems(spec(mount, volume))] == expected


@pytest.mark.parametrize("mode", [0, 0o777, 0o1777, None])
def test_modes_of_empty_dirs(mode: int | None) -> None:
    source = {} if mode is None else {"mode": mode}
    assert list(problems(spec({}, {"emptyDir": source}))) == []


@pytest.mark.parametrize("mode", [-1, 0o2000, 2**31 - 1, -(2**31)])
def test_modes_of_empty_dirs_out_of_range(mode: int) -> None:
    (found,) = problems(spec({}, {"emptyDir": {"mode": mode}}))
    assert str(found) == (
        f"spec.volumes[0].emptyDir.mode: Invalid value: {mode}: must be a number between 0 and "
        "01777 (octal), both inclusive"
    )


def volumes_with(user: int) -> list[dict[str, Any]]:
    """A volume for each field that can name an owner."""
    item = {"items": [{"path": "p", "user": user}]}
    parts = [{kind: item} for kind in ("configMap", "secret", "downwardAPI")]
    single = [
        {kind: {"user": user}}
        for kind in ("serviceAccountToken", "clusterTrustBundle", "podCertificate")
    ]
    return [
        {"configMap": {"defaultUser": user, **item}},
        {"secret": {"defaultUser": user, **item}},
        {"downwardAPI": {"defaultUser": user, **item}},
        {"projected": {"defaultUser": user, "sources": [*parts, *single]}},
    ]


@pytest.mark.parametrize("user", [0, 1000, 2**31 - 1])
def test_owners_of_files(user: int) -> None:
    assert list(problems({"volumes": volumes_with(user), "containers": []})) == []


@pytest.mark.parametrize("user", [-1, 2**31, 2**63 - 1])
def test_owners_of_files_out_of_range(user: int) -> None:
    found = list(problems({"volumes": volumes_with(user), "containers": []}))
    assert [each.path for each in found] == [
        "spec.volumes[0].configMap.defaultUser",
        "spec.volumes[0].configMap.items[0].user",
        "spec.volumes[1].secret.defaultUser",
        "spec.volumes[1].secret.items[0].user",
        "spec.volumes[2].downwardAPI.defaultUser",
        "spec.volumes[2].downwardAPI.items[0].user",
        "spec.volumes[3].projected.defaultUser",
        "spec.volumes[3].projected.sources[0].configMap.items[0].user",
        "spec.volumes[3].projected.sources[1].secret.items[0].user",
        "spec.volumes[3].projected.sources[2].downwardAPI.items[0].user",
        "spec.volumes[3].projected.sources[3].serviceAccountToken.user",
        "spec.volumes[3].projected.sources[4].clusterTrustBundle.user",
        "spec.volumes[3].projected.sources[5].podCertificate.user",
    ]
    message = f"Invalid value: {user}: must be between 0 and 2147483647, inclusive"
    assert {each.message() for each in found} == {message}


def test_mounts_of_every_kind_of_container_are_checked() -> None:
    mount = {"name": "v", "mountPath": "/v", "bindMountOptions": ["x"]}
    each = [{"name": "c", "volumeMounts": [mount]}]
    found = list(
        problems({"containers": each, "initContainers": each, "ephemeralContainers": each})
    )
    assert [problem.path.split("[")[0] for problem in found] == [
        "spec.containers",
        "spec.initContainers",
        "spec.ephemeralContainers",
    ]


def test_a_long_value_is_cut() -> None:
    (found,) = problems(spec({"bindMountOptions": ["x" * 100_000]}))
    assert len(str(found)) < 500
