"""The reasons of the events that the agent records, in one place. Pure.

Source: docs/reference/events.csv. A test compares the members with the table and the list of
differences in both directions, and looks for an emitter of each.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

AdmissionReason = NewType("AdmissionReason", str)
"""Why a pod was rejected, such as OutOfcpu; it is the reason of the rejection's event.

Source: docs/reference/events.csv: "{admission reason}"."""


class Reason(StrEnum):
    """The ``reason`` of an event."""

    ALREADY_MOUNTED_VOLUME = "AlreadyMountedVolume"
    CGROUP_DRIVER_MISMATCH = "CgroupDriverMismatch"
    CGROUP_V1 = "CgroupV1"
    BACK_OFF = "BackOff"
    CERTIFICATE_EXPIRED = "CertificateExpired"
    CERTIFICATE_OVERDUE_FOR_REFRESH = "CertificateOverdueForRefresh"
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
    FAILED_POD_SANDBOX_STATUS = "FailedPodSandBoxStatus"
    FAILED_PREPARE_DYNAMIC_RESOURCES = "FailedPrepareDynamicResources"
    FAILED_POST_START_HOOK = "FailedPostStartHook"
    FAILED_PRE_STOP_HOOK = "FailedPreStopHook"
    FAILED_REMOVE_POD_CONTAINER = "FailedRemovePodContainer"
    FAILED_STATUS_UPDATE = "FailedStatusUpdate"
    FAILED_SYNC = "FailedSync"
    FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET = "FailedToRetrieveImagePullSecret"
    FAILED_UNMOUNT = "FailedUnMount"
    FAILED_NODE_DECLARED_FEATURES_CHECK = "FailedNodeDeclaredFeaturesCheck"
    FAILED_VALIDATION = "FailedValidation"
    FILE_SYSTEM_RESIZE_FAILED = "FileSystemResizeFailed"
    FILE_SYSTEM_RESIZE_SUCCESSFUL = "FileSystemResizeSuccessful"
    FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed"
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


EventReason = Reason | AdmissionReason
