"""Rules across fields: each message, and neighboring values that are allowed.

The rules are those of docs/reference/config.csv (columns allowed and notes).
"""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy import config

OFF = {"GracefulNodeShutdown": False, "GracefulNodeShutdownBasedOnPodPriority": False}
PRIORITY = {"shutdownGracePeriodByPodPriority": [{"priority": 1, "shutdownGracePeriodSeconds": 2}]}
VERIFY = "imagePullCredentialsVerificationPolicy"
LISTED = {"preloadedImagesVerificationAllowlist": ["a/b"]}
SOFT = {"evictionSoftGracePeriod": {"memory.available": "1m", "imagefs.available": "1m"}}
POLICY, ALLOWLIST = VERIFY, "preloadedImagesVerificationAllowlist"
GATE_OFF = "must not be set while feature gate KubeletEnsureSecretPulledImages is off"
PATH = "must be the path of a cgroup below the root, such as /system"
CPUS = "not together with systemReservedCgroup or kubeReservedCgroup"
HARD = "is never reached: evictionHard"
CASES: list[tuple[dict[str, Any], list[str]]] = [
    # images
    ({"imageGCLowThresholdPercent": 84}, []),
    (
        {"imageGCLowThresholdPercent": 85},
        ["imageGCLowThresholdPercent is 85: must be less than imageGCHighThresholdPercent (85)"],
    ),
    (
        {"imageGCHighThresholdPercent": 79},
        ["imageGCLowThresholdPercent is 80: must be less than imageGCHighThresholdPercent (79)"],
    ),
    (
        {"imageMaximumGCAge": "2m"},
        ['imageMaximumGCAge is "120s": must be 0s or more than imageMinimumGCAge (120s)'],
    ),
    ({"imageMaximumGCAge": "2m1s"}, []),
    (
        {"imageMaximumGCAge": "1s", "imageMinimumGCAge": "2s"},
        ['imageMaximumGCAge is "1s": must be 0s or more than imageMinimumGCAge (2s)'],
    ),
    ({"maxParallelImagePulls": 1, "serializeImagePulls": True}, []),
    (
        {"maxParallelImagePulls": 2, "serializeImagePulls": True},
        ["maxParallelImagePulls is 2: more than 1 needs serializeImagePulls: false"],
    ),
    ({"maxParallelImagePulls": 2, "serializeImagePulls": False}, []),
    ({"maxParallelImagePulls": 2}, []),
    ({VERIFY: "NeverVerifyAllowlistedImages", **LISTED}, []),
    (
        {VERIFY: "AlwaysVerify", **LISTED},
        [
            'preloadedImagesVerificationAllowlist is ["a/b"]: only with '
            f"{VERIFY}: NeverVerifyAllowlistedImages"
        ],
    ),
    ({VERIFY: "AlwaysVerify"}, []),
    ({"featureGates": {"KubeletEnsureSecretPulledImages": False}}, []),
    (
        {"featureGates": {"KubeletEnsureSecretPulledImages": False}, VERIFY: "NeverVerify"},
        [f'imagePullCredentialsVerificationPolicy is "NeverVerify": {GATE_OFF}'],
    ),
    (
        {"featureGates": {"KubeletEnsureSecretPulledImages": False}, **LISTED},
        [f'preloadedImagesVerificationAllowlist is ["a/b"]: {GATE_OFF}'],
    ),
    (
        {
            "featureGates": {"KubeletEnsureSecretPulledImages": False},
            VERIFY: "NeverVerifyAllowlistedImages",
            **LISTED,
        },
        [
            f'imagePullCredentialsVerificationPolicy is "NeverVerifyAllowlistedImages": {GATE_OFF}',
            f'preloadedImagesVerificationAllowlist is ["a/b"]: {GATE_OFF}',
        ],
    ),
    # cgroups
    ({"cgroupsPerQOS": False, "enforceNodeAllocatable": ["none"]}, []),
    ({"cgroupsPerQOS": False, "enforceNodeAllocatable": []}, []),
    (
        {"cgroupsPerQOS": False, "enforceNodeAllocatable": ["pods"]},
        ["cgroupsPerQOS is false: must be true unless enforceNodeAllocatable is empty or [none]"],
    ),
    (
        {"enforceNodeAllocatable": ["system-reserved", "kube-reserved-compressible"]},
        [
            'systemReservedCgroup is "": is needed by system-reserved in enforceNodeAllocatable',
            'kubeReservedCgroup is "": is needed by kube-reserved in enforceNodeAllocatable',
        ],
    ),
    ({"enforceNodeAllocatable": ["system-reserved"], "systemReservedCgroup": "/s"}, []),
    ({"enforceNodeAllocatable": ["kube-reserved"], "kubeReservedCgroup": "/k"}, []),
    ({"systemCgroups": "/system"}, ['systemCgroups is "/system": needs cgroupRoot']),
    ({"systemCgroups": "/system", "cgroupRoot": "/"}, []),
    ({"systemCgroups": "/", "cgroupRoot": "/"}, [f'systemCgroups is "/": {PATH}']),
    ({"kubeletCgroups": "//"}, [f'kubeletCgroups is "//": {PATH}']),
    ({"kubeletCgroups": "/a/./b"}, [f'kubeletCgroups is "/a/./b": {PATH}']),
    ({"kubeletCgroups": "/a/../b"}, [f'kubeletCgroups is "/a/../b": {PATH}']),
    ({"kubeletCgroups": "/a\0"}, [f'kubeletCgroups is "/a\\u0000": {PATH}']),
    ({"kubeletCgroups": "/kube.slice"}, []),
    ({"kubeletCgroups": ""}, []),
    ({"reservedSystemCPUs": "0-1"}, []),
    (
        {"reservedSystemCPUs": "0-1", "systemReservedCgroup": "/s"},
        [f'reservedSystemCPUs is "0-1": {CPUS}'],
    ),
    (
        {"reservedSystemCPUs": "0-1", "kubeReservedCgroup": "/k"},
        [f'reservedSystemCPUs is "0-1": {CPUS}'],
    ),
    ({"systemReservedCgroup": "/s", "kubeReservedCgroup": "/k"}, []),
    # eviction; evictionHard is 100Mi, 15% by default
    ({"evictionSoft": {"memory.available": "100Mi"}, **SOFT}, []),
    (
        {"evictionSoft": {"memory.available": "99Mi"}, **SOFT},
        [
            f'evictionSoft.memory.available is "99Mi": {HARD}.memory.available is 100Mi, which '
            f"comes first"
        ],
    ),
    ({"evictionSoft": {"memory.available": "1%"}, **SOFT}, []),
    ({"evictionSoft": {"imagefs.available": "15%"}, **SOFT}, []),
    (
        {"evictionSoft": {"imagefs.available": "9%"}, **SOFT},
        [
            f'evictionSoft.imagefs.available is "9%": {HARD}.imagefs.available is 15%, which '
            f"comes first"
        ],
    ),
    ({"evictionSoft": {"imagefs.available": "0%"}, **SOFT}, []),
    ({"evictionSoft": {"imagefs.available": "1Gi"}, **SOFT}, []),
    (
        {
            "evictionSoft": {"imagefs.available": "9%"},
            "evictionHard": {"imagefs.available": "100%"},
            **SOFT,
        },
        [],
    ),
    (
        {"evictionSoft": {"pid.available": "1"}, **SOFT},
        ['evictionSoft.pid.available is "1": needs evictionSoftGracePeriod.pid.available'],
    ),
    (
        {"evictionSoft": {"memory.available": "1Mi"}},
        [
            'evictionSoft.memory.available is "1Mi": needs '
            "evictionSoftGracePeriod.memory.available",
            f'evictionSoft.memory.available is "1Mi": {HARD}.memory.available is 100Mi, which '
            f"comes first",
        ],
    ),
    # fields behind a gate
    ({"serverTLSBootstrap": True}, []),
    ({"featureGates": {"RotateKubeletServerCertificate": False}}, []),
    (
        {"featureGates": {"RotateKubeletServerCertificate": False}, "serverTLSBootstrap": True},
        ["serverTLSBootstrap is true: needs feature gate RotateKubeletServerCertificate"],
    ),
    (
        {"qosReserved": {"memory": "50%"}},
        ['qosReserved is {"memory": "50%"}: needs feature gate QOSReserved'],
    ),
    ({"featureGates": {"QOSReserved": True}, "qosReserved": {"memory": "50%"}}, []),
    (
        {"featureGates": {"CustomCPUCFSQuotaPeriod": False}, "cpuCFSQuotaPeriod": "5ms"},
        ['cpuCFSQuotaPeriod is "0.005s": needs feature gate CustomCPUCFSQuotaPeriod'],
    ),
    ({"featureGates": {"CustomCPUCFSQuotaPeriod": False}, "cpuCFSQuotaPeriod": "100ms"}, []),
    ({"cpuCFSQuotaPeriod": "5ms"}, []),
    ({"featureGates": {"KubeletCrashLoopBackOffMax": False}}, []),
    (
        {
            "featureGates": {"KubeletCrashLoopBackOffMax": False},
            "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
        },
        [
            'crashLoopBackOff.maxContainerRestartPeriod is "2s": needs feature gate '
            "KubeletCrashLoopBackOffMax"
        ],
    ),
    ({"crashLoopBackOff": {"maxContainerRestartPeriod": "2s"}}, []),
    (
        {"memoryReservationPolicy": "TieredReservation", "featureGates": {"MemoryQoS": False}},
        ['memoryReservationPolicy is "TieredReservation": needs feature gate MemoryQoS'],
    ),
    ({"memoryReservationPolicy": "TieredReservation"}, []),
    (
        {"logging": {"options": {"text": {"splitStream": True}}}},
        ["logging.options: needs feature gate LoggingAlphaOptions"],
    ),
    (
        {"logging": {"options": {"json": {"infoBufferSize": "1Ki"}}}},
        ["logging.options: needs feature gate LoggingAlphaOptions"],
    ),
    (
        {
            "featureGates": {"LoggingAlphaOptions": True},
            "logging": {"options": {"json": {"infoBufferSize": "1Ki", "splitStream": True}}},
        },
        [],
    ),
    # logs
    ({"enableSystemLogQuery": True, "enableSystemLogHandler": True}, []),
    (
        {"enableSystemLogQuery": True, "enableSystemLogHandler": False},
        ["enableSystemLogQuery is true: needs enableSystemLogHandler: true"],
    ),
    ({"enableSystemLogQuery": False, "enableSystemLogHandler": False}, []),
    ({"logging": {"vmodule": [{"filePattern": "a", "verbosity": 1}]}}, []),
    (
        {"logging": {"format": "json", "vmodule": [{"filePattern": "a", "verbosity": 1}]}},
        ["logging.vmodule: only with logging.format: text"],
    ),
    ({"logging": {"format": "json"}}, []),
    # shutdown
    ({"shutdownGracePeriod": "9s", "shutdownGracePeriodCriticalPods": "9s"}, []),
    (
        {"shutdownGracePeriod": "9s", "shutdownGracePeriodCriticalPods": "10s"},
        [
            'shutdownGracePeriodCriticalPods is "10s": must not be more than '
            "shutdownGracePeriod (9s)"
        ],
    ),
    ({"featureGates": OFF}, []),
    (
        {"featureGates": OFF, "shutdownGracePeriod": "9s"},
        ['shutdownGracePeriod is "9s": needs feature gate GracefulNodeShutdown'],
    ),
    (
        {"featureGates": OFF, "shutdownGracePeriodCriticalPods": "1s"},
        ['shutdownGracePeriodCriticalPods is "1s": must not be more than shutdownGracePeriod (0s)'],
    ),
    (
        {"featureGates": OFF, **PRIORITY},
        [
            "shutdownGracePeriodByPodPriority: needs feature gate "
            "GracefulNodeShutdownBasedOnPodPriority"
        ],
    ),
    (PRIORITY, []),
    (
        {"shutdownGracePeriod": "9s", **PRIORITY},
        ["shutdownGracePeriodByPodPriority: not together with shutdownGracePeriod(CriticalPods)"],
    ),
    # user namespaces
    ({"userNamespaces": {"idsPerPod": 131072}}, []),
    (
        {"userNamespaces": {"idsPerPod": 131073}},
        ["userNamespaces.idsPerPod is 131073: must be a multiple of 65536"],
    ),
    # a rule is checked only when the fields it reads are valid by themselves
    (
        {"imageGCHighThresholdPercent": 101, "imageGCLowThresholdPercent": 90},
        ["imageGCHighThresholdPercent is 101: must be from 0 to 100"],
    ),
]


