"""Kubernetes version of an agent, from the flag, the server's answer and the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeletpy import config
from kubeletpy.base.kubernetes_version import (
    NEWEST,
    OLDEST,
    SUPPORTED,
    KubernetesVersion,
    supported,
)
from kubeletpy.config.files import VERSION_RECORD
from kubeletpy.config.version_choice import (
    MAX_RECORD_BYTES,
    NoVersion,
    ServerVersion,
    VersionSource,
    decide,
    read_record,
    read_server_version,
)

V35, V36, V37 = SUPPORTED
SERVER, RECORD, FLAG = VersionSource.SERVER, VersionSource.RECORD, VersionSource.FLAG


def answer(major: object = "1", minor: object = "37", **more: object) -> bytes:
    return json.dumps({"major": major, "minor": minor, **more}).encode()


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (answer(gitVersion="v1.37.2"), (1, 37, "v1.37.2")),
        (answer(minor="37+", gitVersion="v1.37.2-gke.100"), (1, 37, "v1.37.2-gke.100")),
        (answer(minor="5"), (1, 5, "v1.5")),
        (answer("2", "0"), (2, 0, "v2.0")),
        (answer(gitVersion=7), (1, 37, "v1.37")),
        (answer(gitVersion="v1.37\nforged line"), (1, 37, "v1.37")),
        (answer(gitVersion="v" * 65), (1, 37, "v1.37")),
        (
            answer(gitVersion="v1.37.2", emulationMajor="1", emulationMinor="36"),
            (1, 36, "v1.37.2 (emulates 1.36)"),
        ),
        (answer(emulationMajor="1", emulationMinor="37"), (1, 37, "v1.37")),
        (answer(emulationMajor="1", emulationMinor="99"), (1, 37, "v1.37")),
        (answer(emulationMajor="x", emulationMinor=[]), (1, 37, "v1.37")),
    ],
)
def test_an_answer_of_version(body: bytes, found: tuple[int, int, str]) -> None:
    assert read_server_version(body) == ServerVersion(*found)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>sign in</html>",
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"1.37"',
        b"{}",
        b"[" * 60_000,
        b'{"major":1,"minor":37}',
        answer(minor="banana"),
        answer(minor="-37"),
        answer(minor="+37"),
        answer(minor="37++"),
        answer(minor=" 37"),
        answer(minor="37\n"),
        answer(minor="\N{ARABIC-INDIC DIGIT THREE}7"),
        answer(minor="9" * 5000),
        answer(minor=""),
        answer(minor=None),
        answer(minor=["37"]),
        answer(major=""),
        answer(major="1+"),
        answer(major="-1"),
        answer(major=None),
    ],
)
def test_hostile_answers_state_no_version(body: bytes) -> None:
    assert isinstance(read_server_version(body), NoVersion)


REMOVED = NoVersion("connection refused")


@pytest.mark.parametrize(
    ("flag", "server", "record", "version", "source", "warning"),
    [
        (None, ServerVersion(1, 35, "v1.35.4"), None, V35, SERVER, False),
        (None, ServerVersion(1, 36, "v1.36.3"), None, V36, SERVER, False),
        (None, ServerVersion(1, 37, "v1.37.2"), V35, V37, SERVER, False),
        (None, ServerVersion(1, 38, "v1.38.0"), V36, NEWEST, SERVER, False),
        (None, ServerVersion(2, 0, "v2.0.0"), V36, NEWEST, SERVER, False),
        (None, ServerVersion(1, 34, "v1.34.4"), None, OLDEST, SERVER, True),
        (None, ServerVersion(0, 99, "v0.99"), None, OLDEST, SERVER, True),
        (None, REMOVED, V35, V35, RECORD, False),
        (None, REMOVED, None, OLDEST, VersionSource.OLDEST, True),
        (None, None, V35, NEWEST, VersionSource.STANDALONE, False),
        (V36, None, V35, V36, FLAG, False),
        (V36, ServerVersion(1, 37, "v1.37.2"), V35, V36, FLAG, False),
    ],
)
def test_the_version_of_an_agent(  # noqa: PLR0917 - a row of the table
    flag: KubernetesVersion | None,
    server: ServerVersion | NoVersion | None,
    record: KubernetesVersion | None,
    version: KubernetesVersion,
    source: VersionSource,
    warning: bool,
) -> None:
    found = decide(flag, server, record)
    assert (found.version, found.source, found.warning) == (version, source, warning)
    assert found.why
    assert found.server == (server.text if source is SERVER and server else "")  # type: ignore[union-attr]


def test_reasons_name_consequence_and_remedy() -> None:
    old = decide(None, ServerVersion(1, 34, "v1.34.4"), None).why
    assert "v1.34.4" in old and "newer than its API server" in old and "upgrade" in old
    unknown = decide(None, REMOVED, None).why
    assert "connection refused" in unknown and "until the agent is restarted" in unknown


@pytest.mark.parametrize("minor", range(0, 60))
def test_a_node_is_never_newer_than_a_supported_server(minor: int) -> None:
    found = decide(None, ServerVersion(1, minor, f"v1.{minor}"), None).version
    assert found.minor <= minor or found == OLDEST
    assert found in SUPPORTED


@pytest.mark.parametrize(
    ("content", "version"),
    [
        (b"1.36\n", V36),
        (b"1.37", V37),
        (b"1.38\n", NEWEST),  # of a newer agent
        (b"1.33\n", OLDEST),
        (b"", None),
        (b"1", None),
        (b"banana\n", None),
        (b"1.-36\n", None),
        (b"\xff\x00", None),
        (b"1.36" + b" " * 10_000 + b"x", V36),
        (b"9" * MAX_RECORD_BYTES, None),
    ],
)
def test_records_of_a_start(content: bytes, version: KubernetesVersion | None) -> None:
    assert read_record(content) == version


@pytest.mark.parametrize(
    ("flags", "version"),
    [
        (["--kubeconfig=k"], V36),
        (["--kubeconfig=k", "--kubernetes-version=auto"], V36),
        (["--kubeconfig=k", "--kubernetes-version="], V36),
        (["--kubeconfig=k", "--kubernetes-version=1.35"], V35),
        ([], NEWEST),  # standalone: the record is of a cluster that the node has left
    ],
)
def test_the_configuration_is_read_for_the_recorded_version(
    tmp_path: Path, flags: list[str], version: KubernetesVersion
) -> None:
    (tmp_path / VERSION_RECORD).write_text("1.36\n")
    loaded = config.load_files(config.parse_flags([f"--root-dir={tmp_path}", *flags]))
    assert loaded.settings.feature_gates.version == version


@pytest.mark.parametrize("version", SUPPORTED, ids=str)
def test_a_configuration_is_read_again_for_another_version(version: KubernetesVersion) -> None:
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "maxPods": 7,
    }
    loaded = config.load_document(document, config.parse_flags(["--root-dir=/x"]))
    again = loaded.of_version(version)
    assert again.settings.feature_gates.version == version
    assert (again.settings.max_pods, again.node) == (7, loaded.node)


@pytest.mark.parametrize(
    ("flags", "record", "version"),
    [
        ([], "", OLDEST),  # as kubeadm calls it: no newer than any control plane
        ([], "1.36\n", V36),
        (["--kubernetes-version=1.37"], "1.36\n", V37),
        ([], "banana", OLDEST),
    ],
)
def test_the_version_that_is_printed(
    tmp_path: Path, flags: list[str], record: str, version: KubernetesVersion
) -> None:
    (tmp_path / VERSION_RECORD).write_text(record)
    node = config.parse_flags([f"--root-dir={tmp_path}", "--version", *flags]).node
    assert config.printed_version(node) == version


def test_auto_is_no_supported_version() -> None:
    assert supported("auto") is None
    assert config.parse_flags([]).node.kubernetes_version == "auto"
