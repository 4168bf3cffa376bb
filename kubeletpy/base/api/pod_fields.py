"""The fields of a pod and of all that is in one: by kind, the type of each field. Pure.

Made by tools/gen_api_types.py from the API's OpenAPI schema; do not edit. The types are written as
in :mod:`kubeletpy.base.api.types`.
"""

from __future__ import annotations

from collections.abc import Mapping

_TABLE = """
```
AWSElasticBlockStoreVolumeSource: fsType str; partition int; readOnly bool; volumeID str
Affinity: nodeAffinity NodeAffinity; podAffinity PodAffinity; podAntiAffinity PodAntiAffinity
AppArmorProfile: localhostProfile str; type str
AzureDiskVolumeSource: cachingMode str; diskName str; diskURI str; fsType str; kind str;
    readOnly bool
AzureFileVolumeSource: readOnly bool; secretName str; shareName str
CSIVolumeSource: driver str; fsType str; nodePublishSecretRef LocalObjectReference; readOnly bool;
    volumeAttributes dict[str, str]
Capabilities: add list[str]; drop list[str]
CephFSVolumeSource: monitors list[str]; path str; readOnly bool; secretFile str;
    secretRef LocalObjectReference; user str
CinderVolumeSource: fsType str; readOnly bool; secretRef LocalObjectReference; volumeID str
ClusterTrustBundleProjection: labelSelector LabelSelector; name str; optional bool; path str;
    signerName str; user int
ConfigMapEnvSource: name str; optional bool
ConfigMapKeySelector: key str; name str; optional bool
ConfigMapProjection: items list[KeyToPath]; name str; optional bool
ConfigMapVolumeSource: defaultMode int; defaultUser int; items list[KeyToPath]; name str;
    optional bool
Container: args list[str]; command list[str]; env list[EnvVar]; envFrom list[EnvFromSource];
    image str; imagePullPolicy str; lifecycle Lifecycle; livenessProbe Probe; name str;
    ports list[ContainerPort]; readinessProbe Probe; resizePolicy list[ContainerResizePolicy];
    resources ResourceRequirements; restartPolicy str;
    restartPolicyRules list[ContainerRestartRule]; securityContext SecurityContext;
    startupProbe Probe; stdin bool; stdinOnce bool; terminationMessagePath str;
    terminationMessagePolicy str; tty bool; volumeDevices list[VolumeDevice];
    volumeMounts list[VolumeMount]; workingDir str
ContainerExtendedResourceRequest: containerName str; requestName str; resourceName str
ContainerPort: containerPort int; hostIP str; hostPort int; name str; protocol str
ContainerResizePolicy: resourceName str; restartPolicy str
ContainerRestartRule: action str; exitCodes ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: operator str; values list[int]
ContainerState: running ContainerStateRunning; terminated ContainerStateTerminated;
    waiting ContainerStateWaiting
ContainerStateRunning: startedAt str
ContainerStateTerminated: containerID str; exitCode int; finishedAt str; message str; reason str;
    signal int; startedAt str
ContainerStateWaiting: message str; reason str
ContainerStatus: allocatedResources dict[str, str]; allocatedResourcesStatus list[ResourceStatus];
    containerID str; image str; imageID str; lastState ContainerState; name str; ready bool;
    resources ResourceRequirements; restartCount int; started bool; state ContainerState;
    stopSignal str; user ContainerUser; volumeMounts list[VolumeMountStatus]
ContainerUser: linux LinuxContainerUser
DownwardAPIProjection: items list[DownwardAPIVolumeFile]
DownwardAPIVolumeFile: fieldRef ObjectFieldSelector; mode int; path str;
    resourceFieldRef ResourceFieldSelector; user int
DownwardAPIVolumeSource: defaultMode int; defaultUser int; items list[DownwardAPIVolumeFile]
EmptyDirVolumeSource: medium str; mode int; sizeLimit str
EnvFromSource: configMapRef ConfigMapEnvSource; prefix str; secretRef SecretEnvSource
EnvVar: name str; value str; valueFrom EnvVarSource
EnvVarSource: configMapKeyRef ConfigMapKeySelector; fieldRef ObjectFieldSelector;
    fileKeyRef FileKeySelector; resourceFieldRef ResourceFieldSelector;
    secretKeyRef SecretKeySelector
EphemeralContainer: args list[str]; command list[str]; env list[EnvVar];
    envFrom list[EnvFromSource]; image str; imagePullPolicy str; lifecycle Lifecycle;
    livenessProbe Probe; name str; ports list[ContainerPort]; readinessProbe Probe;
    resizePolicy list[ContainerResizePolicy]; resources ResourceRequirements; restartPolicy str;
    restartPolicyRules list[ContainerRestartRule]; securityContext SecurityContext;
    startupProbe Probe; stdin bool; stdinOnce bool; targetContainerName str;
    terminationMessagePath str; terminationMessagePolicy str; tty bool;
    volumeDevices list[VolumeDevice]; volumeMounts list[VolumeMount]; workingDir str
EphemeralVolumeSource: volumeClaimTemplate PersistentVolumeClaimTemplate
EvictionResponder: name str; priority int
ExecAction: command list[str]
FCVolumeSource: fsType str; lun int; readOnly bool; targetWWNs list[str]; wwids list[str]
FileKeySelector: key str; optional bool; path str; volumeName str
FlexVolumeSource: driver str; fsType str; options dict[str, str]; readOnly bool;
    secretRef LocalObjectReference
FlockerVolumeSource: datasetName str; datasetUUID str
GCEPersistentDiskVolumeSource: fsType str; partition int; pdName str; readOnly bool
GRPCAction: mode str; port int; service str
GitRepoVolumeSource: directory str; repository str; revision str
GlusterfsVolumeSource: endpoints str; path str; readOnly bool
HTTPGetAction: host str; httpHeaders list[HTTPHeader]; path str; port int | str; protocol str;
    scheme str
HTTPHeader: name str; value str
HostAlias: hostnames list[str]; ip str
HostIP: ip str
HostPathVolumeSource: path str; type str
ISCSIVolumeSource: chapAuthDiscovery bool; chapAuthSession bool; fsType str; initiatorName str;
    iqn str; iscsiInterface str; lun int; portals list[str]; readOnly bool;
    secretRef LocalObjectReference; targetPortal str
ImageVolumeSource: pullPolicy str; reference str
ImageVolumeStatus: imageRef str
KeyToPath: key str; mode int; path str; user int
LabelSelector: matchExpressions list[LabelSelectorRequirement]; matchLabels dict[str, str]
LabelSelectorRequirement: key str; operator str; values list[str]
Lifecycle: postStart LifecycleHandler; preStop LifecycleHandler; stopSignal str
LifecycleHandler: exec ExecAction; httpGet HTTPGetAction; sleep SleepAction;
    tcpSocket TCPSocketAction
LinuxContainerUser: gid int; supplementalGroups list[int]; uid int
LocalObjectReference: name str
ManagedFieldsEntry: apiVersion str; fieldsType str; fieldsV1 JSON; manager str; operation str;
    subresource str; time str
NFSVolumeSource: path str; readOnly bool; server str
NodeAffinity: preferredDuringSchedulingIgnoredDuringExecution list[PreferredSchedulingTerm];
    requiredDuringSchedulingIgnoredDuringExecution NodeSelector
NodeAllocatableMappedResources: name str; quantity str
NodeAllocatableOverheadResources: name str; perContainer str; perPod str
NodeAllocatableResourceClaimStatus: containers list[str];
    mapping list[NodeAllocatableMappedResources]; overhead list[NodeAllocatableOverheadResources];
    resourceClaimName str
NodeSelector: nodeSelectorTerms list[NodeSelectorTerm]
NodeSelectorRequirement: key str; operator str; values list[str]
NodeSelectorTerm: matchExpressions list[NodeSelectorRequirement];
    matchFields list[NodeSelectorRequirement]
ObjectFieldSelector: apiVersion str; fieldPath str
ObjectMeta: annotations dict[str, str]; creationTimestamp str; deletionGracePeriodSeconds int;
    deletionTimestamp str; finalizers list[str]; generateName str; generation int;
    labels dict[str, str]; managedFields list[ManagedFieldsEntry]; name str; namespace str;
    ownerReferences list[OwnerReference]; resourceVersion str; selfLink str; uid str
OwnerReference: apiVersion str; blockOwnerDeletion bool; controller bool; kind str; name str;
    uid str
PersistentVolumeClaimSpec: accessModes list[str]; dataSource TypedLocalObjectReference;
    dataSourceRef TypedObjectReference; resources VolumeResourceRequirements;
    selector LabelSelector; storageClassName str; volumeAttributesClassName str; volumeMode str;
    volumeName str
PersistentVolumeClaimTemplate: metadata ObjectMeta; spec PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource: claimName str; readOnly bool
PhotonPersistentDiskVolumeSource: fsType str; pdID str
Pod: apiVersion str; kind str; metadata ObjectMeta; spec PodSpec; status PodStatus
PodAffinity: preferredDuringSchedulingIgnoredDuringExecution list[WeightedPodAffinityTerm];
    requiredDuringSchedulingIgnoredDuringExecution list[PodAffinityTerm]
PodAffinityTerm: labelSelector LabelSelector; matchLabelKeys list[str]; mismatchLabelKeys list[str];
    namespaceSelector LabelSelector; namespaces list[str]; topologyKey str
PodAntiAffinity: preferredDuringSchedulingIgnoredDuringExecution list[WeightedPodAffinityTerm];
    requiredDuringSchedulingIgnoredDuringExecution list[PodAffinityTerm]
PodCertificateProjection: certificateChainPath str; credentialBundlePath str; keyPath str;
    keyType str; maxExpirationSeconds int; signerName str; user int; userAnnotations dict[str, str]
PodCondition: lastProbeTime str; lastTransitionTime str; message str; observedGeneration int;
    reason str; status str; type str
PodDNSConfig: nameservers list[str]; options list[PodDNSConfigOption]; searches list[str]
PodDNSConfigOption: name str; value str
PodExtendedResourceClaimStatus: requestMappings list[ContainerExtendedResourceRequest];
    resourceClaimName str
PodIP: ip str
PodOS: name str
PodReadinessGate: conditionType str
PodResourceClaim: name str; resourceClaimName str; resourceClaimTemplateName str
PodResourceClaimStatus: name str; resourceClaimName str
PodSchedulingGate: name str
PodSchedulingGroup: podGroupName str
PodSecurityContext: appArmorProfile AppArmorProfile; fsGroup int; fsGroupChangePolicy str;
    runAsGroup int; runAsNonRoot bool; runAsUser int; seLinuxChangePolicy str;
    seLinuxOptions SELinuxOptions; seccompProfile SeccompProfile; supplementalGroups list[int];
    supplementalGroupsPolicy str; sysctls list[Sysctl]; windowsOptions WindowsSecurityContextOptions
PodSpec: activeDeadlineSeconds int; affinity Affinity; automountServiceAccountToken bool;
    containers list[Container]; dnsConfig PodDNSConfig; dnsPolicy str; enableServiceLinks bool;
    ephemeralContainers list[EphemeralContainer]; evictionResponders list[EvictionResponder];
    hostAliases list[HostAlias]; hostIPC bool; hostNetwork bool; hostPID bool; hostUsers bool;
    hostname str; hostnameOverride str; imagePullSecrets list[LocalObjectReference];
    initContainers list[Container]; nodeName str; nodeSelector dict[str, str]; os PodOS;
    overhead dict[str, str]; preemptionPolicy str; priority int; priorityClassName str;
    readinessGates list[PodReadinessGate]; resourceClaims list[PodResourceClaim];
    resources ResourceRequirements; restartPolicy str; runtimeClassName str; schedulerName str;
    schedulingGates list[PodSchedulingGate]; schedulingGroup PodSchedulingGroup;
    securityContext PodSecurityContext; serviceAccount str; serviceAccountName str;
    setHostnameAsFQDN bool; shareProcessNamespace bool; subdomain str;
    terminationGracePeriodSeconds int; tolerations list[Toleration];
    topologySpreadConstraints list[TopologySpreadConstraint]; volumes list[Volume]
PodStatus: allocatedResources dict[str, str]; conditions list[PodCondition];
    containerStatuses list[ContainerStatus]; ephemeralContainerStatuses list[ContainerStatus];
    extendedResourceClaimStatus PodExtendedResourceClaimStatus; hostIP str; hostIPs list[HostIP];
    initContainerStatuses list[ContainerStatus]; message str;
    nodeAllocatableResourceClaimStatuses list[NodeAllocatableResourceClaimStatus];
    nominatedNodeName str; observedGeneration int; phase str; podIP str; podIPs list[PodIP];
    qosClass str; reason str; resize str; resourceClaimStatuses list[PodResourceClaimStatus];
    resources ResourceRequirements; startTime str; volumeHealth list[PodVolumeHealth]
PodVolumeHealth: healthConditions list[VolumeHealthCondition]; lastTransitionTime str; name str
PortworxVolumeSource: fsType str; readOnly bool; volumeID str
PreferredSchedulingTerm: preference NodeSelectorTerm; weight int
Probe: exec ExecAction; failureThreshold int; grpc GRPCAction; httpGet HTTPGetAction;
    initialDelaySeconds int; periodSeconds int; successThreshold int; tcpSocket TCPSocketAction;
    terminationGracePeriodSeconds int; timeoutSeconds int
ProjectedVolumeSource: defaultMode int; defaultUser int; sources list[VolumeProjection]
QuobyteVolumeSource: group str; readOnly bool; registry str; tenant str; user str; volume str
RBDVolumeSource: fsType str; image str; keyring str; monitors list[str]; pool str; readOnly bool;
    secretRef LocalObjectReference; user str
ResourceClaim: name str; request str
ResourceFieldSelector: containerName str; divisor str; resource str
ResourceHealth: health str; message str; resourceID str
ResourceRequirements: claims list[ResourceClaim]; limits dict[str, str]; requests dict[str, str]
ResourceStatus: name str; resources list[ResourceHealth]
SELinuxOptions: level str; role str; type str; user str
ScaleIOVolumeSource: fsType str; gateway str; protectionDomain str; readOnly bool;
    secretRef LocalObjectReference; sslEnabled bool; storageMode str; storagePool str; system str;
    volumeName str
SeccompProfile: localhostProfile str; type str
SecretEnvSource: name str; optional bool
SecretKeySelector: key str; name str; optional bool
SecretProjection: items list[KeyToPath]; name str; optional bool
SecretVolumeSource: defaultMode int; defaultUser int; items list[KeyToPath]; optional bool;
    secretName str
SecurityContext: allowPrivilegeEscalation bool; appArmorProfile AppArmorProfile;
    capabilities Capabilities; privileged bool; procMount str; readOnlyRootFilesystem bool;
    runAsGroup int; runAsNonRoot bool; runAsUser int; seLinuxOptions SELinuxOptions;
    seccompProfile SeccompProfile; windowsOptions WindowsSecurityContextOptions
ServiceAccountTokenProjection: audience str; expirationSeconds int; path str; user int
SleepAction: seconds int
StorageOSVolumeSource: fsType str; readOnly bool; secretRef LocalObjectReference; volumeName str;
    volumeNamespace str
Sysctl: name str; value str
TCPSocketAction: host str; port int | str
Toleration: effect str; key str; operator str; tolerationSeconds int; value str
TopologySpreadConstraint: labelSelector LabelSelector; matchLabelKeys list[str]; maxSkew int;
    minDomains int; nodeAffinityPolicy str; nodeTaintsPolicy str; topologyKey str;
    whenUnsatisfiable str
TypedLocalObjectReference: apiGroup str; kind str; name str
TypedObjectReference: apiGroup str; kind str; name str; namespace str
Volume: awsElasticBlockStore AWSElasticBlockStoreVolumeSource; azureDisk AzureDiskVolumeSource;
    azureFile AzureFileVolumeSource; cephfs CephFSVolumeSource; cinder CinderVolumeSource;
    configMap ConfigMapVolumeSource; csi CSIVolumeSource; downwardAPI DownwardAPIVolumeSource;
    emptyDir EmptyDirVolumeSource; ephemeral EphemeralVolumeSource; fc FCVolumeSource;
    flexVolume FlexVolumeSource; flocker FlockerVolumeSource;
    gcePersistentDisk GCEPersistentDiskVolumeSource; gitRepo GitRepoVolumeSource;
    glusterfs GlusterfsVolumeSource; hostPath HostPathVolumeSource; image ImageVolumeSource;
    iscsi ISCSIVolumeSource; name str; nfs NFSVolumeSource;
    persistentVolumeClaim PersistentVolumeClaimVolumeSource;
    photonPersistentDisk PhotonPersistentDiskVolumeSource; portworxVolume PortworxVolumeSource;
    projected ProjectedVolumeSource; quobyte QuobyteVolumeSource; rbd RBDVolumeSource;
    scaleIO ScaleIOVolumeSource; secret SecretVolumeSource; storageos StorageOSVolumeSource;
    vsphereVolume VsphereVirtualDiskVolumeSource
VolumeDevice: devicePath str; name str
VolumeHealthCondition: message str; reason str; status str
VolumeMount: bindMountOptions list[str]; mountPath str; mountPropagation str; name str;
    readOnly bool; recursiveReadOnly str; subPath str; subPathExpr str
VolumeMountStatus: mountPath str; name str; readOnly bool; recursiveReadOnly str;
    volumeStatus VolumeStatus
VolumeProjection: clusterTrustBundle ClusterTrustBundleProjection; configMap ConfigMapProjection;
    downwardAPI DownwardAPIProjection; podCertificate PodCertificateProjection;
    secret SecretProjection; serviceAccountToken ServiceAccountTokenProjection
VolumeResourceRequirements: limits dict[str, str]; requests dict[str, str]
VolumeStatus: image ImageVolumeStatus
VsphereVirtualDiskVolumeSource: fsType str; storagePolicyID str; storagePolicyName str;
    volumePath str
WeightedPodAffinityTerm: podAffinityTerm PodAffinityTerm; weight int
WindowsSecurityContextOptions: gmsaCredentialSpec str; gmsaCredentialSpecName str; hostProcess bool;
    runAsUserName str
```
"""
"""A line for each kind, with its fields and their types; indented lines continue a line."""

KINDS: Mapping[str, str] = dict(
    line.split(": ", 1) for line in _TABLE.replace("\n    ", " ").strip("`\n").split("\n")
)
"""Every kind with the text of its fields."""


def fields_of(kind: str) -> dict[str, str]:
    """The fields of a kind, each with its type."""
    return dict(field.split(" ", 1) for field in KINDS[kind].split("; "))