@pytest.mark.parametrize(("document", "stated"), CASES)
def test_messages_of_the_rules(document: dict[str, Any], stated: list[str]) -> None:
    try:
        config.default_settings(**document)
    except config.ConfigError as error:
        assert [str(problem) for problem in error.problems] == stated
    else:
        assert stated == []


# Flags are read as Go programs read them.


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--max-pods", "5"], "maxPods", 5),
        (["--max-pods=0x10"], "maxPods", 16),
        (["--max_pods=5"], "maxPods", 5),
        (["--max-pods=5", "--max-pods=6"], "maxPods", 6),
        (["-v", "3"], "logging.verbosity", 3),
        (["-v=3"], "logging.verbosity", 3),
        (["-v3"], "logging.verbosity", 3),
        (["--v=3"], "logging.verbosity", 3),
        (["--fail-swap-on=F"], "failSwapOn", False),
        (["--fail-swap-on"], "failSwapOn", True),
        (["--cluster-dns=1.1.1.1,2.2.2.2", "--cluster-dns", "3.3.3.3"], "clusterDNS",
         ["1.1.1.1", "2.2.2.2", "3.3.3.3"]),
        (["--enforce-node-allocatable="], "enforceNodeAllocatable", []),
        (["--eviction-hard=memory.available<1Gi,nodefs.available<5%"], "evictionHard",
         {"memory.available": "1Gi", "nodefs.available": "5%"}),
        (["--register-with-taints=a/b=c:NoSchedule,d=:NoExecute,e:NoSchedule"],
         "registerWithTaints",
         [{"key": "a/b", "value": "c", "effect": "NoSchedule"},
          {"key": "d", "value": "", "effect": "NoExecute"},
          {"key": "e", "value": "", "effect": "NoSchedule"}]),
        (["--reserved-memory", "0:memory=1Gi,hugepages-1Gi=2Gi", "--reserved-memory=1:memory=2Gi"],
         "reservedMemory",
         [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1Gi": "2Gi"}},
          {"numaNode": 1, "limits": {"memory": "2Gi"}}]),
        (["--manifest-url-header=a:b,a:c"], "staticPodURLHeader", {"a": ["b", "c"]}),
        (["--vmodule=x*=3"], "logging.vmodule", [{"filePattern": "x*", "verbosity": 3}]),
        (["--max-pods", "-5"], "maxPods", -5),
        (["-v", "3", "-v4"], "logging.verbosity", 4),
        (["--v", "3"], "logging.verbosity", 3),
        (["--eviction-minimum-reclaim= memory.available = 1Gi , "], "evictionMinimumReclaim",
         {"memory.available": "1Gi"}),
        (["--feature-gates=A=true,B=F", "--feature-gates=C=1"], "featureGates",
         {"A": True, "B": False, "C": True}),
        (["--reserved-memory=0:memory=1Gi;1:memory=2Gi; "], "reservedMemory",
         [{"numaNode": 0, "limits": {"memory": "1Gi"}},
          {"numaNode": 1, "limits": {"memory": "2Gi"}}]),
        (["--manifest-url-header= a : b "], "staticPodURLHeader", {"a": ["b"]}),
        (["--fail-swap-on=false", "--fail-swap-on=t"], "failSwapOn", True),
        (["--fail-swap-on=t", "--fail-swap-on=0"], "failSwapOn", False),
    ],
)  # fmt: skip
def test_forms(arguments: list[str], field: str, value: object) -> None:
    assert config.parse_flags(arguments).fields[field].value == value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-pod=5"], "--max-pod: no such flag; did you mean --max-pods?"),
        (["-x"], "-x: no such flag"),
        (["run"], "run: is not a flag"),
        (["--", "a"], "a: is not a flag"),
        (["--max-pods"], "--max-pods: needs a value"),
        (["--max-pods=a"], '--max-pods is "a": must be a whole number'),
        (["--fail-swap-on=maybe"], "must be true or false"),
        (["--kube-reserved=cpu"], "must be like key=value"),
        (["--eviction-hard=memory.available=5"], "must be like memory.available<100Mi"),
        (["--register-with-taints=a"], "must be like key=value:NoSchedule"),
        (["--manifest-url-header=Authorization"], "<masked>"),
        (["-"], "-: is not a flag"),
        (["-v"], "--v: needs a value"),
        (["-max-pods=5"], "-max-pods: no such flag"),
        (["--nonsense-of-a-flag", "value"], "--nonsense-of-a-flag: no such flag"),
        (["--nonsense-of-a-flag=value"], "--nonsense-of-a-flag: no such flag"),
        (["--nonsense-of-a-flag"], "--nonsense-of-a-flag: no such flag"),
        (["--nonsense-of-a-flag", "--max-pods=5"], "--nonsense-of-a-flag: no such flag"),
        (["--kube-reserved==5"], "must be like key=value"),
        (["--reserved-memory=0"], "must be like 0:memory=1Gi,hugepages-1Gi=2Gi"),
        (["--reserved-memory=a:memory=1Gi"], "must be like 0:memory=1Gi,hugepages-1Gi=2Gi"),
        (["--minimum-container-ttl-duration=5"], "must be a duration such as 10s or 1m30s"),
        (["--version=maybe"], "must be true, false or raw"),
        (["--exit-on-lock-contention"], "needs --lock-file"),
        (["--node-labels=node-role.kubernetes.io/x="], "may not give itself"),
        (["--node-labels=a b=c"], "is not a label key"),
        (["--node-ip=foo"], '--node-ip is "foo": must be an IP address'),
        (["--node-ip=,"], '--node-ip is ",": must be an IP address'),
        (["--node-ip=10.0.0.1,10.0.0.2"], "an IPv4 and an IPv6 address"),
        (["--node-ip=10.0.0.1,fd00::1,fd00::2"], "an IPv4 and an IPv6 address"),
        (["--node-ip=0.0.0.0,::"], "stand alone"),
        (["--node-ip=fe80::1%eth0"], '--node-ip is "fe80::1%eth0": must be an IP address'),
        (["--node-ip=10.0.0.1,::ffff:10.0.0.2"], "an IPv4 and an IPv6 address"),
        (["--hostname-override=my_host"], '--hostname-override is "my_host"'),
        (["--hostname-override=-a"], "must be a node's name"),
        (["--hostname-override=" + "a" * 254], "must be a node's name"),
    ],
)
def test_errors(arguments: list[str], message: str) -> None:
    with pytest.raises(config.ConfigError) as caught:
        config.parse_flags(arguments)
    assert len(caught.value.problems) == 1
    assert message in str(caught.value)


