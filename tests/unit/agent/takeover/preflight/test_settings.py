"""Findings of a preflight about settings, flags and gates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubeletpy.agent.takeover.preflight.checks import FIELDS, other_effects
from kubeletpy.agent.takeover.preflight.findings import KubeletFound, Severity
from kubeletpy.agent.takeover.preflight.settings import load_settings, read_flags
from kubeletpy.config import NodeFlags, default_settings
from tools.rulebook import differences

HEAD = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def found(directory: Path, document: object, *flags: str) -> list[tuple[Severity, str]]:
    (directory / "config.yaml").write_text(
        document if isinstance(document, str) else json.dumps(document)
    )
    arguments = ("--config=config.yaml", f"--root-dir={directory}", "--cert-dir=/pki", *flags)
    kubelet = KubeletFound("here", "kubelet", arguments, str(directory))
    values, problems = read_flags(kubelet)
    if values is None:
        return [(each.severity, each.text) for each in problems]
    return [(each.severity, each.text) for each in load_settings(values).findings]


def test_an_unknown_field_beside_an_error_is_a_note(tmp_path: Path) -> None:
    (problem, note) = found(tmp_path, {**HEAD, "maxPods": -1, "syncFreqency": "10s"})
    assert problem[0] is Severity.BLOCKS
    assert "maxPods" in problem[1]
    assert note[0] is Severity.NOTE
    assert "did you mean syncFrequency?; it is skipped" in note[1]


@pytest.mark.parametrize(
    ("fields", "flags", "expected"),
    [
        ({}, [], []),
        (
            {"hairpinMode": "hairpin-veth"},
            [],
            [
                (
                    Severity.DIFFERS,
                    'hairpinMode: "hairpin-veth": the network of pods is the runtime\'s; the '
                    "kubelet does nothing either",
                )
            ],
        ),
        (
            {"featureGates": {"ImageVolumeWithDigest": True}},
            [],
            [
                (
                    Severity.DIFFERS,
                    "feature gate ImageVolumeWithDigest: true: statuses do not show the digests of "
                    "image volumes",
                )
            ],
        ),
        (
            {},
            ["--housekeeping-interval=10s"],
            [
                (
                    Severity.DIFFERS,
                    '--housekeeping-interval: "10s": this agent measures by itself, without '
                    "cAdvisor",
                )
            ],
        ),
        (
            {},
            ["--max-pods=50"],
            [
                (
                    Severity.NOTE,
                    "flag --max-pods is deprecated: set maxPods in the file given to --config",
                )
            ],
        ),
        (
            {},
            ["--no-such=1"],
            [(Severity.BLOCKS, "--no-such: no such flag: the agent does not start with it")],
        ),
        (
            {"maxPods": -1},
            [],
            None,
        ),
        ("{", [], None),
    ],
)
def test_findings(
    tmp_path: Path,
    fields: dict[str, object] | str,
    flags: list[str],
    expected: list[tuple[Severity, str]] | None,
) -> None:
    document = fields if isinstance(fields, str) else {**HEAD, **fields}
    texts = found(tmp_path, document, *flags)
    if expected is not None:
        assert texts == expected
        return
    ((severity, text),) = texts
    assert severity is Severity.BLOCKS
    assert "config.yaml" in text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    kubelet = KubeletFound("here", "kubelet", ("--config=gone.yaml",), str(tmp_path))
    flags, _ = read_flags(kubelet)
    assert flags is not None
    (finding,) = load_settings(flags).findings
    assert finding.text == (
        f"--config: {tmp_path}/gone.yaml: cannot be read: No such file or directory: the agent "
        "does not start with it"
    )


def test_secrets_are_masked(tmp_path: Path) -> None:
    texts = found(tmp_path, HEAD, "--storage-driver-password=hidden")
    assert len(texts) == 1
    assert "hidden" not in texts[0][1]


def test_fields_with_another_effect() -> None:
    requested = {"endpoint": "localhost:4317", "samplingRatePerMillion": 10}
    settings = default_settings(enableServer=False, tracing=requested)
    assert [each.name for each in other_effects(settings, NodeFlags())] == list(FIELDS)
    assert other_effects(default_settings(), NodeFlags()) == []


def test_certificates_move_with_the_root_directory() -> None:
    (notice,) = other_effects(default_settings(), NodeFlags(root_dir="/data/kubelet"))
    assert notice.name == "--root-dir"
    assert notice.consequence == (
        "certificates are in /data/kubelet/pki; the kubelet has them in /var/lib/kubelet/pki: give "
        "the agent --cert-dir"
    )


def test_all_fields_of_the_table_with_another_effect_are_known() -> None:
    rows = [each for each in differences.listed() if each.table == "config.csv"]
    assert {each.row for each in rows if each.here == "partly"} == set(FIELDS)
