"""The reasons of events and of rejections. Pure.

Written by tools/gen_tables.py. Source: docs/reference/events.csv; docs/reference/reasons.csv; docs/reference/metrics.csv.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """The ``reason`` of an event."""

    ALREADY_MOUNTED_VOLUME = "AlreadyMountedVolume"
    BACK_OFF = "BackOff"
    CERTIFICATE_EXPIRED = "CertificateExpired"
    CERTIFICATE_OVERDUE_FOR_REFRESH = "CertificateOverdueForRefresh"
    CGROUP_DRIVER_MISMATCH = "CgroupDriverMismatch"
    CGROUP_V1 = "CgroupV1"
    CONTAINER_DIED = "ContainerDied"
    CONTAINER_GC_FAILED = "ContainerGCFailed"
    CREATED = "Created"
    DNS_CONFIG_FORMING = "DNSConfigForming"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    DENIED = "Denied"
    ERR_IMAGE_NEVER_PULL = "ErrImageNeverPull"
    EVICTED = "Evicted"
    EVICTION_THRESHOLD_MET = "EvictionThresholdMet"
    EXCEEDED_GRACE_PERIOD = "ExceededGracePeriod"
    FAILED = "Failed"
    FAILED_CREATE_POD_CONTAINER = "FailedCreatePodContainer"
    FAILED_CREATE_POD_SANDBOX = "FailedCreatePodSandBox"
    FAILED_KILL_POD = "FailedKillPod"
    FAILED_MAP_VOLUME = "FailedMapVolume"
    FAILED_MOUNT = "FailedMount"
    FAILED_MOUNT_ON_FILESYSTEM_MISMATCH = "FailedMountOnFilesystemMismatch"
    FAILED_NODE_ALLOCATABLE_ENFORCEMENT = "FailedNodeAllocatableEnforcement"
    FAILED_NODE_DECLARED_FEATURES_CHECK = "FailedNodeDeclaredFeaturesCheck"
    FAILED_POD_SANDBOX_STATUS = "FailedPodSandBoxStatus"
    FAILED_POST_START_HOOK = "FailedPostStartHook"
    FAILED_PRE_STOP_HOOK = "FailedPreStopHook"
    FAILED_PREPARE_DYNAMIC_RESOURCES = "FailedPrepareDynamicResources"
    FAILED_REMOVE_POD_CONTAINER = "FailedRemovePodContainer"
    FAILED_STATUS_UPDATE = "FailedStatusUpdate"
    FAILED_SYNC = "FailedSync"
    FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET = "FailedToRetrieveImagePullSecret"
    FAILED_UNMOUNT = "FailedUnMount"
    FAILED_VALIDATION = "FailedValidation"
    FILE_SYSTEM_RESIZE_FAILED = "FileSystemResizeFailed"
    FILE_SYSTEM_RESIZE_SUCCESSFUL = "FileSystemResizeSuccessful"
    FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed"
    HOST_IPS_IP_FAMILY_MISMATCH = "HostIPsIPFamilyMismatch"
    IMAGE_GC_FAILED = "ImageGCFailed"
    INSPECT_FAILED = "InspectFailed"
    INVALID_DISK_CAPACITY = "InvalidDiskCapacity"
    KILLING = "Killing"
    KUBERNETES_VERSION_DIFFERS = "KubernetesVersionDiffers"
    LIFECYCLE_HTTP_FALLBACK = "LifecycleHTTPFallback"
    MISSING_CLUSTER_DNS = "MissingClusterDNS"
    NETWORK_NOT_READY = "NetworkNotReady"
    NODE_ALLOCATABLE_ENFORCED = "NodeAllocatableEnforced"
    NODE_HAS_DISK_PRESSURE = "NodeHasDiskPressure"
    NODE_HAS_INSUFFICIENT_MEMORY = "NodeHasInsufficientMemory"
    NODE_HAS_INSUFFICIENT_PID = "NodeHasInsufficientPID"
    NODE_HAS_NO_DISK_PRESSURE = "NodeHasNoDiskPressure"
    NODE_HAS_SUFFICIENT_MEMORY = "NodeHasSufficientMemory"
    NODE_HAS_SUFFICIENT_PID = "NodeHasSufficientPID"
    NODE_NOT_READY = "NodeNotReady"
    NODE_NOT_SCHEDULABLE = "NodeNotSchedulable"
    NODE_READY = "NodeReady"
    NODE_SCHEDULABLE = "NodeSchedulable"
    POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK = "PossibleMemoryBackedVolumesOnDisk"
    PREEMPTING = "Preempting"
    PROBE_WARNING = "ProbeWarning"
    PROCESS_OOM_KILLED = "ProcessOOMKilled"
    PULL_STALLED = "PullStalled"
    PULLED = "Pulled"
    PULLING = "Pulling"
    REBOOTED = "Rebooted"
    RESIZE_COMPLETED = "ResizeCompleted"
    RESIZE_DEFERRED = "ResizeDeferred"
    RESIZE_ERROR = "ResizeError"
    RESIZE_INFEASIBLE = "ResizeInfeasible"
    RESIZE_STARTED = "ResizeStarted"
    SANDBOX_CHANGED = "SandboxChanged"
    SHUTDOWN = "Shutdown"
    STARTED = "Started"
    STARTING = "Starting"
    STILL_TERMINATING = "StillTerminating"
    STOP_SIGNAL_IGNORED = "StopSignalIgnored"
    SUCCESSFUL_MOUNT_VOLUME = "SuccessfulMountVolume"
    SYSTEM_OOM = "SystemOOM"
    UNHEALTHY = "Unhealthy"
    VOLUME_CONDITION_ABNORMAL = "VolumeConditionAbnormal"
    VOLUME_PERMISSION_CHANGE_IN_PROGRESS = "VolumePermissionChangeInProgress"
    VOLUME_RESIZE_FAILED = "VolumeResizeFailed"


class AdmissionReason(StrEnum):
    """Why a pod was rejected: the reason of its status and of the event."""

    APPARMOR = "AppArmor"
    EMPTY_POD_SHARED_POOL_ERROR = "EmptyPodSharedPoolError"
    EVICTED = "Evicted"
    INVALID_NODE_INFO = "InvalidNodeInfo"
    NEEDS_ROOT = "NeedsRoot"
    NODE_AFFINITY = "NodeAffinity"
    NODE_NAME = "NodeName"
    NODE_PORTS = "NodePorts"
    NODE_SHUTDOWN = "NodeShutdown"
    OUT_OF_CPU = "OutOfcpu"
    OUT_OF_EPHEMERAL_STORAGE = "OutOfephemeral-storage"
    OUT_OF_MEMORY = "OutOfmemory"
    OUT_OF_PODS = "OutOfpods"
    POD_FEATURE_UNSUPPORTED = "PodFeatureUnsupported"
    POD_LEVEL_RESOURCES_NOT_SUPPORTED = "PodLevelResourcesNotSupported"
    POD_OS_NOT_SUPPORTED = "PodOSNotSupported"
    POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH = "PodOSSelectorNodeLabelDoesNotMatch"
    SMT_ALIGNMENT_ERROR = "SMTAlignmentError"
    SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED = "SupplementalGroupsPolicyNotSupported"
    SYSCTL_FORBIDDEN = "SysctlForbidden"
    TAINT_TOLERATION = "TaintToleration"
    TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"
    UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError"
    VOLUME_ATTACHMENT_LIMIT_EXCEEDED = "VolumeAttachmentLimitExceeded"

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str) or not value.startswith("OutOf"):
            return None
        other = str.__new__(cls, value)
        other._name_, other._value_ = value, value
        return other


COUNTED = frozenset(
    [
        "AppArmor",
        "Evicted",
        "InitContainerRestartPolicyForbidden",
        "InvalidNodeInfo",
        "NodeShutdown",
        "OutOfcpu",
        "OutOfephemeral-storage",
        "OutOfmemory",
        "OutOfpods",
        "OutOfExtendedResources",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SupplementalGroupsPolicyNotSupported",
        "SysctlForbidden",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "UnexpectedPredicateFailureType",
        "UnknownReason",
        "VolumeAttachmentLimitExceeded",
        "Other",
    ]
)
"""Reasons that are labels of kubelet_admission_rejections_total."""
