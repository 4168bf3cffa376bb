"""Documents and flags to settings: precedence, strictness, derived values, all problems at once."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest

from kubeletpy import config
from kubeletpy.base.kubernetes_version import KNOWN, NEWEST, SUPPORTED, KubernetesVersion, supported
from kubeletpy.config.gates import absent_gates, known_gates, resolve, warnings

DOCUMENT = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
# A file by kubeadm: zeros that mean "not set".
KUBEADM = (
    HEAD
    + """
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options:
    json: {infoBufferSize: "0"}
    text: {infoBufferSize: "0"}
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"""
)


def load(text: str, *flags: str, **more: Any) -> config.LoadedConfig:
    return config.load(HEAD + text, (), config.parse_flags(flags), **more)


def problems(text: str, *flags: str) -> list[str]:
    with pytest.raises(config.ConfigError) as caught:
        load(text, *flags)
    return [str(problem) for problem in caught.value.problems]


def test_a_kubeadm_file_means_the_defaults() -> None:
    settings = config.load(KUBEADM).settings
    defaults = config.default_settings()
    assert settings.sync_frequency == defaults.sync_frequency == 60.0
    assert settings.container_runtime_endpoint == defaults.container_runtime_endpoint
    assert settings.logging == defaults.logging
    assert settings.authorization == defaults.authorization
    assert settings.node_status_report_frequency == 300.0
    assert settings.cgroup_driver == "systemd"
    assert settings.static_pod_path == "/etc/kubernetes/manifests"


def test_json_is_read_too() -> None:
    document = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    assert config.load(json.dumps({**document, "maxPods": 7})).settings.max_pods == 7


def test_precedence() -> None:
    dropins = [
        ("10.conf", HEAD + "maxPods: 20\nport: 1020\nkubeReserved: {cpu: 100m}\n"),
        ("20.conf", HEAD + "port: 1030\nregistryBurst: null\nkubeReserved: {memory: 1Gi}\n"),
    ]
    flags = config.parse_flags(["--port", "1040"])
    text = HEAD + "maxPods: 10\nregistryBurst: 3\npodsPerCore: 5\nport: 1010\n"
    settings = config.load(text, dropins, flags).settings
    assert (settings.pods_per_core, settings.max_pods, settings.port) == (5, 20, 1040)
    assert settings.registry_burst == 10
    assert dict(settings.kube_reserved) == {"cpu": "100m", "memory": "1Gi"}


def test_no_file_means_no_thresholds_with_a_warning_and_opens_no_port() -> None:
    loaded = config.load(None)
    settings = loaded.settings
    assert not settings.authentication.anonymous.enabled
    assert not settings.authentication.webhook.enabled, "there is no API to query"
    assert (settings.read_only_port, dict(settings.eviction_hard)) == (0, {})
    assert any("no configuration file" in warning for warning in loaded.warnings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maxPods: '5'\n", 'maxPods is "5": must be a whole number'),
        ("port: 70000\n", "port is 70000: must be from 1 to 65535"),
        ("healthzPort: -1\n", "healthzPort is -1: must be from 0 to 65535"),
        ("address: here\n", 'address is "here": must be an IP address'),
        ("syncFrequency: 10\n", "syncFrequency is 10: must be a duration"),
        ("syncFrequency: -1s\n", 'syncFrequency is "-1s": must be at least 1ms'),
        ("authentication: yes\n", "authentication is true: must be an object"),
        ("maxPods: " + "[" * 100_000, "is nested too deeply"),
        ("runOnce: true\n", "runOnce is true: must be false"),
        ("podLogsDir: logs\n", "must be an absolute path"),
        ("podLogsDir: /var//log\n", "must be an absolute path"),
        ("tlsCipherSuites: [NONE]\n", "tlsCipherSuites"),
        ("cgroupDriver: other\n", "must be one of cgroupfs, systemd"),
        ("containerLogMaxFiles: 1\n", "must be more than 1"),
        ("containerLogMonitorInterval: 2s\n", "must be at least 3s"),
        ("containerLogMaxSize: 10Zi\n", "must be a quantity"),
        ("cpuCFSQuotaPeriod: 2s\n", "must be from 1ms to 1s"),
        ("crashLoopBackOff: {maxContainerRestartPeriod: 500ms}\n", "must be from 1s to 5m0s"),
        ("systemReserved: {gpu: '1'}\n", "systemReserved.gpu"),
        ("systemReserved: {cpu: -1}\n", "must be a quantity >=0"),
        ("reservedSystemCPUs: 3-1\n", "must be a list of CPUs"),
        ("enforceNodeAllocatable: [none, pods]\n", "none must stand alone"),
        ("enforceNodeAllocatable: [pods, pods]\n", "must not name anything twice"),
        ("evictionHard: {memory.available: 101%}\n", "evictionHard.memory.available"),
        (
            "evictionSoft: {imagefs.available: 14.5%}\n"
            "evictionSoftGracePeriod: {imagefs.available: 1m}\n",
            "evictionHard.imagefs.available is 15%",
        ),
        ("evictionMinimumReclaim: {memory.available: 0%}\n", "percentage above 0%"),
        ("shutdownGracePeriod: 500ms\n", "must be 0s or at least 1s"),
        ("featureGates: {EventedPLEG: 1}\n", "must be true or false"),
        ("qosReserved: {memory: 12.5%}\n", "must be a whole percentage from 0% to 100%"),
        ("qosReserved: {memory: 101%}\n", "must be a whole percentage from 0% to 100%"),
        ("allowedUnsafeSysctls: [kernel.panic]\n", "not a namespaced sysctl"),
        ("allowedUnsafeSysctls: ['*']\n", "not a sysctl name"),
        ("defaultPodSysctls: {net.core.somaxconn: '1'}\n", "needs feature gate DefaultPodSysctls"),
        (
            "defaultPodSysctls: {vm.swappiness: '1'}\nfeatureGates: {DefaultPodSysctls: true}\n",
            "not a namespaced sysctl",
        ),
        ("registerWithTaints: [{key: a, effect: Never}]\n", "effects are NoSchedule"),
        ("registerWithTaints: [{key: a}]\n", "registerWithTaints[0].effect: is required"),
        ("registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: x}]\n", "timeAdded"),
        ("reservedMemory: [{limits: {memory: '0'}}]\n", "must not be zero"),
        ("reservedMemory: [{limits: {cpu: '1'}}]\n", "is not memory or hugepages-SIZE"),
        ("tracing: {endpoint: 'http://x'}\n", "scheme must be dns"),
        ("logging: {format: xml}\n", "must be one of text, json"),
        ("a: [\n", "is not YAML or JSON"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    found = problems(text)
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("syncFreqency: 10s\n", "no such field; did you mean syncFrequency?; it is skipped"),
        ("clientCAFile: x\n", "did you mean authentication.x509.clientCAFile?"),
        ("authentication: {webhok: {}}\n", "authentication.webhok is {}: no such field; did you"),
        ("maxPods: 1\nmaxPods: 2\n", "maxPods: is given twice; the last value holds"),
        ("authentication: {x509: {clientCAFile: a, clientCAFile: b}}\n",
         "authentication.x509.clientCAFile: is given twice"),
        ("registerWithTaints: [{key: a, key: b, effect: NoExecute}]\n",
         "registerWithTaints[0].key: is given twice"),
        ("registerWithTaints: [{key: a, effect: NoExecute, colour: red}]\n",
         'registerWithTaints[0].colour is "red": no such field'),
        ("zzz: 1\n", "zzz is 1: no such field"),
        ("SYNCFREQUENCY: 10s\n", "did you mean syncFrequency?"),
        ("authentication: {enabled: true}\n",
         "authentication.enabled is true: no such field; did you mean "
         "authentication.anonymous.enabled?"),
    ],
)  # fmt: skip
def test_mistakes_of_strict_decoding_are_left_out_with_a_warning(text: str, stated: str) -> None:
    loaded = load(text)
    (warning,) = loaded.warnings
    assert stated in warning
    if "maxPods" in text:
        assert warning.startswith("maxPods: ")
        assert loaded.settings.max_pods == 2


def test_a_drop_in_of_a_newer_kubelet() -> None:
    dropin = ("new.conf", HEAD + "maxPods: 7\nnewThing: {of: 1.40}\n")
    loaded = config.load(HEAD, [dropin])
    assert loaded.settings.max_pods == 7
    assert [each for each in loaded.warnings if each.startswith("new.conf: newThing is")]


def test_every_problem_is_reported_at_once_with_its_source() -> None:
    with pytest.raises(config.ConfigError) as caught:
        config.load(
            HEAD + "maxPods: -1\nfoo: 1\n",
            [("bad.conf", "port: 0.5\nport: 0.5\n")],
            config.parse_flags(["--registry-qps=-1"]),
            file_name="kubelet.yaml",
        )
    assert str(caught.value).split("\n") == [
        "5 problems, 2 warnings in the configuration:",
        "  kubelet.yaml: maxPods is -1: must be at least 0",
        "  bad.conf: apiVersion: is required: kubelet.config.k8s.io/v1beta1",
        "  bad.conf: kind: is required: KubeletConfiguration",
        "  bad.conf: port is 0.5: must be a whole number from -2147483648 to 2147483647",
        "  --registry-qps: registryPullQPS is -1: must be at least 0",
        "  warning: kubelet.yaml: foo is 1: no such field; it is skipped",
        "  warning: bad.conf: port: is given twice; the last value holds",
        "  in the documentation: "
        "reference/errors.md#maxpods #apiversion #kind #port #registrypullqps",
    ]
    assert caught.value.problems[0].field == "maxPods"


def test_one_error_beside_an_unknown_field_is_one_problem_and_one_warning() -> None:
    with pytest.raises(config.ConfigError) as caught:
        config.load(HEAD + "syncFreqency: 10s\nmaxPods: -1\n", file_name="kubelet.yaml")
    assert str(caught.value) == (
        "1 problem, 1 warning in the configuration:\n"
        "  kubelet.yaml: maxPods is -1: must be at least 0\n"
        '  warning: kubelet.yaml: syncFreqency is "10s": no such field; did you mean '
        "syncFrequency?; it is skipped\n"
        "  in the documentation: reference/errors.md#maxpods"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (datetime.date(2026, 1, 2), 'podLogsDir is "2026-01-02": must be a text'),
        (PurePosixPath("/x"), 'podLogsDir is "/x": must be a text'),
        (b"/x", "not a bytes"),
        ({"a", "b"}, "not a set"),
    ],
)
def test_a_document_of_a_program_has_only_values_of_json(value: object, message: str) -> None:
    with pytest.raises(config.ConfigError, match=re.escape(message)):
        config.load_document({**DOCUMENT, "podLogsDir": value})
    with pytest.raises(config.ConfigError, match=r"^1 problem .*\n  file: logging\.options\[0\] "):
        config.load_document({**DOCUMENT, "logging": {"options": (value,)}}, file_name="file")


def test_mappings_and_tuples_of_a_program_are_objects_and_lists() -> None:
    read_only = MappingProxyType({"memory": "1Gi"})
    loaded = config.load_document(
        {**DOCUMENT, "kubeReserved": read_only, "clusterDNS": ("10.0.0.1",)}
    )
    assert loaded.settings.cluster_dns == ("10.0.0.1",)
    assert dict(loaded.settings.kube_reserved) == {"memory": "1Gi"}


def test_headers_are_masked() -> None:
    (problem,) = problems("staticPodURLHeader: {Authorization: s3cret}\n")
    assert "s3cret" not in problem
    settings = load("staticPodURLHeader: {Authorization: [s3cret]}\n").settings
    assert settings.static_pod_url_header["Authorization"] == ("s3cret",)
    assert "s3cret" not in json.dumps(config.document(settings))


def test_the_document_of_settings_gives_the_same_settings() -> None:
    text = """
    registerWithTaints: [{key: a/b, value: c, effect: NoExecute}]
    reservedMemory: [{numaNode: 1, limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}]
    shutdownGracePeriodByPodPriority: [{priority: 5, shutdownGracePeriodSeconds: 9}]
    evictionSoft: {memory.available: 1.5Gi}
    evictionSoftGracePeriod: {memory.available: 1m30s}
    containerLogMaxSize: 1500k
    cpuCFSQuotaPeriod: 1500us
    logging: {vmodule: [{filePattern: a*, verbosity: 3}]}
    featureGates: {EventedPLEG: true}
    """
    text = "\n".join(line.strip() for line in text.split("\n"))
    settings = load(text).settings
    assert config.load_document(config.document(settings)).settings == settings


@pytest.mark.parametrize(
    ("facts", "settings", "fields"),
    [
        ({"cgroup_version": 2}, {}, []),
        ({"cgroup_version": 1}, {}, ["failCgroupV1"]),
        ({"cgroup_version": 1}, {"failCgroupV1": False}, []),
        (
            {"cgroup_version": 1},
            {
                "failCgroupV1": False,
                "singleProcessOOMKill": False,
                "memorySwap": {"swapBehavior": "LimitedSwap"},
            },
            ["singleProcessOOMKill", "memorySwap.swapBehavior"],
        ),
        ({"cgroup_version": 2, "swap_on": True}, {}, ["failSwapOn"]),
        ({"cgroup_version": 2, "swap_on": True}, {"failSwapOn": False}, []),
        (
            {"cgroup_version": 2, "online_cpus": frozenset({0, 1})},
            {"reservedSystemCPUs": "0-2"},
            ["reservedSystemCPUs"],
        ),
    ],
)
def test_check_host(facts: dict[str, Any], settings: dict[str, Any], fields: list[str]) -> None:
    found = config.check_host(config.default_settings(**settings), **facts)
    assert [problem.field for problem in found] == fields


def test_files(tmp_path: Path) -> None:
    (tmp_path / "main.yaml").write_text(HEAD + "staticPodPath: pods\nmaxPods: 1\n")
    dropins = tmp_path / "d"
    (dropins / "50-sub").mkdir(parents=True)
    (dropins / "10.conf").write_text(HEAD + "maxPods: 2\nport: 1\n")
    (dropins / "50-sub" / "x.conf").write_text(HEAD + "maxPods: 3\n")
    (dropins / "60.yaml").write_text("not read")
    flags = config.parse_flags([f"--config={tmp_path}/main.yaml", f"--config-dir={dropins}"])
    settings = config.load_files(flags).settings
    assert (settings.max_pods, settings.port) == (3, 1)
    assert settings.static_pod_path == str(tmp_path / "pods")
    with pytest.raises(config.ConfigError, match="cannot be read: No such file"):
        config.load_files(config.parse_flags(["--config=/no/such/file"]))


# Feature gates of each Kubernetes version: names, stages, defaults, locks.

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
    everywhere = {name for each in KNOWN for name in known_gates(each)}
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


@pytest.mark.parametrize("text", ["1.34", "1.39", "1.36.1", "v1.36", "Auto", "x"])
def test_a_version_that_is_not_supported_is_refused(text: str) -> None:
    with pytest.raises(config.ConfigError, match=r"must be auto or one of 1\.35, 1\.36, 1\.37"):
        config.parse_flags([f"--kubernetes-version={text}"])


def test_versions_have_no_order() -> None:
    with pytest.raises(TypeError):
        _ = V35 < V36  # type: ignore[operator]


def test_supported_versions_by_text() -> None:
    assert [supported(str(each)) for each in KNOWN] == [*KNOWN]
    assert [supported(text) for text in ("1.34", "1.39", "1.037", "37", "", "v1.37")] == [None] * 6


PREVIEW = KNOWN[-1]


def test_a_preview_has_to_be_named() -> None:
    loaded = config.load(None, (), config.parse_flags([f"--kubernetes-version={PREVIEW}"]))
    gates = loaded.settings.feature_gates
    assert (gates.version, NEWEST) == (PREVIEW, SUPPORTED[-1])
    assert gates.enabled("AtomicWriteVolumeUserFields")
    assert PREVIEW.kubelet.startswith("v1.38.0-beta.0+kubeletpy.")


def test_a_gate_that_a_version_has_removed_is_refused() -> None:
    with pytest.raises(config.ConfigError, match=r"does not exist in Kubernetes 1\.38; removed"):
        config.default_settings(PREVIEW, featureGates={"NodeSwap": True})


@pytest.mark.parametrize(
    "field", ["clientCertificateKeyAlgorithm", "serverCertificateKeyAlgorithm"]
)
def test_key_algorithms(field: str) -> None:
    assert config.default_settings(PREVIEW, **{field: "RSA-3072"})
    with pytest.raises(config.ConfigError, match="makes only ECDSA and RSA keys"):
        config.default_settings(PREVIEW, **{field: "ML-DSA-65"})
    with pytest.raises(config.ConfigError, match="must be one of ECDSA-P256"):
        config.default_settings(PREVIEW, **{field: "RSA-1024"})
