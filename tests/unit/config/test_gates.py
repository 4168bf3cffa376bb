"""Feature gates of each Kubernetes version: names, stages, defaults, locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy import config
from kubeletpy.base.kubernetes_version import NEWEST, SUPPORTED, KubernetesVersion, supported
from kubeletpy.config.gates import absent_gates, known_gates, resolve, warnings

V35, V36, V37 = SUPPORTED


@pytest.mark.parametrize(
    ("version", "name", "text"),
    [
        (V37, "PreventStaticPodAPIReferences", "1.37; removed after 1.36"),
        (V37, "MemoryManager", "1.37; removed after 1.35"),
        (V36, "MemoryManager", "1.36; removed after 1.35"),
        (V36, "H2CContainerProbe", "1.36; new in 1.37"),
        (V35, "H2CContainerProbe", "1.35; new in 1.37"),
        (V35, "PLEGOnDemandRelist", "1.35; new in 1.36"),
    ],
)
def test_a_gate_of_another_version_is_refused(
    version: KubernetesVersion, name: str, text: str
) -> None:
    with pytest.raises(config.ConfigError) as refused:
        config.default_settings(version, featureGates={name: True})
    (problem,) = refused.value.problems
    assert str(problem) == f"featureGates.{name} is true: does not exist in Kubernetes {text}"


def test_a_gate_given_by_flag_is_checked_for_the_version() -> None:
    flags = config.parse_flags(["--feature-gates=SidecarContainers=true"])
    config.load(None, (), flags, version=V36)
    with pytest.raises(config.ConfigError, match=r"does not exist in Kubernetes 1\.37"):
        config.load(None, (), flags, version=V37)


def test_suggestions_are_gates_of_the_version() -> None:
    with pytest.raises(config.ConfigError, match="did you mean PodsAPI"):
        config.default_settings(V36, featureGates={"PodAPI": True})
    with pytest.raises(config.ConfigError) as refused:
        config.default_settings(V35, featureGates={"PodsAPIs": True})
    assert "PodsAPI?" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("PodsAPI", (False, False, True)),
        ("MemoryQoS", (False, False, True)),
        ("SELinuxMount", (False, False, True)),
        ("NodeDeclaredFeatures", (False, True, True)),
        ("RelaxedDNSSearchValidation", (True, True, True)),  # removed when the gate was locked on
        ("MemoryManager", (True, True, True)),
        ("CustomCPUCFSQuotaPeriod", (False, True, True)),
        ("WorkloadAwarePreemption", (False, False, False)),  # removed when it was off
    ],
)
def test_a_decision_gets_the_value_of_its_version(name: str, values: tuple[bool, ...]) -> None:
    found = [config.default_settings(each).feature_gates.enabled(name) for each in SUPPORTED]
    assert tuple(found) == values


def test_a_gate_that_no_version_has_is_an_error_of_the_code() -> None:
    with pytest.raises(KeyError):
        resolve({}).enabled("NoSuchGate")


@pytest.mark.parametrize("version", SUPPORTED, ids=str)
def test_a_gate_is_known_or_absent(version: KubernetesVersion) -> None:
    everywhere = {name for each in SUPPORTED for name in known_gates(each)}
    assert known_gates(version).keys() | absent_gates(version).keys() == everywhere
    assert not known_gates(version).keys() & absent_gates(version).keys()
    assert resolve({}, version).effective.keys() == known_gates(version).keys()


def test_a_locked_gate_is_locked_in_its_version_only() -> None:
    off = {"HostnameOverride": False}
    assert resolve(off, V36).requested == off
    config.default_settings(V36, featureGates=off)
    with pytest.raises(config.ConfigError, match="locked to true"):
        config.default_settings(V37, featureGates=off)


def test_the_warning_about_a_stage_follows_the_version() -> None:
    on = {"HostnameOverride": True}
    assert warnings(resolve(on, V36)) == []
    assert warnings(resolve(on, V37)) == [
        "feature gate HostnameOverride is GA: it will be removed, stop setting it"
    ]


def test_a_field_of_a_later_version_is_dropped_with_a_warning() -> None:
    text = (
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "memoryReservationPolicy: None\n"
    )
    loaded = config.load(text, version=V35)
    assert loaded.warnings == (
        'memoryReservationPolicy is "None": does not exist in Kubernetes 1.35; new in 1.36; it is '
        "skipped",
    )
    assert config.load(text, version=V36).warnings == ()


@pytest.mark.parametrize(
    ("version", "factor", "refused"),
    [(V36, 0.8, False), (V37, 0.8, True), (V37, 0.9, False), (V37, None, False)],
)
def test_a_throttling_factor_without_its_gate(
    version: KubernetesVersion, factor: float | None, refused: bool
) -> None:
    document = {"memoryThrottlingFactor": factor, "featureGates": {"MemoryQoS": False}}
    if refused:
        with pytest.raises(config.ConfigError, match="needs feature gate MemoryQoS"):
            config.default_settings(version, **document)
    else:
        config.default_settings(version, **document)


@pytest.mark.parametrize(
    ("version", "previous"), [(V35, "1.34"), (V36, "1.35"), (V37, "1.36")], ids=str
)
def test_hidden_metrics_of_the_previous_version_may_be_shown(
    version: KubernetesVersion, previous: str
) -> None:
    config.default_settings(version, showHiddenMetricsForVersion=previous)
    with pytest.raises(config.ConfigError, match=f"must be {previous} or empty"):
        config.default_settings(version, showHiddenMetricsForVersion=str(version))


def test_without_a_version_the_newest_applies() -> None:
    assert config.default_settings().feature_gates.version == NEWEST
    assert config.load(None).settings.feature_gates.version == NEWEST
    assert resolve({}).version == NEWEST == supported("1.37")


def test_the_flag_selects_the_gates(tmp_path: Path) -> None:
    file = tmp_path / "config"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    file.write_text(f"{head}featureGates: {{SidecarContainers: true}}\n")
    older = config.parse_flags([f"--config={file}", "--kubernetes-version=1.36"])
    assert config.load_files(older).settings.feature_gates.version == V36
    newest = config.parse_flags([f"--config={file}"])
    with pytest.raises(config.ConfigError, match=r"does not exist in Kubernetes 1\.37"):
        config.load_files(newest)


@pytest.mark.parametrize("text", ["1.34", "1.38", "1.36.1", "v1.36", "Auto", "x"])
def test_a_version_that_is_not_supported_is_refused(text: str) -> None:
    with pytest.raises(config.ConfigError, match=r"must be auto or one of 1\.35, 1\.36, 1\.37"):
        config.parse_flags([f"--kubernetes-version={text}"])


def test_versions_have_no_order() -> None:
    with pytest.raises(TypeError):
        _ = V35 < V36  # type: ignore[operator]


def test_supported_versions_by_text() -> None:
    assert [supported(str(each)) for each in SUPPORTED] == [*SUPPORTED]
    assert [supported(text) for text in ("1.34", "1.38", "1.037", "37", "", "v1.37")] == [None] * 6
