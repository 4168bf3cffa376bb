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
    (
        {"systemCgroups": "/", "cgroupRoot": "/"},
        [f'systemCgroups is "/": {PATH}'],
    ),
    (
        {"kubeletCgroups": "//"},
        [f'kubeletCgroups is "//": {PATH}'],
    ),
    (
        {"kubeletCgroups": "/a/./b"},
        [f'kubeletCgroups is "/a/./b": {PATH}'],
    ),
    (
        {"kubeletCgroups": "/a/../b"},
        [f'kubeletCgroups is "/a/../b": {PATH}'],
    ),
    (
        {"kubeletCgroups": "/a\0"},
        [f'kubeletCgroups is "/a\\u0000": {PATH}'],
    ),
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
        [
            'shutdownGracePeriodCriticalPods is "1s": must not be more than '
            "shutdownGracePeriod (0s)",
        ],
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