def test_node_flags() -> None:
    labels = "a=b,kubernetes.io/arch=x,node.kubernetes.io/x=y,my.kubelet.kubernetes.io/z="
    node = config.parse_flags(
        ["--kubeconfig=/k", f"--node-labels={labels}", "--hostname-override", "n"]
    ).node
    assert (node.kubeconfig, node.hostname_override, len(node.node_labels)) == ("/k", "n", 4)
    assert node.root_dir == "/var/lib/kubelet"


def test_warnings() -> None:
    flags = config.parse_flags(["--max-pods=5", "--containerd=/x", "--v=2"])
    assert flags.warnings == (
        "flag --max-pods is deprecated: set maxPods in the file given to --config",
    )
    assert flags.ignored == {"containerd": "/x"}


@pytest.mark.parametrize(
    "flag",
    [
        "--node-ip=10.0.0.1",
        "--node-ip=fd00::1",
        "--node-ip=10.0.0.1, fd00::1",
        "--node-ip=fd00::1,10.0.0.1",
        "--node-ip=0.0.0.0",
        "--node-ip=::",
        "--node-ip=",
        "--hostname-override= Node-1.Example ",
        "--hostname-override=",
    ],
)
def test_names_and_addresses_of_a_node(flag: str) -> None:
    name, _, value = flag.removeprefix("--").partition("=")
    assert getattr(config.parse_flags([flag]).node, name.replace("-", "_")) == value


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        (["a", "--max-pods=b", "-", "--x=1", "c"], ["a", "-", "--x", "c", "--max-pods"]),
        (["--max-pods=5", "--", "a", "--b"], ["a", "--b"]),
        (["--nonsense-of-a-flag=1", "value"], ["--nonsense-of-a-flag", "value"]),
        (["--fail-swap-on", "false"], ["false"]),
        (["--version", "raw"], ["raw"]),
    ],
)
def test_all_errors_at_once(arguments: list[str], problems: list[str]) -> None:
    with pytest.raises(config.ConfigError) as caught:
        config.parse_flags(arguments)
    assert [problem.field for problem in caught.value.problems] == problems


@pytest.mark.parametrize(
    ("argument", "version"),
    [
        ("--version", "true"),
        ("--version=1", "true"),
        ("--version=raw", "raw"),
        ("--version=false", ""),
    ],
)
def test_the_version(argument: str, version: str) -> None:
    assert config.parse_flags([argument]).node.version == version


@pytest.mark.parametrize(
    ("flag", "warnings"),
    [
        ("--max-pods=5",
         ["flag --max-pods is deprecated: set maxPods in the file given to --config"]),
        ("--minimum-container-ttl-duration=5s",
         ["flag --minimum-container-ttl-duration is deprecated"]),
        ("--node-ip=::", []),
        ("--containerd=x", []),
    ],
)  # fmt: skip
def test_each_deprecated_flag_is_reported(flag: str, warnings: list[str]) -> None:
    assert list(config.parse_flags([flag]).warnings) == warnings
