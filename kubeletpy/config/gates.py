"""Feature gates: the names the kubelet knows, their defaults, what a user may change. Pure.

Source: docs/reference/features.csv. A locked gate may be named only with its own default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from kubeletpy.config.problems import Report

# Name and stage; "+" is on by default, "!" is locked to its default.
_TABLE = """
AllAlpha Alpha
AllBeta Beta
LoggingAlphaOptions Alpha
LoggingBetaOptions Beta+
ContextualLogging Beta+
AllowDNSOnlyNodeCSR Deprecated
CPUManagerPolicyAlphaOptions Alpha
CPUManagerPolicyBetaOptions Beta+
CRIListStreaming Alpha
CSIVolumeHealth Alpha
ChangeContainerStatusOnKubeletRestart Deprecated
ClusterTrustBundleProjection Beta
ComponentFlagz Beta+
ComponentStatusz Beta+
ContainerCheckpoint Beta+
ContainerRestartRules Beta+
ContainerStopSignals Alpha
CustomCPUCFSQuotaPeriod GA+
DRAExtendedResource Beta+
DRAWorkloadResourceClaims Alpha
DisableCPUQuotaWithExclusiveCPUs Deprecated+
DisableNodeKubeProxyVersion Deprecated+!
DynamicResourceAllocation GA+!
EnvFiles Beta+
EventedPLEG Alpha
ExtendWebSocketsToKubelet Beta+
GitRepoVolumeDriver Deprecated!
GracefulNodeShutdown Beta+
GracefulNodeShutdownBasedOnPodPriority Beta+
HostnameOverride Beta+
ImageMaximumGCAge GA+!
ImageVolume GA+!
ImageVolumeWithDigest Alpha
InPlacePodLevelResourcesVerticalScaling Beta+
InPlacePodVerticalScaling GA+!
InPlacePodVerticalScalingExclusiveCPUs Alpha
InPlacePodVerticalScalingExclusiveMemory Alpha
InPlacePodVerticalScalingInitContainers Beta+
KubeletCrashLoopBackOffMax Beta+
KubeletEnsureSecretPulledImages Beta+
KubeletFineGrainedAuthz GA+!
KubeletInUserNamespace Alpha
KubeletPSI GA+!
KubeletPodResourcesGet GA+!
KubeletPodResourcesListUseActivePods Deprecated+
KubeletRegistrationGetOnExistsOnly Deprecated
KubeletSeparateDiskGC Beta+
KubeletServiceAccountTokenForCredentialProviders Beta+
LocalStorageCapacityIsolationFSQuotaMonitoring Beta
MemoryQoS Alpha
MutableCSINodeAllocatableCount GA+!
NodeDeclaredFeatures Beta+
NodeLogQuery GA+!
NodeSwap GA+!
PLEGOnDemandRelist Beta+
PodAndContainerStatsFromCRI Alpha
PodCertificateRequest Beta
PodLevelResourceManagers Alpha
PodLevelResources Beta+
PodLifecycleSleepAction GA+!
PodLogsQuerySplitStreams Alpha
PodObservedGenerationTracking GA+!
PodReadyToStartContainersCondition Beta+
PodsAPI Alpha
PreventStaticPodAPIReferences Beta+
QOSReserved Alpha
RecoverVolumeExpansionFailure GA+!
RecursiveReadOnlyMounts GA+!
ReduceDefaultCrashLoopBackOffDecay Alpha
ReloadKubeletClientCAFile Beta+
ReloadKubeletServerCertificateFile Beta+
ResourceHealthStatus Beta+
ResourceHealthStatusMessage Beta+
RestartAllContainersOnContainerExits Beta+
RotateKubeletServerCertificate Beta+
RuntimeClassInImageCriApi Alpha
SELinuxChangePolicy GA+!
SELinuxMount Beta
SELinuxMountReadWriteOncePod GA+!
SupplementalGroupsPolicy GA+!
TaintTolerationComparisonOperators Alpha
TopologyManagerPolicyAlphaOptions Alpha
TopologyManagerPolicyBetaOptions Beta+
TopologyManagerPolicyOptions GA+!
UserNamespacesSupport GA+!
WindowsCPUAndMemoryAffinity Alpha
WindowsGracefulNodeShutdown Beta+
"""


@dataclass(frozen=True, slots=True)
class Gate:
    """One known gate; stage is Alpha, Beta, GA or Deprecated, a locked one keeps its default."""

    name: str
    stage: str
    default: bool
    locked: bool


def _read_table() -> dict[str, Gate]:
    gates = {}
    for line in _TABLE.split("\n"):
        if line:
            name, stage = line.split()
            gates[name] = Gate(name, stage.rstrip("+!"), "+" in stage, "!" in stage)
    return gates


GATES: Mapping[str, Gate] = MappingProxyType(_read_table())


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """Which features are on.

    Attributes:
        explicit: what the user said, by gate.
        effective: every known gate.
    """

    explicit: Mapping[str, bool]
    effective: Mapping[str, bool]

    def enabled(self, name: str) -> bool:
        """Whether a gate is on. Raises KeyError for a gate that does not exist."""
        return self.effective[name]


def resolve(explicit: Mapping[str, bool]) -> FeatureGates:
    """Every gate's value. AllAlpha and AllBeta move what the user left alone in their stage."""
    effective = {}
    for gate in GATES.values():
        value = gate.default
        switch = f"All{gate.stage}"
        if switch in explicit and not gate.locked:
            value = explicit[switch]
        effective[gate.name] = explicit.get(gate.name, value)
    return FeatureGates(MappingProxyType(dict(explicit)), MappingProxyType(effective))


def decode_gates(value: object, at: str, report: Report) -> Mapping[str, bool]:
    """Read ``featureGates``: known names, true or false, locked ones unchanged."""
    if not isinstance(value, dict):
        report.add(at, value, "must be a map from gate names to true or false")
        return {}
    gates = {}
    for name, on in value.items():
        gate = GATES.get(name)
        if gate is None:
            near = get_close_matches(str(name), GATES, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            report.add(f"{at}.{name}", on, f"no such feature gate{hint}")
        elif not isinstance(on, bool):
            report.add(f"{at}.{name}", on, "must be true or false")
        elif gate.locked and on != gate.default:
            fixed = "true" if gate.default else "false"
            report.add(f"{at}.{name}", on, f"this gate is locked to {fixed}")
        else:
            gates[name] = on
    return gates


def warnings(explicit: Mapping[str, bool]) -> list[str]:
    """Warnings about gates that are named though they no longer matter."""
    reported = []
    for name in sorted(explicit):
        gate = GATES[name]
        if gate.stage in ("GA", "Deprecated"):
            reported.append(
                f"feature gate {name} is {gate.stage}: it will be removed, stop setting it"
            )
    return reported
