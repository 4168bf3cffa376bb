"""The complete effective configuration from a file, from flags, from neither; its messages."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy import config
from kubeletpy.config.fields import DEFAULT_EVICTION_HARD
from kubeletpy.config.flags import flag_texts
from kubeletpy.config.gates import known_gates, resolve
from kubeletpy.config.generated.tables import HERE
from kubeletpy.config.problems import ConfigError, Problem, show
from kubeletpy.config.rules import check_host

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
DEFAULTS = config.document(config.default_settings())


def changed(text: str | None, *flags: str, base_dir: str = "") -> dict[str, Any]:
    """Differences from the document of the defaults."""
    supplied = config.parse_flags(flags)
    loaded = config.load(None if text is None else HEAD + text, (), supplied, base_dir=base_dir)
    return _difference(config.document(loaded.settings), DEFAULTS)


def _difference(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for key in one.keys() | other.keys():
        mine, theirs = one.get(key), other.get(key)
        if isinstance(mine, dict) and isinstance(theirs, dict) and key != "evictionHard":
            mine, theirs = _difference(mine, theirs), {}
        if mine != theirs:
            found[key] = mine
    return found


@pytest.mark.parametrize(
    ("text", "flags", "difference"),
    [
        ("", [], {}),
        # zeros that mean "not set", and those that do not (pointers, false, lists, maps)
        ("syncFrequency: 0s\nport: 0\nclusterDomain: ''\ncgroupDriver: ''\n", [], {}),
        ("registryPullQPS: 0\n", [], {"registryPullQPS": 0}),
        ("registryBurst: 0\neventBurst: 0\n", [], {}),
        ("resolvConf: ''\n", [], {"resolvConf": ""}),
        ("enforceNodeAllocatable: []\n", [], {"enforceNodeAllocatable": []}),
        ("evictionHard: {}\n", [], {"evictionHard": {}}),
        ("evictionHard: {pid.available: 5%}\n", [], {"evictionHard": {"pid.available": "5%"}}),
        ("configMapAndSecretChangeDetectionStrategy: Cache\n", [],
         {"configMapAndSecretChangeDetectionStrategy": "Cache"}),
        ("rotateCertificates: false\nenableServer: false\n", [], {"enableServer": False}),
        # derived values
        ("nodeStatusUpdateFrequency: 7s\n", [],
         {"nodeStatusUpdateFrequency": "7s", "nodeStatusReportFrequency": "7s"}),
        ("nodeStatusUpdateFrequency: 7s\nnodeStatusReportFrequency: 9s\n", [],
         {"nodeStatusUpdateFrequency": "7s", "nodeStatusReportFrequency": "9s"}),
        ("nodeStatusReportFrequency: 9s\n", [], {"nodeStatusReportFrequency": "9s"}),
        ("featureGates: {ReduceDefaultCrashLoopBackOffDecay: true}\n", [],
         {"featureGates": {"ReduceDefaultCrashLoopBackOffDecay": True},
          "crashLoopBackOff": {"maxContainerRestartPeriod": "1m0s"}}),
        ("featureGates: {ReduceDefaultCrashLoopBackOffDecay: true}\n"
         "crashLoopBackOff: {maxContainerRestartPeriod: 5m}\n", [],
         {"featureGates": {"ReduceDefaultCrashLoopBackOffDecay": True}}),
        ("maxParallelImagePulls: 1\n", [], {"maxParallelImagePulls": 1}),
        ("maxParallelImagePulls: 2\n", [],
         {"maxParallelImagePulls": 2, "serializeImagePulls": False}),
        ("cgroupRoot: /x\n", [], {"cgroupRoot": "/x"}),
        ("cgroupsPerQOS: false\nenforceNodeAllocatable: []\n", [],
         {"cgroupsPerQOS": False, "enforceNodeAllocatable": [], "cgroupRoot": ""}),
        ("podPidsLimit: -5\n", [], {}),
        ("podPidsLimit: 0\n", [], {"podPidsLimit": 0}),
        ("podPidsLimit: 1\n", [], {"podPidsLimit": 1}),
        ("mergeDefaultEvictionSettings: true\n"
         "evictionHard: {pid.available: 5%, nodefs.available: 1%}\n",
         [], {"mergeDefaultEvictionSettings": True,
              "evictionHard": {**DEFAULT_EVICTION_HARD, "pid.available": "5%",
                               "nodefs.available": "1%"}}),
        ("staticPodPath: pods\n", [], {"staticPodPath": "/etc/k/pods"}),
        ("staticPodPath: /pods\n", [], {"staticPodPath": "/pods"}),
        ("clusterDNS: [10.0.0.10, fd00::a, x]\n", [], {"clusterDNS": ["10.0.0.10", "fd00::a"]}),
        ("clusterDNS: ['::ffff:10.0.0.10', 'fe80::1%eth0']\n", [], {"clusterDNS": ["10.0.0.10"]}),
        # flags
        ("", ["--max-pods=7", "--fail-swap-on=false", "--cluster-dns=10.0.0.10"],
         {"maxPods": 7, "failSwapOn": False, "clusterDNS": ["10.0.0.10"]}),
        ("maxPods: 5\n", ["--max-pods=7"], {"maxPods": 7}),
        ("seccompDefault: true\n", ["--seccomp-default=false"], {"seccompDefault": True}),
        ("seccompDefault: false\n", ["--seccomp-default"], {"seccompDefault": True}),
        ("seccompDefault: false\n", ["--seccomp-default=false"], {}),
        ("", ["--streaming-connection-idle-timeout=0"], {"streamingConnectionIdleTimeout": "0s"}),
        ("", ["--streaming-connection-idle-timeout", "0s"],
         {"streamingConnectionIdleTimeout": "0s"}),
        ("tlsCertFile: c\nresolvConf: r\nauthentication: {x509: {clientCAFile: ca}}\n",
         ["--tls-private-key-file=k"],
         {"tlsCertFile": "/etc/k/c", "tlsPrivateKeyFile": "k", "resolvConf": "/etc/k/r",
          "authentication": {"x509": {"clientCAFile": "/etc/k/ca"}}}),
        ("", ["--feature-gates=EventedPLEG=true"], {"featureGates": {"EventedPLEG": True}}),
        ("featureGates: {EventedPLEG: true, MemoryQoS: true}\n",
         ["--feature-gates=MemoryQoS=false"],
         {"featureGates": {"EventedPLEG": True, "MemoryQoS": False}}),
    ],
)  # fmt: skip
def test_a_file_and_flags_change_the_defaults(
    text: str, flags: list[str], difference: dict[str, Any]
) -> None:
    assert changed(text, *flags, base_dir="/etc/k") == difference


def test_without_a_directory_a_path_stays_relative() -> None:
    assert changed("staticPodPath: pods\n") == {"staticPodPath": "pods"}


@pytest.mark.parametrize(
    ("flags", "difference"),
    [
        (
            [],
            {
                "evictionHard": {},
                "authentication": {"webhook": {"enabled": False}},
                "authorization": {"mode": "AlwaysAllow"},
            },
        ),
        (["--kubeconfig=/k"], {"evictionHard": {}}),
        (
            ["--kubeconfig=/k", "--eviction-hard=pid.available<5%"],
            {"evictionHard": {"pid.available": "5%"}},
        ),
        (["--authorization-mode=Webhook", "--authentication-token-webhook"], {"evictionHard": {}}),
    ],
)
def test_no_file(flags: list[str], difference: dict[str, Any]) -> None:
    assert changed(None, *flags) == difference


def test_a_dropin_alone_is_a_file() -> None:
    loaded = config.load(None, [("1.conf", HEAD + "maxPods: 5\n")])
    assert loaded.warnings == ()
    assert _difference(config.document(loaded.settings), DEFAULTS) == {"maxPods": 5}


def test_warnings_in_order() -> None:
    text = (
        "clusterDNS: [x, 10.0.0.1, y]\n"
        "featureGates: {NodeSwap: true, EnvFiles: true, "
        "KubeletPodResourcesListUseActivePods: true}\n"
    )
    loaded = config.load(HEAD + text, (), config.parse_flags(["--max-pods=5"]))
    assert loaded.warnings == (
        "flag --max-pods is deprecated: set maxPods in the file given to --config",
        "clusterDNS: not an IP address, skipped: x, y",
        "feature gate KubeletPodResourcesListUseActivePods is Deprecated: it will be removed, "
        "stop setting it",
        "feature gate NodeSwap is absent in Kubernetes 1.38, whose kubelet does not start with it: "
        "remove it before the upgrade",
    )


@pytest.mark.parametrize("explicit", [{}, {"AllAlpha": True}, {"AllBeta": False, "EnvFiles": True}])
def test_every_gate(explicit: dict[str, bool]) -> None:
    """The gate's own setting wins over its stage's, which wins over its default.

    A locked gate ignores the setting of its stage.
    """
    found = resolve(explicit)
    assert found.explicit == explicit
    for name, gate in known_gates().items():
        of_stage = explicit.get(f"All{gate.stage}", gate.default)
        expected = explicit.get(name, gate.default if gate.locked else of_stage)
        assert found.requested.get(name, gate.default) is expected, name
        assert found.enabled(name) is (HERE[name][0] if name in HERE else expected), name


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("featureGates: [EnvFiles]\n",
         ['featureGates is ["EnvFiles"]: must be a map from gate names to true or false']),
        ("featureGates: {EnvFile: true, X1: true}\n",
         ["featureGates.EnvFile is true: no such feature gate; did you mean EnvFiles?",
          "featureGates.X1 is true: no such feature gate"]),
        ("featureGates: {NodeSwap: false, GitRepoVolumeDriver: true}\n",
         ["featureGates.NodeSwap is false: this gate is locked to true",
          "featureGates.GitRepoVolumeDriver is true: this gate is locked to false"]),
        ("featureGates: {EnvFiles: 'true'}\n",
         ['featureGates.EnvFiles is "true": must be true or false']),
        ("authentication: {x509: 5}\n", ["authentication.x509 is 5: must be an object"]),
        ("authentication: {x509: null}\n", []),
        ("maxPods: null\n", []),
        ("registerWithTaints: [{effect: NoExecute}]\n", ["registerWithTaints[0].key: is required"]),
        ("tracing: {endpoint: 'dns://x', samplingRatePerMillion: 1}\n", []),
        ("tracing: {endpoint: 'unix:///x'}\n", []),
        ("tracing: {endpoint: 'x:1'}\n", []),
        ("tracing: {endpoint: 'dns/x'}\n", []),
        ("kubeReserved: {cpu: -1m}\n",
         ['kubeReserved.cpu is "-1m": must be a quantity >=0, as text']),
        ("evictionHard: {cpu.available: '1'}\n",
         ['evictionHard.cpu.available is "1": unknown key; allowed: memory.available, '
          "nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, "
          "containerfs.available, containerfs.inodesFree, pid.available, "
          "allocatableMemory.available"]),
    ],
)  # fmt: skip
def test_messages_about_a_document(text: str, stated: list[str]) -> None:
    try:
        config.load(HEAD + text)
    except ConfigError as error:
        assert [str(problem) for problem in error.problems] == stated
    else:
        assert stated == []


@pytest.mark.parametrize(
    ("arguments", "stated"),
    [
        (["--max-pods=5", "-"], ["-: is not a flag; this command takes only flags"]),
        (["--", "a", "-b"],
         ["a: is not a flag; this command takes only flags",
          "-b: is not a flag; this command takes only flags"]),
        # the word after an unknown flag may be its value, or may be a flag
        (["--nope", "word", "--max-pods=x"],
         ["--nope: no such flag", '--max-pods is "x": must be a whole number']),
        (["--zzzz", "--max-pods=x"],
         ["--zzzz: no such flag", '--max-pods is "x": must be a whole number']),
        (["--zzzz=a", "word"],
         ["--zzzz: no such flag", "word: is not a flag; this command takes only flags"]),
        (["-q5", "word"], ["-q5: no such flag"]),
        (["--zzzz"], ["--zzzz: no such flag"]),
        (["-v"], ["--v: needs a value"]),
        (["-v=x"], ['--v is "x": must be a whole number']),
        (["--max-pods=5", "--max-pods=x"], ['--max-pods is "x": must be a whole number']),
        (["--fail-swap-on=x", "--fail-swap-on=y"],
         ['--fail-swap-on is "y": must be true or false']),
        (["--exit-on-lock-contention=x"],
         ['--exit-on-lock-contention is "x": must be true or false']),
        (["--manifest-url-header=secret"],
         ["--manifest-url-header is <masked>: must be like name:value,other:value"]),
        (["--register-with-taints=a"],
         ['--register-with-taints is "a": must be like key=value:NoSchedule']),
        (["--reserved-memory=x:memory=1"],
         ['--reserved-memory is "x:memory=1": must be like 0:memory=1Gi,hugepages-1Gi=2Gi']),
        (["--reserved-memory=0"],
         ['--reserved-memory is "0": must be like 0:memory=1Gi,hugepages-1Gi=2Gi']),
        (["--kube-reserved==5"], ['--kube-reserved is "=5": must be like key=value,other=value']),
        (["--vmodule=a"], ['--vmodule is "a": must be like pattern=3,other=4']),
        (["--feature-gates=A=x"], ['--feature-gates is "A=x": must be true or false']),
        (["--minimum-container-ttl-duration=5"],
         ['--minimum-container-ttl-duration is "5": must be a duration such as 10s or 1m30s']),
        (["--node-labels=kubernetes.io/x=y,a=b c"],
         ["--node-labels kubernetes.io/x: a node may not give itself this kubernetes.io or k8s.io "
          "label", "--node-labels a is b c: is not a label value"]),
    ],
)  # fmt: skip
def test_messages_about_flags(arguments: list[str], stated: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse_flags(arguments)
    assert [str(problem) for problem in caught.value.problems] == stated


def test_the_flags_of_a_node() -> None:
    node = config.parse_flags(
        ["-h", "--version", "--node-labels=a=b", "--minimum-container-ttl-duration=5s",
         "--maximum-dead-containers=3", "--lock-file", "/l"]
    ).node  # fmt: skip
    assert node == config.NodeFlags(
        help=True, version="true", node_labels={"a": "b"}, minimum_container_ttl_duration=5.0,
        maximum_dead_containers=3, lock_file="/l",
    )  # fmt: skip
    assert config.parse_flags([]).node == config.NodeFlags(
        cert_dir="/var/lib/kubelet/pki",
        root_dir="/var/lib/kubelet",
        maximum_dead_containers=-1,
        maximum_dead_containers_per_container=1,
        minimum_container_ttl_duration=0.0,
        exit_on_lock_contention=False,
        experimental_allocatable_ignore_eviction=False,
        keep_kernel_settings=False,
        no_cluster_dns=False,
        help=False,
        version="",
    )


def test_the_texts_of_flags() -> None:
    text = "kubeReserved: {memory: 1Gi, cpu: 100m}\nfailSwapOn: false\nenforceNodeAllocatable: []\n"
    text += "registerWithTaints: [{key: a, effect: NoExecute}]\nfeatureGates: {MemoryQoS: false}\n"
    flags = config.parse_flags(["--node-ip=10.0.0.1", "--keep-kernel-settings"])
    found = flag_texts(config.load(HEAD + text, (), flags).settings, flags.node)
    expected = {
        "kube-reserved": "cpu=100m,memory=1Gi",
        "fail-swap-on": "false",
        "enforce-node-allocatable": "[]",
        "register-with-taints": "[effect=NoExecute,key=a]",
        "feature-gates": "MemoryQoS=false",
        "node-ip": "10.0.0.1",
        "keep-kernel-settings": "true",
        "exit-on-lock-contention": "false",
        "max-pods": "110",
        "cluster-dns": "[]",
    }
    assert {name: found.get(name) for name in expected} == expected
    assert "containerd" not in found


def test_problems_as_text() -> None:
    one = Problem("f", "1", "must be 2", "file")
    assert str(ConfigError([one])) == "1 problem in the configuration:\n  file: f is 1: must be 2"
    two = Problem("--f", "", "is required", "--f")
    assert str(ConfigError([one, two])) == (
        "2 problems in the configuration:\n  file: f is 1: must be 2\n  --f: is required"
    )
    assert str(Problem("f", "", "is required")) == "f: is required"
    assert show("f", "x" * 98) == f'"{"x" * 98}"'
    assert show("f", "x" * 99) == f'"{"x" * 98}…'
    assert show("f", {1}) == "{1}"


HOST = {"cgroup_version": 1, "swap_on": True, "online_cpus": frozenset({0, 2})}


def test_a_machine_that_does_not_fit() -> None:
    settings = config.default_settings(
        singleProcessOOMKill=False, memorySwap={"swapBehavior": "LimitedSwap"},
        reservedSystemCPUs="0-3",
    )  # fmt: skip
    assert [str(problem) for problem in check_host(settings, **HOST)] == [  # type: ignore[arg-type]
        "failCgroupV1 is true: this machine uses cgroup v1: boot it with cgroup v2, or set it to "
        "false",
        "singleProcessOOMKill is false: must not be false on cgroup v1",
        "memorySwap.swapBehavior is LimitedSwap: needs cgroup v2",
        "failSwapOn is true: this machine has swap on: turn it off (swapoff -a), or set it to "
        "false",
        "reservedSystemCPUs is 0-3: CPUs not online here: 1,3",
    ]
    more = {**HOST, "cgroup_version": 2, "swap_on": False, "online_cpus": None}
    assert check_host(settings, **more) == []  # type: ignore[arg-type]


def test_where_images_are_pulled() -> None:
    settings = config.default_settings(containerRuntimeEndpoint="unix:///r")
    assert settings.image_endpoint == "unix:///r"
    settings = config.default_settings(imageServiceEndpoint="unix:///i")
    assert settings.image_endpoint == "unix:///i"
