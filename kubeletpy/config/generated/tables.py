"""Fields of the KubeletConfiguration, feature gates and flags. Pure.

Written by tools/gen_tables.py. Source: docs/reference/config.csv; docs/reference/features.csv; docs/reference/differences.csv; docs/reference/flags.csv.
"""

from __future__ import annotations

from typing import Any

Row = tuple[str, str, Any, tuple[Any, ...], str, tuple[tuple[str, Any], ...]]
FIELDS: tuple[Row, ...] = (
    ("enableServer", "*bool", True, (), "", ()),
    ("staticPodPath", "string", "", (), "", ()),
    ("podLogsDir", "string", "/var/log/pods", (), "", ()),
    ("syncFrequency", "duration", 60.0, (), "", ()),
    ("fileCheckFrequency", "duration", 20.0, (), "", ()),
    ("httpCheckFrequency", "duration", 20.0, (), "", ()),
    ("staticPodURL", "string", "", (), "", ()),
    ("staticPodURLHeader", "map[string][]string", (), (), "", ()),
    ("address", "string", "0.0.0.0", ("ip_address",), "", ()),
    ("port", "int32", 10250, ("between", 1, 65535), "", ()),
    ("readOnlyPort", "int32", 0, ("between", 0, 65535), "", ()),
    ("tlsCertFile", "string", "", (), "", ()),
    ("tlsPrivateKeyFile", "string", "", (), "", ()),
    ("tlsCipherSuites", "[]string", (), (), "", ()),
    ("tlsCurvePreferences", "[]int32", (), (), "1.36", ()),
    (
        "tlsMinVersion",
        "string",
        "",
        ("one_of", "", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
        "",
        (),
    ),
    ("rotateCertificates", "bool", False, (), "", ()),
    ("serverTLSBootstrap", "bool", False, (), "", ()),
    ("authentication.x509.clientCAFile", "string", "", (), "", ()),
    ("authentication.webhook.enabled", "*bool", True, (), "", ()),
    ("authentication.webhook.cacheTTL", "duration", 120.0, (), "", ()),
    ("authentication.anonymous.enabled", "*bool", False, (), "", ()),
    ("authorization.mode", "string", "Webhook", ("one_of", "AlwaysAllow", "Webhook"), "", ()),
    ("authorization.webhook.cacheAuthorizedTTL", "duration", 300.0, (), "", ()),
    ("authorization.webhook.cacheUnauthorizedTTL", "duration", 30.0, (), "", ()),
    ("registryPullQPS", "*int32", 5, ("at_least", 0), "", ()),
    ("registryBurst", "int32", 10, ("at_least", 0), "", ()),
    (
        "imagePullCredentialsVerificationPolicy",
        "string",
        "NeverVerifyPreloadedImages",
        (
            "one_of",
            "NeverVerify",
            "NeverVerifyPreloadedImages",
            "NeverVerifyAllowlistedImages",
            "AlwaysVerify",
        ),
        "",
        (),
    ),
    ("preloadedImagesVerificationAllowlist", "[]string", (), (), "", ()),
    ("eventRecordQPS", "*int32", 50, ("at_least", 0), "", ()),
    ("eventBurst", "int32", 100, ("at_least", 0), "", ()),
    ("enableDebuggingHandlers", "*bool", True, (), "", ()),
    ("enableContentionProfiling", "bool", False, (), "", ()),
    ("healthzPort", "*int32", 10248, ("between", 0, 65535), "", ()),
    ("healthzBindAddress", "string", "127.0.0.1", ("ip_address",), "", ()),
    ("oomScoreAdj", "*int32", -999, ("between", -1000, 1000), "", ()),
    ("clusterDomain", "string", "", (), "", ()),
    ("clusterDNS", "[]string", (), (), "", ()),
    ("streamingConnectionIdleTimeout", "duration", 14400.0, (), "", ()),
    ("nodeStatusUpdateFrequency", "duration", 10.0, (), "", ()),
    ("nodeStatusReportFrequency", "duration", 300.0, (), "", ()),
    ("nodeLeaseDurationSeconds", "int32", 40, ("above", 0), "", ()),
    ("imageMinimumGCAge", "duration", 120.0, ("seconds_at_least", 0), "", ()),
    ("imageMaximumGCAge", "duration", 0.0, ("seconds_at_least", 0), "", ()),
    ("imageGCHighThresholdPercent", "*int32", 85, ("between", 0, 100), "", ()),
    ("imageGCLowThresholdPercent", "*int32", 80, ("between", 0, 100), "", ()),
    ("volumeStatsAggPeriod", "duration", 60.0, (), "", ()),
    ("kubeletCgroups", "string", "", (), "", ()),
    ("systemCgroups", "string", "", (), "", ()),
    ("cgroupRoot", "string", "", (), "", ()),
    ("cgroupsPerQOS", "*bool", True, (), "", ()),
    ("cgroupDriver", "string", "cgroupfs", ("one_of", "cgroupfs", "systemd"), "", ()),
    ("cpuManagerPolicy", "string", "none", ("one_of", "none", "static"), "", ()),
    ("singleProcessOOMKill", "*bool", None, (), "", ()),
    (
        "cpuManagerPolicyOptions",
        "map[string]string",
        (),
        (
            "option_names",
            "full-pcpus-only",
            "distribute-cpus-across-numa",
            "align-by-socket",
            "distribute-cpus-across-cores",
            "strict-cpu-reservation",
            "prefer-align-cpus-by-uncorecache",
        ),
        "",
        (),
    ),
    ("cpuManagerReconcilePeriod", "duration", 10.0, (), "", ()),
    ("memoryManagerPolicy", "string", "None", ("one_of", "None", "Static"), "", ()),
    (
        "topologyManagerPolicy",
        "string",
        "none",
        ("one_of", "none", "best-effort", "restricted", "single-numa-node"),
        "",
        (),
    ),
    ("topologyManagerScope", "string", "container", ("one_of", "container", "pod"), "", ()),
    (
        "topologyManagerPolicyOptions",
        "map[string]string",
        (),
        ("option_names", "prefer-closest-numa-nodes", "max-allowable-numa-nodes"),
        "",
        (),
    ),
    ("qosReserved", "map[string]string", (), (), "", ()),
    ("runtimeRequestTimeout", "duration", 120.0, (), "", ()),
    (
        "hairpinMode",
        "string",
        "promiscuous-bridge",
        ("one_of", "promiscuous-bridge", "hairpin-veth", "none"),
        "",
        (),
    ),
    ("maxPods", "int32", 110, ("at_least", 0), "", ()),
    ("podCIDR", "string", "", (), "", ()),
    ("podPidsLimit", "*int64", -1, (), "", ()),
    ("resolvConf", "*string", "/etc/resolv.conf", (), "", ()),
    ("runOnce", "bool", False, (), "", ()),
    ("cpuCFSQuota", "*bool", True, (), "", ()),
    ("cpuCFSQuotaPeriod", "*duration", 0.1, ("seconds_between", 0.001, 1), "", ()),
    ("nodeStatusMaxImages", "*int32", 50, ("at_least", -1), "", ()),
    ("maxOpenFiles", "int64", 1000000, ("at_least", 0), "", ()),
    ("contentType", "string", "application/json", (), "", ()),
    ("kubeAPIQPS", "*int32", 50, ("at_least", 0), "", ()),
    ("kubeAPIBurst", "int32", 100, ("at_least", 0), "", ()),
    ("serializeImagePulls", "*bool", True, (), "", ()),
    ("maxParallelImagePulls", "*int32", None, ("at_least", 1), "", ()),
    (
        "evictionHard",
        "map[string]string",
        (
            ("memory.available", "100Mi"),
            ("nodefs.available", "10%"),
            ("nodefs.inodesFree", "5%"),
            ("imagefs.available", "15%"),
            ("imagefs.inodesFree", "5%"),
        ),
        (),
        "",
        (),
    ),
    ("evictionSoft", "map[string]string", (), (), "", ()),
    ("evictionSoftGracePeriod", "map[string]duration", (), (), "", ()),
    ("evictionPressureTransitionPeriod", "duration", 300.0, (), "", ()),
    ("evictionMaxPodGracePeriod", "int32", 0, (), "", ()),
    ("evictionMinimumReclaim", "map[string]string", (), (), "", ()),
    ("mergeDefaultEvictionSettings", "*bool", False, (), "", ()),
    ("podsPerCore", "int32", 0, ("at_least", 0), "", ()),
    ("enableControllerAttachDetach", "*bool", True, (), "", ()),
    ("protectKernelDefaults", "bool", False, (), "", ()),
    ("makeIPTablesUtilChains", "*bool", True, (), "", ()),
    ("iptablesMasqueradeBit", "*int32", 14, ("between", 0, 31), "", ()),
    ("iptablesDropBit", "*int32", 15, ("between", 0, 31), "", ()),
    ("featureGates", "map[string]bool", (), (), "", ()),
    ("failSwapOn", "*bool", True, (), "", ()),
    ("memorySwap.swapBehavior", "string", "", ("one_of", "", "NoSwap", "LimitedSwap"), "", ()),
    ("containerLogMaxSize", "quantity", 10485760, (), "", ()),
    ("containerLogMaxFiles", "*int32", 5, ("above", 1), "", ()),
    ("containerLogMaxWorkers", "*int32", 1, ("at_least", 1), "", ()),
    ("containerLogMonitorInterval", "*duration", 10.0, ("seconds_at_least", 3), "", ()),
    (
        "configMapAndSecretChangeDetectionStrategy",
        "string",
        "Watch",
        ("one_of", "Get", "Cache", "Watch"),
        "",
        (),
    ),
    ("systemReserved", "map[string]string", (), (), "", ()),
    ("kubeReserved", "map[string]string", (), (), "", ()),
    ("reservedSystemCPUs", "string", "", (), "", ()),
    ("showHiddenMetricsForVersion", "string", "", (), "", ()),
    ("systemReservedCgroup", "string", "", (), "", ()),
    ("kubeReservedCgroup", "string", "", (), "", ()),
    ("enforceNodeAllocatable", "[]string", ("pods",), (), "", ()),
    ("allowedUnsafeSysctls", "[]string", (), (), "", ()),
    ("defaultPodSysctls", "map[string]string", (), (), "1.37", ()),
    (
        "volumePluginDir",
        "string",
        "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
        (),
        "",
        (),
    ),
    ("providerID", "string", "", (), "", ()),
    ("kernelMemcgNotification", "bool", False, (), "", ()),
    ("logging.format", "string", "text", ("one_of", "text", "json"), "", ()),
    ("logging.flushFrequency", "duration or int ns", 5.0, (), "", ()),
    ("logging.verbosity", "uint32", 0, ("between", 0, 2147483647), "", ()),
    ("logging.vmodule", "[]", (), (), "", ()),
    ("logging.options.text.splitStream", "bool", False, (), "", ()),
    ("logging.options.text.infoBufferSize", "quantity", 0, (), "", ()),
    ("logging.options.json.splitStream", "bool", False, (), "", ()),
    ("logging.options.json.infoBufferSize", "quantity", 0, (), "", ()),
    ("enableSystemLogHandler", "*bool", True, (), "", ()),
    ("enableSystemLogQuery", "*bool", False, (), "", ()),
    ("shutdownGracePeriod", "duration", 0.0, (), "", ()),
    ("shutdownGracePeriodCriticalPods", "duration", 0.0, (), "", ()),
    ("shutdownGracePeriodByPodPriority", "[]", (), (), "", ()),
    (
        "crashLoopBackOff.maxContainerRestartPeriod",
        "*duration",
        300.0,
        ("seconds_between", 1, 300),
        "",
        (),
    ),
    ("reservedMemory", "[]", (), (), "", ()),
    ("enableProfilingHandler", "*bool", True, (), "", ()),
    ("enableDebugFlagsHandler", "*bool", True, (), "", ()),
    ("seccompDefault", "*bool", False, (), "", ()),
    ("memoryThrottlingFactor", "*float64", None, (), "", (("1.35", 0.9), ("1.36", 0.9))),
    (
        "memoryReservationPolicy",
        "string",
        "None",
        ("one_of", "None", "TieredReservation"),
        "1.36",
        (),
    ),
    ("registerWithTaints", "[]", (), (), "", ()),
    ("registerNode", "*bool", True, (), "", ()),
    ("tracing.endpoint", "*string", None, (), "", ()),
    ("tracing.samplingRatePerMillion", "*int32", None, ("between", 0, 1000000), "", ()),
    ("localStorageCapacityIsolation", "*bool", True, (), "", ()),
    ("containerRuntimeEndpoint", "string", "unix:///run/containerd/containerd.sock", (), "", ()),
    ("imageServiceEndpoint", "string", "", (), "", ()),
    ("failCgroupV1", "*bool", True, (), "", ()),
    ("userNamespaces.idsPerPod", "*int64", 65536, ("between", 65536, 4294967295), "", ()),
    (
        "clientCertificateKeyAlgorithm",
        "string",
        "ECDSA-P256",
        (
            "one_of",
            "ECDSA-P256",
            "ECDSA-P384",
            "RSA-2048",
            "RSA-3072",
            "RSA-4096",
            "ML-DSA-44",
            "ML-DSA-65",
            "ML-DSA-87",
        ),
        "1.38",
        (),
    ),
    (
        "serverCertificateKeyAlgorithm",
        "string",
        "ECDSA-P256",
        (
            "one_of",
            "ECDSA-P256",
            "ECDSA-P384",
            "RSA-2048",
            "RSA-3072",
            "RSA-4096",
            "ML-DSA-44",
            "ML-DSA-65",
            "ML-DSA-87",
        ),
        "1.38",
        (),
    ),
)
"""Path, type, default, rule, first version, defaults of earlier versions."""
GATES = """
AllAlpha Alpha Alpha Alpha Alpha
AllBeta Beta Beta Beta Beta
AllocatorPoolBufferCap - - - Beta+
AllowDNSOnlyNodeCSR Deprecated Deprecated Deprecated Deprecated
AllowInsecureKubeletCertificateSigningRequests Deprecated Deprecated Deprecated Deprecated
AllowOverwriteTerminationGracePeriodSeconds Deprecated! Deprecated! Deprecated! -
AllowParsingUserUIDFromCertAuth Beta+ Beta+ Beta+ Beta+
AllowServiceExternalIPs - GA+ GA+ GA+
AllowUnsafeMalformedObjectDeletion Alpha Alpha Beta+ Beta+
APIResponseCompression Beta+ Beta+ Beta+ Beta+
APIServerIdentity Beta+ Beta+ Beta+ Beta+
APIServerTracing GA+! GA+! - -
APIServerWebhookAuthenticationToken - - Alpha Alpha
APIServingWithRoutine Alpha Alpha Alpha Alpha
AggregatedDiscoveryRemoveBetaType Deprecated+! Deprecated+! Deprecated+! -
AnonymousAuthConfigurableEndpoints GA+! GA+! - -
AnyVolumeDataSource GA+! GA+! - -
AtomicFIFO - Beta+ Beta+ Beta+
AtomicWriteVolumeUserFields - - Alpha Beta+
AuthorizeNodeWithSelectors GA+! GA+! - -
AuthorizePodWebsocketUpgradeCreatePermission Beta+ Beta+ Beta+ GA+!
AuthorizeWithSelectors GA+! GA+! - -
BtreeWatchCache GA+! GA+! - -
CBORServingAndStorage Alpha Alpha Alpha Alpha
CPUManagerPolicyAlphaOptions Alpha Alpha Alpha Alpha
CPUManagerPolicyBetaOptions Beta+ Beta+ Beta+ Beta+
CPUManagerPolicyOptions GA+! GA+! GA+! GA+!
CRDObservedGenerationTracking Beta Beta+ Beta+ Beta+
CRDValidationRatcheting GA+! GA+! GA+! -
CRIListStreaming - Alpha Alpha Alpha
CSIMigrationPortworx GA+! - - -
CSIServiceAccountTokenSecrets Beta+ GA+! GA+! GA+!
CSIVolumeHealth Alpha Alpha Alpha Alpha
CertificateSigningRequestMLDSA - - - Beta
ChangeContainerStatusOnKubeletRestart Deprecated Deprecated Deprecated Deprecated
ClearingNominatedNodeNameAfterBinding Beta+ Beta+ Beta+ Beta+
ClientsAllowCARotation - Beta+ Beta+ Beta+
ClientsAllowCBOR Alpha Alpha Alpha Alpha
ClientsAllowConnectionPool - - - Beta+
ClientsAllowTLSCacheGC - Beta+ Beta+ Beta+
ClientsPreferCBOR Alpha Alpha Alpha Alpha
CloudControllerManagerWatchBasedRoutesReconciliation Alpha Alpha Alpha Alpha
CloudControllerManagerWebhook Alpha Alpha Alpha Alpha
CloudNodeAdditionalLabelsReconciliation - - - Alpha
ClusterTrustBundle Beta Beta GA+ GA+
ClusterTrustBundleProjection Beta Beta GA+ GA+
ComponentFlagz Alpha Beta+ Beta+ Beta+
ComponentStatusz Alpha Beta+ Beta+ Beta+
CompositePodGroup - - Alpha Beta
ConcurrentWatchObjectDecode Beta Beta Beta+ Beta+
ConditionalAuthorization - - - Alpha
ConsistentGetFromCache - - - Alpha
ConsistentListFromCache GA+! GA+! - -
ConsistentListFromCacheSkipTimeoutFallback - - Alpha Alpha
ConstrainedImpersonation Alpha Beta+ Beta+ Beta+
ContainerCheckpoint Beta+ Beta+ Beta+ Beta+
ContainerRestartRules Beta+ Beta+ Beta+ Beta+
ContainerStopSignals Alpha Alpha Alpha Alpha
ContextualLogging Beta+ Beta+ Beta+ Beta+
CoordinatedLeaderElection Beta Beta Beta Beta
CrossNamespaceVolumeDataSource Alpha Alpha Alpha Alpha
CustomCPUCFSQuotaPeriod Alpha GA+ GA+ GA+
CustomResourceFieldSelectors GA+! GA+! GA+! -
DRAAdminAccess Beta+ GA+! GA+! GA+!
DRAConsumableCapacity Alpha Beta+ Beta+ GA+
DRADerivedAttributes - - Alpha Alpha
DRADeviceBindingConditions Alpha Beta+ Beta+ GA+!
DRADeviceCompatibilityGroups - - Alpha Alpha
DRADeviceTaintRules Alpha Beta GA+ GA+!
DRADeviceTaints Alpha Beta+ GA+ GA+!
DRAExtendedResource Alpha Beta+ GA+! GA+!
DRAFractionalCapacityRange - - Beta GA+
DRAListTypeAttributes - Alpha Alpha Alpha
DRANodeAllocatableResources - Alpha Alpha Alpha
DRAOptionalNodeOperations - - Alpha Alpha
DRAPartitionableDevices Alpha Beta+ Beta+ GA+!
DRAPartitionableDevicesType - - Alpha Alpha
DRAPrioritizedList Beta+ GA+ GA+! GA+!
DRAResourceClaimDeviceStatus Beta+ Beta+ GA+! GA+!
DRAResourceClaimGranularStatusAuthorization - Beta+ Beta+ Beta+
DRAResourcePoolStatus - Alpha Alpha Alpha
DRASchedulerFilterTimeout Beta+ Beta+ Beta+ Beta+
DRAWorkloadResourceClaims - Alpha Beta Beta
DeclarativeValidation Beta+ GA+! GA+! GA+!
DeclarativeValidationBeta - Beta+ Beta+ Beta+
DeclarativeValidationTakeover Beta Deprecated Deprecated! Deprecated!
DefaultPodSysctls - - Alpha Alpha
DeploymentReplicaSetTerminatingReplicas Beta+ Beta+ Beta+ Beta+
DetectCacheInconsistency Beta+ Beta+ Beta+ Beta+
DisableAllocatorDualWrite GA+! GA+! GA+! -
DisableCPUQuotaWithExclusiveCPUs Beta+ Deprecated+ Deprecated+! Deprecated+!
DisableNodeKubeProxyVersion Deprecated+ Deprecated+! Deprecated+! Deprecated+!
DynamicNodeLocalEphemeralVolumes - - - Alpha
DynamicResourceAllocation GA+! GA+! GA+! -
EmptyDirVolumeMode - - Alpha Alpha
EnvFiles Beta+ Beta+ Beta+ GA+!
EtcdRangeStream - - Beta+ Beta+
EventedPLEG Alpha Alpha Alpha Alpha
EvictionRequestAPI - - Alpha Alpha
ExcludeAdmissionWebhookVirtualResources - - Beta+ Beta+
ExecProbeTimeout GA+! GA+! GA+! -
ExtendWebSocketsToKubelet - Beta+ Beta+ GA+!
ExternalServiceAccountTokenSigner Beta+ GA+! GA+! GA+!
GRPCContainerProbeTLS - - Alpha Alpha
GangScheduling Alpha Alpha - -
GenericWorkload Alpha Alpha Beta Beta
GitRepoVolumeDriver Deprecated Deprecated! Deprecated! Deprecated!
GracefulNodeShutdown Beta+ Beta+ Beta+ Beta+
GracefulNodeShutdownBasedOnPodPriority Beta+ Beta+ Beta+ Beta+
H2CContainerProbe - - Alpha Alpha
HPAConfigurableTolerance Beta+ Beta+ GA+! GA+!
HPAGeneration - - Beta+ GA+!
HPAOptimizedSelectorStore - - Beta+ Beta+
HPAScaleToZero Alpha Alpha Beta+ Beta+
HonorPVReclaimPolicy GA+! - - -
HostnameOverride Beta+ Beta+ GA+! GA+!
HugepageAwareEviction - - Beta+ Beta+
ImageMaximumGCAge GA+! GA+! GA+! GA+!
ImageVolume Beta+ GA+! GA+! GA+!
ImageVolumeWithDigest - Alpha Alpha Alpha
InOrderInformers Beta+ GA+! GA+! GA+!
InOrderInformersBatchProcess Beta+ Beta+ Beta+ Beta+
InPlacePodLevelResourcesVerticalScaling Alpha Beta+ Beta+ Beta+
InPlacePodVerticalScaling GA+! GA+! GA+! -
InPlacePodVerticalScalingAllocatedStatus Deprecated - - -
InPlacePodVerticalScalingExclusiveCPUs Alpha Alpha Alpha Alpha
InPlacePodVerticalScalingExclusiveMemory Alpha Alpha Alpha Alpha
InPlacePodVerticalScalingInitContainers - Beta+ GA+! GA+!
InPlacePodVerticalScalingMemoryBackedVolumes - - Alpha Alpha
InPlacePodVerticalScalingSchedulerPreemption - - Alpha Alpha
InTreePluginPortworxUnregister Alpha - - -
InformerResourceVersion GA+ GA+ GA+ GA+
InterPodAffinityHostnameFastPath - - Alpha Alpha
JobBackoffLimitPerIndex GA+! GA+! - -
JobManagedBy GA+! GA+! GA+! -
JobPodReplacementPolicy GA+! GA+! - -
JobSuccessPolicy GA+! GA+! - -
KMSv1 Deprecated Deprecated Deprecated Deprecated
KubeAPIServerWorkloadsTrust - - - Alpha
KubeProxyIPVS - - Deprecated+ Deprecated+
KubeProxyNFTablesLocalhostNodePorts - - Alpha Beta+
KubeletAllocatedPodsEndpoint - - Alpha Alpha
KubeletCgroupDriverFromCRI GA+! GA+! GA+! GA+!
KubeletCrashLoopBackOffMax Beta+ Beta+ Beta+ Beta+
KubeletEnsureSecretPulledImages Beta+ Beta+ Beta+ Beta+
KubeletFineGrainedAuthz Beta+ GA+! GA+! GA+!
KubeletInUserNamespace Alpha Alpha Beta+ Beta+
KubeletPSI Beta+ GA+! GA+! GA+!
KubeletPodResourcesDynamicResources Beta+ GA+! GA+! GA+!
KubeletPodResourcesGet Beta+ GA+! GA+! GA+!
KubeletPodResourcesListUseActivePods Deprecated+ Deprecated+ Deprecated+ Deprecated+
KubeletRegistrationGetOnExistsOnly Deprecated Deprecated Deprecated Deprecated
KubeletSeparateDiskGC Beta+ Beta+ Beta+ Beta+
KubeletServiceAccountTokenForCredentialProviders Beta+ Beta+ Beta+ Beta+
KubeletTracing GA+! GA+! GA+! -
ListFromCacheSnapshot Beta+ Beta+ Beta+ Beta+
LocalStorageCapacityIsolationFSQuotaMonitoring Beta Beta Beta Beta
LogarithmicScaleDown GA+! GA+! - -
LoggingAlphaOptions Alpha Alpha Alpha Alpha
LoggingBetaOptions Beta+ Beta+ Beta+ Beta+
ManagedFieldsOptOut - - - Alpha
ManagedFieldsOptOutClient - - - Alpha
ManifestBasedAdmissionControlConfig - Alpha Beta+ Beta+
MatchLabelKeysInPodAffinity GA+! GA+! GA+! -
MatchLabelKeysInPodTopologySpread Beta+ Beta+ Beta+ Beta+
MatchLabelKeysInPodTopologySpreadSelectorMerge Beta+ Beta+ Beta+ Beta+
MaxUnavailableStatefulSet Beta Beta Beta+ Beta+
MemoryManager GA+! - - -
MemoryQoS Alpha Alpha Beta+ Beta+
MultiCIDRServiceAllocator GA+! GA+! GA+! -
MutableCSINodeAllocatableCount Beta+ GA+! GA+! GA+!
MutablePVNodeAffinity Alpha Alpha Alpha Alpha
MutablePodResourcesForSuspendedJobs Alpha Beta+ Beta+ Beta+
MutableSchedulingDirectivesForSuspendedJobs Alpha Beta+ Beta+ Beta+
MutatingAdmissionPolicy Beta GA+ GA+ GA+
NFTablesNetlink - - Beta+ Beta+
NFTablesProxyMode GA+! GA+! GA+! -
NativeHistograms - Alpha Beta+ Beta+
NodeControllerLeaseCircuitBreaker - - Beta+ Beta+
NodeDeclaredFeatures Alpha Beta+ GA+! GA+!
NodeInclusionPolicyInPodTopologySpread GA+! GA+! GA+! GA+!
NodeLifecycleConditions - - Alpha Alpha
NodeLogQuery Beta GA+! GA+! GA+!
NodeSwap GA+! GA+! GA+! -
NominatedNodeNameForExpectation Beta+ Beta+ Beta+ Beta+
OpenAPIEnums Beta+ Beta+ Beta+ Beta+
OpenAPIV2LazyBuild - - - Beta+
OpportunisticBatching Beta+ Beta+ Beta+ Beta+
OrderedNamespaceDeletion GA+! GA+! - -
PLEGOnDemandRelist - Beta+ GA+! GA+!
PersistentVolumeClaimUnusedSinceTime - Alpha Beta+ Beta+
PodAndContainerStatsFromCRI Alpha Alpha Beta Beta
PodCertificateMLDSA - - - Beta
PodCertificateRequest Beta Beta GA+ GA+
PodDeletionCost Beta+ Beta+ Beta+ Beta+
PodGroupPreemptionPolicy - - Alpha -
PodLevelResourceManagers - Alpha Beta Beta
PodLevelResources Beta+ Beta+ Beta+ Beta+
PodLevelResourcesFixDefaulting - - Beta+ Beta+
PodLevelResourcesFixKubeletQOSClass - - Beta+ Beta+
PodLifecycleSleepAction GA+! GA+! - -
PodLifecycleSleepActionAllowZero GA+! GA+! - -
PodLogsQuerySplitStreams Alpha Alpha Alpha Alpha
PodObservedGenerationTracking GA+! GA+! GA+! GA+!
PodReadyToStartContainersCondition Beta+ Beta+ GA+! GA+!
PodSchedulingReadiness GA+! GA+! GA+! -
PodTopologyLabelsAdmission Beta+ Beta+ Beta+ Beta+
PodsAPI - Alpha Beta+ Beta+
PortForwardWebsockets Beta+ Beta+ Beta+ GA+!
PreferSameTrafficDistribution GA+! GA+! GA+! -
PreventStaticPodAPIReferences Beta+ Beta+ - -
ProcMountType Beta+ GA+! GA+! GA+!
QOSReserved Alpha Alpha Alpha Alpha
RecoverVolumeExpansionFailure GA+! GA+! GA+! -
RecursiveReadOnlyMounts GA+! GA+! GA+! GA+!
ReduceDefaultCrashLoopBackOffDecay Alpha Alpha Alpha Alpha
RelaxedDNSSearchValidation GA+! GA+! - -
RelaxedEnvironmentVariableValidation GA+! GA+! GA+! GA+!
RelaxedServiceNameValidation Alpha Beta+ GA+! GA+!
ReloadKubeletClientCAFile - Beta+ Beta+ Beta+
ReloadKubeletServerCertificateFile Beta+ Beta+ Beta+ Beta+
RemoteRequestHeaderUID Beta+ Beta+ Beta+ Beta+
RequestCostAggregation - - - Alpha
ResilientWatchCacheInitialization GA+! GA+! - -
ResourceHealthStatus Alpha Beta+ Beta+ Beta+
ResourceHealthStatusMessage - Beta+ Beta+ Beta+
RestartAllContainersOnContainerExits Alpha Beta+ Beta+ Beta+
RetryGenerateName GA+! GA+! - -
RotateKubeletServerCertificate Beta+ Beta+ Beta+ Beta+
RuntimeClassInImageCriApi Alpha Alpha Alpha Alpha
SELinuxChangePolicy Beta+ GA+! GA+! GA+!
SELinuxMount Beta Beta GA+ GA+
SELinuxMountReadWriteOncePod Beta+ GA+! GA+! GA+!
SchedulerAsyncAPICalls Beta Beta Beta Beta
SchedulerAsyncPreemption Beta+ Beta+ Beta+ Beta+
SchedulerPopFromBackoffQ Beta+ Beta+ Beta+ Beta+
SchedulerPreQueueingHints - - Alpha Beta+
SchedulerQueueingHints GA+! GA+! - -
SecurityProfileOCI - - - Alpha
SeparateCacheWatchRPC Deprecated Deprecated! Deprecated! Deprecated!
SeparateTaintEvictionController GA+! GA+! GA+! -
ServiceAccountNodeAudienceRestriction Beta+ Beta+ Beta+ Beta+
ServiceAccountTokenJTI GA+! GA+! GA+! -
ServiceAccountTokenMLDSA - - - Beta
ServiceAccountTokenNodeBinding GA+! GA+! GA+! -
ServiceAccountTokenNodeBindingValidation GA+! GA+! GA+! -
ServiceAccountTokenPodNodeInfo GA+! GA+! GA+! -
ServiceCIDRStatusFieldWiping - Deprecated+ Deprecated+ Deprecated+
ServiceTrafficDistribution GA+! - - -
ShardedListAndWatch - Alpha Alpha Beta+
SidecarContainers GA+! GA+! - -
SizeBasedListCostEstimate Beta+ Beta+ Beta+ Beta+
StaleControllerConsistencyDaemonSet - Beta+ Beta+ Beta+
StaleControllerConsistencyHPA - - Beta+ Beta+
StaleControllerConsistencyJob - Beta+ Beta+ Beta+
StaleControllerConsistencyReplicaSet - Beta+ Beta+ Beta+
StaleControllerConsistencyStatefulSet - Beta+ Beta+ Beta+
StatefulSetRecreateStrategy - - Alpha Beta+
StatefulSetSemanticRevisionComparison Beta+ Beta+ Beta+ Beta+
StorageCapacityScoring Alpha Alpha Beta+ Beta+
StorageNamespaceIndex Deprecated+ Deprecated+ Deprecated+ Deprecated+
StorageVersionAPI Alpha Alpha Alpha Alpha
StorageVersionHash Beta+ Beta+ Beta+ Beta+
StorageVersionMigrator Beta Beta GA+ GA+
StreamingCollectionEncodingToJSON GA+! GA+! - -
StreamingCollectionEncodingToProtobuf GA+! GA+! - -
StrictIPCIDRValidation Alpha Beta+ Beta+ GA+!
StructuredAuthenticationConfiguration GA+! GA+! - -
StructuredAuthenticationConfigurationEgressSelector Beta+ Beta+ Beta+ Beta+
StructuredAuthenticationConfigurationJWKSMetrics Beta+ Beta+ Beta+ Beta+
StructuredAuthorizationConfiguration GA+! - - -
SupplementalGroupsPolicy GA+! GA+! GA+! -
SystemdWatchdog GA+! GA+! GA+! -
TaintTolerationComparisonOperators Alpha Alpha Alpha Alpha
TokenRequestServiceAccountUIDValidation Beta+ Beta+ Beta+ Beta+
TopologyAwareHints GA+! - - -
TopologyAwareWorkloadScheduling - Alpha Alpha Beta
TopologyManagerPolicyAlphaOptions Alpha Alpha Alpha Alpha
TopologyManagerPolicyBetaOptions Beta+ Beta+ Beta+ Beta+
TopologyManagerPolicyOptions GA+ GA+! GA+! GA+!
TranslateStreamCloseWebsocketRequests Beta+ Beta+ Beta+ GA+!
UnauthenticatedHTTP2DOSMitigation Beta+ Beta+ Beta+ Beta+
UnknownVersionInteroperabilityProxy Alpha Beta+ Beta+ Beta+
UnlockWhileProcessingFIFO - Beta+ Beta+ Beta+
UserNamespacesHostNetworkSupport Alpha Alpha Alpha Alpha
UserNamespacesSupport Beta+ GA+! GA+! GA+!
VolumeAttributesClass GA+ GA+! GA+! GA+!
VolumeBindMountOptions - - Alpha Alpha
VolumeLimitScaling Alpha Alpha Beta+ Beta+
WatchCacheInitializationPostStartHook Beta Beta+ GA+! GA+!
WatchFromStorageWithoutPrevKV - - - Beta+
WatchFromStorageWithoutResourceVersion Deprecated! - - -
WatchList Beta+ Beta+ Beta+ Beta+
WatchListClient Beta+ Beta+ Beta+ Beta+
WatchListClientConcurrentDecoding - - - Beta+
WatchListCompression - - Beta+ Beta+
WebhookRoundTripLoadBalancing - - Beta+ Beta+
WinDSR GA+! GA+! GA+! -
WinOverlay GA+! GA+! GA+! -
WindowsCPUAndMemoryAffinity Alpha Alpha Alpha Beta+
WindowsGracefulNodeShutdown Beta+ Beta+ Beta+ Beta+
WindowsHostNetwork Deprecated Deprecated Deprecated -
WorkloadAwarePreemption - Alpha - -
WorkloadWithJob - Alpha Alpha Alpha
"""
"""Name, stage in each of KNOWN; "+": on by default, "!": locked, "-": absent."""
HERE = {
    "DynamicNodeLocalEphemeralVolumes": (
        False,
        "volumes and mounts of a running pod do not change",
    ),
    "SecurityProfileOCI": (
        False,
        "seccompProfile.type OCI is refused: the node never declares the feature",
    ),
    "PodCertificateMLDSA": (
        False,
        "the node never declares it: keys of pod certificates are RSA, ECDSA or Ed25519",
    ),
    "CRIListStreaming": (True, "lists are streamed wherever the runtime can"),
    "ChangeContainerStatusOnKubeletRestart": (
        False,
        "containers stay ready when the agent starts again",
    ),
    "ContainerRestartRules": (True, "restartPolicyRules are applied"),
    "ContextualLogging": (True, "lines have the fields of their context"),
    "DRAExtendedResource": (True, "claims for extended resources are prepared"),
    "DRAWorkloadResourceClaims": (True, "claims of PodGroups are prepared"),
    "EnvFiles": (True, "fileKeyRef is applied"),
    "EventedPLEG": (True, "the runtime's events are used wherever there are any, of starts too"),
    "ExtendWebSocketsToKubelet": (True, "WebSockets are supported even if not declared"),
    "HostnameOverride": (True, "hostnameOverride is applied"),
    "ImageVolumeWithDigest": (False, "statuses do not show the digests of image volumes"),
    "InPlacePodVerticalScalingInitContainers": (
        True,
        "init containers are resized even if not declared",
    ),
    "KubeletPodResourcesListUseActivePods": (True, "only active pods are listed"),
    "KubeletRegistrationGetOnExistsOnly": (True, "the node is read only when it can't be created"),
    "KubeletSeparateDiskGC": (True, "a separate file system of images is detected"),
    "LocalStorageCapacityIsolationFSQuotaMonitoring": (False, "directories are walked"),
    "PLEGOnDemandRelist": (True, "what has changed is read once"),
    "PodLevelResourcesFixKubeletQOSClass": (
        True,
        "pod-level resources without an amount do not decide the QoS class",
    ),
    "PodReadyToStartContainersCondition": (True, "the condition is shown"),
    "InPlacePodVerticalScalingExclusiveCPUs": (
        False,
        "a resize of a pod with exclusive CPUs is infeasible",
    ),
    "InPlacePodVerticalScalingExclusiveMemory": (
        False,
        "a resize of a pod with exclusive memory is infeasible",
    ),
    "PreventStaticPodAPIReferences": (True, "static pods that need the API are refused"),
    "ReloadKubeletClientCAFile": (True, "the file is read again when it changes"),
    "ReloadKubeletServerCertificateFile": (True, "the file is read again when it changes"),
    "RestartAllContainersOnContainerExits": (
        True,
        "the action is applied to every admitted pod that has it",
    ),
    "RuntimeClassInImageCriApi": (False, "images are the same for all runtime classes"),
    "TaintTolerationComparisonOperators": (False, "tolerations with Gt and Lt match nothing"),
    "TopologyManagerPolicyAlphaOptions": (False, "there are no such options"),
    "TopologyManagerPolicyBetaOptions": (True, "there are no such options"),
    "WindowsCPUAndMemoryAffinity": (False, "only Windows has it"),
    "WindowsGracefulNodeShutdown": (True, "only Windows has it"),
    "NativeHistograms": (
        False,
        "histograms have classic buckets only: the Prometheus library has no native ones",
    ),
    "PodLevelResourcesFixDefaulting": (
        False,
        "not implemented: pod-level resources get the same defaults",
    ),
    "DisableNodeKubeProxyVersion": (True, "kubeProxyVersion is not reported"),
    "GitRepoVolumeDriver": (False, "there are no gitRepo volumes"),
    "ImageVolume": (True, "images are mounted as volumes"),
    "InOrderInformers": (True, "the client of the API is not client-go"),
    "KubeletFineGrainedAuthz": (True, "permissions for single paths are accepted"),
    "KubeletPSI": (True, "pressure is reported where the kernel measures it"),
    "KubeletPodResourcesGet": (True, "Get is answered"),
    "MutableCSINodeAllocatableCount": (True, "limits of CSINode are updated"),
    "SELinuxChangePolicy": (True, "seLinuxChangePolicy is applied"),
    "SELinuxMountReadWriteOncePod": (True, "labels are mount options where they can be"),
    "TopologyManagerPolicyOptions": (True, "topologyManagerPolicyOptions is applied"),
    "UserNamespacesSupport": (True, "hostUsers: false is applied"),
    "AtomicFIFO": (True, "the client of the API is not client-go"),
    "ClientsAllowCARotation": (True, "the client of the API is not client-go"),
    "ClientsAllowCBOR": (False, "the client of the API is not client-go"),
    "ClientsAllowTLSCacheGC": (True, "the client of the API is not client-go"),
    "ClientsPreferCBOR": (False, "the client of the API is not client-go"),
    "InOrderInformersBatchProcess": (True, "the client of the API is not client-go"),
    "InformerResourceVersion": (True, "the client of the API is not client-go"),
    "UnlockWhileProcessingFIFO": (True, "the client of the API is not client-go"),
    "WatchListClient": (True, "the client of the API is not client-go"),
}
"""Gates that no code checks: the value in effect, and what that means."""
FLAGS = """
address text address deprecated - -
allowed-unsafe-sysctls list allowedUnsafeSysctls deprecated - -
anonymous-auth bool authentication.anonymous.enabled deprecated - -
authentication-token-webhook bool authentication.webhook.enabled deprecated - -
authentication-token-webhook-cache-ttl text authentication.webhook.cacheTTL deprecated - -
authorization-mode text authorization.mode deprecated - -
authorization-webhook-cache-authorized-ttl text authorization.webhook.cacheAuthorizedTTL deprecated - -
authorization-webhook-cache-unauthorized-ttl text authorization.webhook.cacheUnauthorizedTTL deprecated - -
cgroup-driver text cgroupDriver deprecated - -
cgroup-root text cgroupRoot deprecated - -
cgroups-per-qos bool cgroupsPerQOS deprecated - -
client-ca-file text authentication.x509.clientCAFile deprecated - -
cluster-dns list clusterDNS deprecated - -
cluster-domain text clusterDomain deprecated - -
container-log-max-files int containerLogMaxFiles deprecated - -
container-log-max-size text containerLogMaxSize deprecated - -
container-runtime-endpoint text containerRuntimeEndpoint deprecated - -
contention-profiling bool enableContentionProfiling deprecated - -
cpu-cfs-quota bool cpuCFSQuota deprecated - -
cpu-cfs-quota-period text cpuCFSQuotaPeriod deprecated - -
cpu-manager-policy text cpuManagerPolicy deprecated - -
cpu-manager-policy-options map cpuManagerPolicyOptions deprecated - -
cpu-manager-reconcile-period text cpuManagerReconcilePeriod deprecated - -
enable-controller-attach-detach bool enableControllerAttachDetach deprecated - -
enable-debugging-handlers bool enableDebuggingHandlers deprecated - -
enable-server bool enableServer deprecated - -
enforce-node-allocatable list enforceNodeAllocatable deprecated - -
event-burst int eventBurst deprecated - -
event-qps int eventRecordQPS deprecated - -
eviction-hard signals evictionHard deprecated - -
eviction-max-pod-grace-period int evictionMaxPodGracePeriod deprecated - -
eviction-minimum-reclaim map evictionMinimumReclaim deprecated - -
eviction-pressure-transition-period text evictionPressureTransitionPeriod deprecated - -
eviction-soft signals evictionSoft deprecated - -
eviction-soft-grace-period map evictionSoftGracePeriod deprecated - -
fail-cgroupv1 bool failCgroupV1 - - -
fail-swap-on bool failSwapOn deprecated - -
feature-gates gates featureGates deprecated - -
file-check-frequency text fileCheckFrequency deprecated - -
hairpin-mode text hairpinMode deprecated - -
healthz-bind-address text healthzBindAddress deprecated - -
healthz-port int healthzPort deprecated - -
http-check-frequency text httpCheckFrequency deprecated - -
image-gc-high-threshold int imageGCHighThresholdPercent deprecated - -
image-gc-low-threshold int imageGCLowThresholdPercent deprecated - -
image-service-endpoint text imageServiceEndpoint deprecated - -
kernel-memcg-notification bool kernelMemcgNotification deprecated - -
kube-api-burst int kubeAPIBurst deprecated - -
kube-api-content-type text contentType deprecated - -
kube-api-qps int kubeAPIQPS deprecated - -
kube-reserved map kubeReserved deprecated - -
kube-reserved-cgroup text kubeReservedCgroup deprecated - -
kubelet-cgroups text kubeletCgroups deprecated - -
local-storage-capacity-isolation bool localStorageCapacityIsolation deprecated - -
log-flush-frequency text logging.flushFrequency - - -
log-text-info-buffer-size text logging.options.text.infoBufferSize deprecated - -
log-text-split-stream bool logging.options.text.splitStream deprecated - -
logging-format text logging.format deprecated - -
make-iptables-util-chains bool makeIPTablesUtilChains deprecated - -
manifest-url text staticPodURL deprecated - -
manifest-url-header headers staticPodURLHeader deprecated - -
max-open-files int maxOpenFiles deprecated - -
max-pods int maxPods deprecated - -
memory-manager-policy text memoryManagerPolicy deprecated - -
minimum-image-ttl-duration text imageMinimumGCAge deprecated - -
node-status-max-images int nodeStatusMaxImages deprecated - -
node-status-update-frequency text nodeStatusUpdateFrequency deprecated - -
oom-score-adj int oomScoreAdj deprecated - -
pod-cidr text podCIDR deprecated - -
pod-manifest-path text staticPodPath deprecated - -
pod-max-pids int podPidsLimit deprecated - -
pods-per-core int podsPerCore deprecated - -
port int port deprecated - -
protect-kernel-defaults bool protectKernelDefaults deprecated - -
provider-id text providerID - - -
qos-reserved map qosReserved deprecated - -
read-only-port int readOnlyPort deprecated - -
register-node bool registerNode deprecated - -
register-with-taints taints registerWithTaints deprecated - -
registry-burst int registryBurst deprecated - -
registry-qps int registryPullQPS deprecated - -
reserved-cpus text reservedSystemCPUs deprecated - -
reserved-memory memory reservedMemory deprecated - -
resolv-conf text resolvConf deprecated - -
rotate-certificates bool rotateCertificates deprecated - -
rotate-server-certificates bool serverTLSBootstrap deprecated - -
runonce bool runOnce deprecated - -
runtime-request-timeout text runtimeRequestTimeout deprecated - -
seccomp-default bool seccompDefault - - -
serialize-image-pulls bool serializeImagePulls deprecated - -
streaming-connection-idle-timeout text streamingConnectionIdleTimeout deprecated - -
sync-frequency text syncFrequency deprecated - -
system-cgroups text systemCgroups deprecated - -
system-reserved map systemReserved deprecated - -
system-reserved-cgroup text systemReservedCgroup deprecated - -
tls-cert-file text tlsCertFile deprecated - -
tls-cipher-suites list tlsCipherSuites deprecated - -
tls-min-version text tlsMinVersion deprecated - -
tls-private-key-file text tlsPrivateKeyFile deprecated - -
topology-manager-policy text topologyManagerPolicy deprecated - -
topology-manager-policy-options map topologyManagerPolicyOptions deprecated - -
topology-manager-scope text topologyManagerScope deprecated - -
v int logging.verbosity - - v
vmodule vmodule logging.vmodule - - -
volume-plugin-dir text volumePluginDir deprecated - -
volume-stats-agg-period text volumeStatsAggPeriod deprecated - -
bootstrap-kubeconfig text - - - -
cert-dir text - - - -
cloud-provider text - - - -
config text - - - -
config-dir text - - - -
device-plugins-dir text - - - -
exit-on-lock-contention bool - - - -
experimental-allocatable-ignore-eviction bool - deprecated - -
experimental-mounter-path text - meaningless - -
flight-recorder-mib int - - - -
help bool - - - h
hostname-override text - - - -
housekeeping-interval text - meaningless - -
image-credential-provider-bin-dir text - - - -
image-credential-provider-config text - - - -
keep-kernel-settings bool - - - -
kubeconfig text - - - -
kubernetes-version text - - - -
lock-file text - - - -
maximum-dead-containers int - deprecated - -
maximum-dead-containers-per-container int - deprecated - -
minimum-container-ttl-duration duration - deprecated - -
no-cluster-dns bool - - - -
node-ip text - - - -
node-labels map - - - -
offline-start text - - - -
root-dir text - - - -
runtime-cgroups text - - - -
version version - - - -
application-metrics-count-limit int - meaningless 1.36 -
boot-id-file text - meaningless 1.36 -
container-hints text - meaningless 1.36 -
containerd text - meaningless 1.36 -
containerd-namespace text - meaningless 1.36 -
enable-load-reader bool - meaningless 1.36 -
event-storage-age-limit text - meaningless 1.36 -
event-storage-event-limit text - meaningless 1.36 -
global-housekeeping-interval text - meaningless 1.36 -
log-cadvisor-usage bool - meaningless 1.36 -
machine-id-file text - meaningless 1.36 -
storage-driver-buffer-duration text - meaningless 1.36 -
storage-driver-db text - meaningless 1.36 -
storage-driver-host text - meaningless 1.36 -
storage-driver-password text - meaningless 1.36 -
storage-driver-secure bool - meaningless 1.36 -
storage-driver-table text - meaningless 1.36 -
storage-driver-user text - meaningless 1.36 -
"""
"""Name, how its text is read, field, note, last version, short form; "-": none."""
