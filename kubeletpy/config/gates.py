"""Feature gates: the names the kubelet knows, their defaults, what a user may change. Pure.

Source: docs/reference/features.csv. A locked gate may be named only with its own default. Gates of
other components are known by name (:mod:`kubeletpy.config.gates_elsewhere`) and change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from kubeletpy.config import gates_elsewhere
from kubeletpy.config.problems import Report
from kubeletpy.structs import Struct

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


class Gate(Struct, frozen=True):
    """One known gate; stage is Alpha, Beta, GA or Deprecated, a locked one keeps its default."""

    name: str
    stage: str
    default: bool
    locked: bool


def _read_table() -> dict[str, Gate]:
    gates = {}
    for line in (_TABLE + gates_elsewhere.TABLE).split("\n"):
        if line:
            name, stage = line.split()
            gates[name] = Gate(name, stage.rstrip("+!"), "+" in stage, "!" in stage)
    return gates


GATES: Mapping[str, Gate] = MappingProxyType(_read_table())

_CLIENT = "the client of the API is not client-go"
_WINDOWS = "only Windows has it"
HERE: Mapping[str, tuple[bool, str]] = MappingProxyType(
    {
        "CRIListStreaming": (True, "lists are streamed wherever the runtime can"),
        "ChangeContainerStatusOnKubeletRestart": (
            False,
            "containers stay ready when the agent starts again",
        ),
        "ContainerRestartRules": (True, "restartPolicyRules are obeyed"),
        "ContextualLogging": (True, "lines have the fields of their context"),
        "DRAExtendedResource": (True, "claims for extended resources are prepared"),
        "DRAWorkloadResourceClaims": (False, "claims of PodGroups are not known"),
        "EnvFiles": (True, "fileKeyRef is obeyed"),
        "EventedPLEG": (True, "the runtime's events are used wherever there are any"),
        "ExtendWebSocketsToKubelet": (True, "WebSockets are spoken"),
        "HostnameOverride": (True, "hostnameOverride is obeyed"),
        "ImageVolumeWithDigest": (False, "statuses do not show the digests of image volumes"),
        "InPlacePodVerticalScalingInitContainers": (True, "init containers are resized too"),
        "InPlacePodVerticalScalingExclusiveCPUs": (
            False,
            "a resize of a pod with CPUs of its own is infeasible",
        ),
        "InPlacePodVerticalScalingExclusiveMemory": (
            False,
            "a resize of a pod with booked memory is infeasible",
        ),
        "KubeletInUserNamespace": (False, "what the kernel forbids is named in the log"),
        "KubeletPodResourcesListUseActivePods": (True, "only active pods are listed"),
        "KubeletRegistrationGetOnExistsOnly": (
            True,
            "the node is read only when it can't be created",
        ),
        "KubeletSeparateDiskGC": (True, "a file system of images of its own is known as one"),
        "LocalStorageCapacityIsolationFSQuotaMonitoring": (False, "files are counted by looking"),
        "PLEGOnDemandRelist": (True, "what has changed is looked at once"),
        "PodLevelResourceManagers": (False, "CPUs and memory are given to containers alone"),
        "PodReadyToStartContainersCondition": (True, "the condition is shown"),
        "PreventStaticPodAPIReferences": (True, "static pods that need the API are refused"),
        "ReduceDefaultCrashLoopBackOffDecay": (False, "the first delay is 10 s, the longest 300 s"),
        "ReloadKubeletClientCAFile": (True, "the file is read again when it changes"),
        "ReloadKubeletServerCertificateFile": (True, "the file is read again when it changes"),
        "RestartAllContainersOnContainerExits": (True, "the action is obeyed"),
        "RuntimeClassInImageCriApi": (False, "images are the same for all runtime classes"),
        "TaintTolerationComparisonOperators": (False, "tolerations with Gt and Lt match nothing"),
        "TopologyManagerPolicyAlphaOptions": (False, "there are no such options"),
        "TopologyManagerPolicyBetaOptions": (True, "there are no such options"),
        "UserNamespacesHostNetworkSupport": (
            False,
            "pods on the node's network have its users",
        ),
        "WindowsCPUAndMemoryAffinity": (False, _WINDOWS),
        "WindowsGracefulNodeShutdown": (True, _WINDOWS),
        **{
            name: (on, _CLIENT)
            for name, on in (
                ("AtomicFIFO", True),
                ("ClientsAllowCARotation", True),
                ("ClientsAllowCBOR", False),
                ("ClientsAllowTLSCacheGC", True),
                ("ClientsPreferCBOR", False),
                ("InOrderInformersBatchProcess", True),
                ("InformerResourceVersion", True),
                ("UnlockWhileProcessingFIFO", True),
                ("WatchListClient", True),
            )
        },
    }
)
"""Gates that no code checks: the value in effect whatever is set, and what that means."""


class FeatureGates(Struct, frozen=True):
    """Which features are on.

    Attributes:
        explicit: what the user set, by gate.
        effective: every known gate's value in this agent.
        asked: the values that the user asked for explicitly or that differ from a default.
    """

    explicit: Mapping[str, bool]
    effective: Mapping[str, bool]
    asked: Mapping[str, bool]

    def enabled(self, name: str) -> bool:
        """Whether a gate is on. Raises KeyError for a gate that does not exist."""
        return self.effective[name]


def resolve(explicit: Mapping[str, bool]) -> FeatureGates:
    """Every gate's value. AllAlpha and AllBeta set what the user left alone in their stage."""
    effective, asked = {}, {}
    for gate in GATES.values():
        value = gate.default
        switch = f"All{gate.stage}"
        if switch in explicit:
            value = explicit[switch]
        value = explicit.get(gate.name, value)
        if gate.name in explicit or value != gate.default:
            asked[gate.name] = value
        effective[gate.name] = HERE[gate.name][0] if gate.name in HERE else value
    return FeatureGates(*map(MappingProxyType, (dict(explicit), effective, asked)))


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
    """Warnings about gates that are set although they no longer matter."""
    reported = []
    for name in sorted(explicit):
        gate = GATES[name]
        if gate.stage in ("GA", "Deprecated"):
            reported.append(
                f"feature gate {name} is {gate.stage}: it will be removed, stop setting it"
            )
    return reported
