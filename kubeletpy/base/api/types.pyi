"""Kubernetes objects as plain JSON with known fields (TypedDicts).

Made by tools/gen_api_types.py from the API's OpenAPI schema; do not edit. Every field is optional
here, as it is on the wire: read with ``.get`` what may be absent. Quantities and times stay strings
(:mod:`kubeletpy.base.api.quantity`, :mod:`kubeletpy.base.api.times` read them). Objects that arrive
are shared: never change one in place.
"""

from __future__ import annotations

from typing import Any, TypedDict

JSON = dict[str, Any]
"""Any JSON object."""

class AWSElasticBlockStoreVolumeSource(TypedDict, total=False):
    fsType: str
    partition: int
    readOnly: bool
    volumeID: str

class Affinity(TypedDict, total=False):
    nodeAffinity: NodeAffinity
    podAffinity: PodAffinity
    podAntiAffinity: PodAntiAffinity

class AppArmorProfile(TypedDict, total=False):
    localhostProfile: str
    type: str

class AttachedVolume(TypedDict, total=False):
    devicePath: str
    name: str

class AzureDiskVolumeSource(TypedDict, total=False):
    cachingMode: str
    diskName: str
    diskURI: str
    fsType: str
    kind: str
    readOnly: bool

class AzureFilePersistentVolumeSource(TypedDict, total=False):
    readOnly: bool
    secretName: str
    secretNamespace: str
    shareName: str

class AzureFileVolumeSource(TypedDict, total=False):
    readOnly: bool
    secretName: str
    shareName: str

class Binding(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    target: ObjectReference

class BoundObjectReference(TypedDict, total=False):
    apiVersion: str
    kind: str
    name: str
    uid: str

class CSIPersistentVolumeSource(TypedDict, total=False):
    controllerExpandSecretRef: SecretReference
    controllerPublishSecretRef: SecretReference
    driver: str
    fsType: str
    nodeExpandSecretRef: SecretReference
    nodePublishSecretRef: SecretReference
    nodeStageSecretRef: SecretReference
    readOnly: bool
    volumeAttributes: dict[str, str]
    volumeHandle: str

class CSIVolumeSource(TypedDict, total=False):
    driver: str
    fsType: str
    nodePublishSecretRef: LocalObjectReference
    readOnly: bool
    volumeAttributes: dict[str, str]

class Capabilities(TypedDict, total=False):
    add: list[str]
    drop: list[str]

class CephFSPersistentVolumeSource(TypedDict, total=False):
    monitors: list[str]
    path: str
    readOnly: bool
    secretFile: str
    secretRef: SecretReference
    user: str

class CephFSVolumeSource(TypedDict, total=False):
    monitors: list[str]
    path: str
    readOnly: bool
    secretFile: str
    secretRef: LocalObjectReference
    user: str

class CertificateSigningRequest(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: CertificateSigningRequestSpec
    status: CertificateSigningRequestStatus

class CertificateSigningRequestCondition(TypedDict, total=False):
    lastTransitionTime: str
    lastUpdateTime: str
    message: str
    reason: str
    status: str
    type: str

class CertificateSigningRequestList(TypedDict, total=False):
    apiVersion: str
    items: list[CertificateSigningRequest]
    kind: str
    metadata: ListMeta

class CertificateSigningRequestSpec(TypedDict, total=False):
    expirationSeconds: int
    extra: dict[str, list[str]]
    groups: list[str]
    request: str
    signerName: str
    uid: str
    usages: list[str]
    username: str

class CertificateSigningRequestStatus(TypedDict, total=False):
    certificate: str
    conditions: list[CertificateSigningRequestCondition]

class CinderPersistentVolumeSource(TypedDict, total=False):
    fsType: str
    readOnly: bool
    secretRef: SecretReference
    volumeID: str

class CinderVolumeSource(TypedDict, total=False):
    fsType: str
    readOnly: bool
    secretRef: LocalObjectReference
    volumeID: str

class ClientIPConfig(TypedDict, total=False):
    timeoutSeconds: int

class ClusterTrustBundleProjection(TypedDict, total=False):
    labelSelector: LabelSelector
    name: str
    optional: bool
    path: str
    signerName: str
    user: int

class ComponentCondition(TypedDict, total=False):
    error: str
    message: str
    status: str
    type: str

class ComponentStatus(TypedDict, total=False):
    apiVersion: str
    conditions: list[ComponentCondition]
    kind: str
    metadata: ObjectMeta

class ComponentStatusList(TypedDict, total=False):
    apiVersion: str
    items: list[ComponentStatus]
    kind: str
    metadata: ListMeta

class Condition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    observedGeneration: int
    reason: str
    status: str
    type: str

class ConfigMap(TypedDict, total=False):
    apiVersion: str
    binaryData: dict[str, str]
    data: dict[str, str]
    immutable: bool
    kind: str
    metadata: ObjectMeta

class ConfigMapEnvSource(TypedDict, total=False):
    name: str
    optional: bool

class ConfigMapKeySelector(TypedDict, total=False):
    key: str
    name: str
    optional: bool

class ConfigMapList(TypedDict, total=False):
    apiVersion: str
    items: list[ConfigMap]
    kind: str
    metadata: ListMeta

class ConfigMapNodeConfigSource(TypedDict, total=False):
    kubeletConfigKey: str
    name: str
    namespace: str
    resourceVersion: str
    uid: str

class ConfigMapProjection(TypedDict, total=False):
    items: list[KeyToPath]
    name: str
    optional: bool

class ConfigMapVolumeSource(TypedDict, total=False):
    defaultMode: int
    defaultUser: int
    items: list[KeyToPath]
    name: str
    optional: bool

class Container(TypedDict, total=False):
    args: list[str]
    command: list[str]
    env: list[EnvVar]
    envFrom: list[EnvFromSource]
    image: str
    imagePullPolicy: str
    lifecycle: Lifecycle
    livenessProbe: Probe
    name: str
    ports: list[ContainerPort]
    readinessProbe: Probe
    resizePolicy: list[ContainerResizePolicy]
    resources: ResourceRequirements
    restartPolicy: str
    restartPolicyRules: list[ContainerRestartRule]
    securityContext: SecurityContext
    startupProbe: Probe
    stdin: bool
    stdinOnce: bool
    terminationMessagePath: str
    terminationMessagePolicy: str
    tty: bool
    volumeDevices: list[VolumeDevice]
    volumeMounts: list[VolumeMount]
    workingDir: str

class ContainerExtendedResourceRequest(TypedDict, total=False):
    containerName: str
    requestName: str
    resourceName: str

class ContainerImage(TypedDict, total=False):
    names: list[str]
    sizeBytes: int

class ContainerPort(TypedDict, total=False):
    containerPort: int
    hostIP: str
    hostPort: int
    name: str
    protocol: str

class ContainerResizePolicy(TypedDict, total=False):
    resourceName: str
    restartPolicy: str

class ContainerRestartRule(TypedDict, total=False):
    action: str
    exitCodes: ContainerRestartRuleOnExitCodes

class ContainerRestartRuleOnExitCodes(TypedDict, total=False):
    operator: str
    values: list[int]

class ContainerState(TypedDict, total=False):
    running: ContainerStateRunning
    terminated: ContainerStateTerminated
    waiting: ContainerStateWaiting

class ContainerStateRunning(TypedDict, total=False):
    startedAt: str

class ContainerStateTerminated(TypedDict, total=False):
    containerID: str
    exitCode: int
    finishedAt: str
    message: str
    reason: str
    signal: int
    startedAt: str

class ContainerStateWaiting(TypedDict, total=False):
    message: str
    reason: str

class ContainerStatus(TypedDict, total=False):
    allocatedResources: dict[str, str]
    allocatedResourcesStatus: list[ResourceStatus]
    containerID: str
    image: str
    imageID: str
    lastState: ContainerState
    name: str
    ready: bool
    resources: ResourceRequirements
    restartCount: int
    started: bool
    state: ContainerState
    stopSignal: str
    user: ContainerUser
    volumeMounts: list[VolumeMountStatus]

class ContainerUser(TypedDict, total=False):
    linux: LinuxContainerUser

class DaemonEndpoint(TypedDict, total=False):
    Port: int

class DownwardAPIProjection(TypedDict, total=False):
    items: list[DownwardAPIVolumeFile]

class DownwardAPIVolumeFile(TypedDict, total=False):
    fieldRef: ObjectFieldSelector
    mode: int
    path: str
    resourceFieldRef: ResourceFieldSelector
    user: int

class DownwardAPIVolumeSource(TypedDict, total=False):
    defaultMode: int
    defaultUser: int
    items: list[DownwardAPIVolumeFile]

class EmptyDirVolumeSource(TypedDict, total=False):
    medium: str
    mode: int
    sizeLimit: str

class EndpointAddress(TypedDict, total=False):
    hostname: str
    ip: str
    nodeName: str
    targetRef: ObjectReference

class EndpointPort(TypedDict, total=False):
    appProtocol: str
    name: str
    port: int
    protocol: str

class EndpointSubset(TypedDict, total=False):
    addresses: list[EndpointAddress]
    notReadyAddresses: list[EndpointAddress]
    ports: list[EndpointPort]

class Endpoints(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    subsets: list[EndpointSubset]

class EndpointsList(TypedDict, total=False):
    apiVersion: str
    items: list[Endpoints]
    kind: str
    metadata: ListMeta

class EnvFromSource(TypedDict, total=False):
    configMapRef: ConfigMapEnvSource
    prefix: str
    secretRef: SecretEnvSource

class EnvVar(TypedDict, total=False):
    name: str
    value: str
    valueFrom: EnvVarSource

class EnvVarSource(TypedDict, total=False):
    configMapKeyRef: ConfigMapKeySelector
    fieldRef: ObjectFieldSelector
    fileKeyRef: FileKeySelector
    resourceFieldRef: ResourceFieldSelector
    secretKeyRef: SecretKeySelector

class EphemeralContainer(TypedDict, total=False):
    args: list[str]
    command: list[str]
    env: list[EnvVar]
    envFrom: list[EnvFromSource]
    image: str
    imagePullPolicy: str
    lifecycle: Lifecycle
    livenessProbe: Probe
    name: str
    ports: list[ContainerPort]
    readinessProbe: Probe
    resizePolicy: list[ContainerResizePolicy]
    resources: ResourceRequirements
    restartPolicy: str
    restartPolicyRules: list[ContainerRestartRule]
    securityContext: SecurityContext
    startupProbe: Probe
    stdin: bool
    stdinOnce: bool
    targetContainerName: str
    terminationMessagePath: str
    terminationMessagePolicy: str
    tty: bool
    volumeDevices: list[VolumeDevice]
    volumeMounts: list[VolumeMount]
    workingDir: str

class EphemeralVolumeSource(TypedDict, total=False):
    volumeClaimTemplate: PersistentVolumeClaimTemplate

class Event(TypedDict, total=False):
    action: str
    apiVersion: str
    count: int
    eventTime: str
    firstTimestamp: str
    involvedObject: ObjectReference
    kind: str
    lastTimestamp: str
    message: str
    metadata: ObjectMeta
    reason: str
    related: ObjectReference
    reportingComponent: str
    reportingInstance: str
    series: EventSeries
    source: EventSource
    type: str

class EventList(TypedDict, total=False):
    apiVersion: str
    items: list[Event]
    kind: str
    metadata: ListMeta

class EventSeries(TypedDict, total=False):
    count: int
    lastObservedTime: str

class EventSource(TypedDict, total=False):
    component: str
    host: str

class EventsV1Event(TypedDict, total=False):
    action: str
    apiVersion: str
    deprecatedCount: int
    deprecatedFirstTimestamp: str
    deprecatedLastTimestamp: str
    deprecatedSource: EventSource
    eventTime: str
    kind: str
    metadata: ObjectMeta
    note: str
    reason: str
    regarding: ObjectReference
    related: ObjectReference
    reportingController: str
    reportingInstance: str
    series: EventsV1EventSeries
    type: str

class EventsV1EventList(TypedDict, total=False):
    apiVersion: str
    items: list[EventsV1Event]
    kind: str
    metadata: ListMeta

class EventsV1EventSeries(TypedDict, total=False):
    count: int
    lastObservedTime: str

class EvictionResponder(TypedDict, total=False):
    name: str
    priority: int

class ExecAction(TypedDict, total=False):
    command: list[str]

class FCVolumeSource(TypedDict, total=False):
    fsType: str
    lun: int
    readOnly: bool
    targetWWNs: list[str]
    wwids: list[str]

class FieldSelectorAttributes(TypedDict, total=False):
    rawSelector: str
    requirements: list[FieldSelectorRequirement]

class FieldSelectorRequirement(TypedDict, total=False):
    key: str
    operator: str
    values: list[str]

class FileKeySelector(TypedDict, total=False):
    key: str
    optional: bool
    path: str
    volumeName: str

class FlexPersistentVolumeSource(TypedDict, total=False):
    driver: str
    fsType: str
    options: dict[str, str]
    readOnly: bool
    secretRef: SecretReference

class FlexVolumeSource(TypedDict, total=False):
    driver: str
    fsType: str
    options: dict[str, str]
    readOnly: bool
    secretRef: LocalObjectReference

class FlockerVolumeSource(TypedDict, total=False):
    datasetName: str
    datasetUUID: str

class GCEPersistentDiskVolumeSource(TypedDict, total=False):
    fsType: str
    partition: int
    pdName: str
    readOnly: bool

class GRPCAction(TypedDict, total=False):
    mode: str
    port: int
    service: str

class GitRepoVolumeSource(TypedDict, total=False):
    directory: str
    repository: str
    revision: str

class GlusterfsPersistentVolumeSource(TypedDict, total=False):
    endpoints: str
    endpointsNamespace: str
    path: str
    readOnly: bool

class GlusterfsVolumeSource(TypedDict, total=False):
    endpoints: str
    path: str
    readOnly: bool

class HTTPGetAction(TypedDict, total=False):
    host: str
    httpHeaders: list[HTTPHeader]
    path: str
    port: int | str
    protocol: str
    scheme: str

class HTTPHeader(TypedDict, total=False):
    name: str
    value: str

class HostAlias(TypedDict, total=False):
    hostnames: list[str]
    ip: str

class HostIP(TypedDict, total=False):
    ip: str

class HostPathVolumeSource(TypedDict, total=False):
    path: str
    type: str

class ISCSIPersistentVolumeSource(TypedDict, total=False):
    chapAuthDiscovery: bool
    chapAuthSession: bool
    fsType: str
    initiatorName: str
    iqn: str
    iscsiInterface: str
    lun: int
    portals: list[str]
    readOnly: bool
    secretRef: SecretReference
    targetPortal: str

class ISCSIVolumeSource(TypedDict, total=False):
    chapAuthDiscovery: bool
    chapAuthSession: bool
    fsType: str
    initiatorName: str
    iqn: str
    iscsiInterface: str
    lun: int
    portals: list[str]
    readOnly: bool
    secretRef: LocalObjectReference
    targetPortal: str

class ImageVolumeSource(TypedDict, total=False):
    pullPolicy: str
    reference: str

class ImageVolumeStatus(TypedDict, total=False):
    imageRef: str

class KeyToPath(TypedDict, total=False):
    key: str
    mode: int
    path: str
    user: int

class LabelSelector(TypedDict, total=False):
    matchExpressions: list[LabelSelectorRequirement]
    matchLabels: dict[str, str]

class LabelSelectorAttributes(TypedDict, total=False):
    rawSelector: str
    requirements: list[LabelSelectorRequirement]

class LabelSelectorRequirement(TypedDict, total=False):
    key: str
    operator: str
    values: list[str]

class Lease(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: LeaseSpec

class LeaseList(TypedDict, total=False):
    apiVersion: str
    items: list[Lease]
    kind: str
    metadata: ListMeta

class LeaseSpec(TypedDict, total=False):
    acquireTime: str
    holderIdentity: str
    leaseDurationSeconds: int
    leaseTransitions: int
    preferredHolder: str
    renewTime: str
    strategy: str

class Lifecycle(TypedDict, total=False):
    postStart: LifecycleHandler
    preStop: LifecycleHandler
    stopSignal: str

class LifecycleHandler(TypedDict, total=False):
    exec: ExecAction
    httpGet: HTTPGetAction
    sleep: SleepAction
    tcpSocket: TCPSocketAction

class LimitRange(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: LimitRangeSpec

class LimitRangeItem(TypedDict, total=False):
    default: dict[str, str]
    defaultRequest: dict[str, str]
    max: dict[str, str]
    maxLimitRequestRatio: dict[str, str]
    min: dict[str, str]
    type: str

class LimitRangeList(TypedDict, total=False):
    apiVersion: str
    items: list[LimitRange]
    kind: str
    metadata: ListMeta

class LimitRangeSpec(TypedDict, total=False):
    limits: list[LimitRangeItem]

class LinuxContainerUser(TypedDict, total=False):
    gid: int
    supplementalGroups: list[int]
    uid: int

ListMeta = TypedDict(
    "ListMeta",
    {
        "continue": "str",
        "remainingItemCount": "int",
        "resourceVersion": "str",
        "selfLink": "str",
        "shardInfo": "ShardInfo",
    },
    total=False,
)

class LoadBalancerIngress(TypedDict, total=False):
    hostname: str
    ip: str
    ipMode: str
    ports: list[PortStatus]

class LoadBalancerStatus(TypedDict, total=False):
    ingress: list[LoadBalancerIngress]

class LocalObjectReference(TypedDict, total=False):
    name: str

class LocalSubjectAccessReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: SubjectAccessReviewSpec
    status: SubjectAccessReviewStatus

class LocalVolumeSource(TypedDict, total=False):
    fsType: str
    path: str

class ManagedFieldsEntry(TypedDict, total=False):
    apiVersion: str
    fieldsType: str
    fieldsV1: JSON
    manager: str
    operation: str
    subresource: str
    time: str

class ModifyVolumeStatus(TypedDict, total=False):
    status: str
    targetVolumeAttributesClassName: str

class NFSVolumeSource(TypedDict, total=False):
    path: str
    readOnly: bool
    server: str

class Namespace(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: NamespaceSpec
    status: NamespaceStatus

class NamespaceCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    reason: str
    status: str
    type: str

class NamespaceList(TypedDict, total=False):
    apiVersion: str
    items: list[Namespace]
    kind: str
    metadata: ListMeta

class NamespaceSpec(TypedDict, total=False):
    finalizers: list[str]

class NamespaceStatus(TypedDict, total=False):
    conditions: list[NamespaceCondition]
    phase: str

class Node(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: NodeSpec
    status: NodeStatus

class NodeAddress(TypedDict, total=False):
    address: str
    type: str

class NodeAffinity(TypedDict, total=False):
    preferredDuringSchedulingIgnoredDuringExecution: list[PreferredSchedulingTerm]
    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector

class NodeAllocatableMappedResources(TypedDict, total=False):
    name: str
    quantity: str

class NodeAllocatableOverheadResources(TypedDict, total=False):
    name: str
    perContainer: str
    perPod: str

class NodeAllocatableResourceClaimStatus(TypedDict, total=False):
    containers: list[str]
    mapping: list[NodeAllocatableMappedResources]
    overhead: list[NodeAllocatableOverheadResources]
    resourceClaimName: str

class NodeCondition(TypedDict, total=False):
    lastHeartbeatTime: str
    lastTransitionTime: str
    message: str
    reason: str
    status: str
    type: str

class NodeConfigSource(TypedDict, total=False):
    configMap: ConfigMapNodeConfigSource

class NodeConfigStatus(TypedDict, total=False):
    active: NodeConfigSource
    assigned: NodeConfigSource
    error: str
    lastKnownGood: NodeConfigSource

class NodeDaemonEndpoints(TypedDict, total=False):
    kubeletEndpoint: DaemonEndpoint

class NodeFeatures(TypedDict, total=False):
    supplementalGroupsPolicy: bool

class NodeList(TypedDict, total=False):
    apiVersion: str
    items: list[Node]
    kind: str
    metadata: ListMeta

class NodePodPreemptionPolicy(TypedDict, total=False):
    disableResizePreemption: list[str]

class NodeRuntimeHandler(TypedDict, total=False):
    features: NodeRuntimeHandlerFeatures
    name: str

class NodeRuntimeHandlerFeatures(TypedDict, total=False):
    recursiveReadOnlyMounts: bool
    userNamespaces: bool

class NodeSelector(TypedDict, total=False):
    nodeSelectorTerms: list[NodeSelectorTerm]

class NodeSelectorRequirement(TypedDict, total=False):
    key: str
    operator: str
    values: list[str]

class NodeSelectorTerm(TypedDict, total=False):
    matchExpressions: list[NodeSelectorRequirement]
    matchFields: list[NodeSelectorRequirement]

class NodeSpec(TypedDict, total=False):
    configSource: NodeConfigSource
    externalID: str
    podCIDR: str
    podCIDRs: list[str]
    podPreemptionPolicy: NodePodPreemptionPolicy
    providerID: str
    taints: list[Taint]
    unschedulable: bool

class NodeStatus(TypedDict, total=False):
    addresses: list[NodeAddress]
    allocatable: dict[str, str]
    capacity: dict[str, str]
    conditions: list[NodeCondition]
    config: NodeConfigStatus
    daemonEndpoints: NodeDaemonEndpoints
    declaredFeatures: list[str]
    features: NodeFeatures
    images: list[ContainerImage]
    nodeInfo: NodeSystemInfo
    phase: str
    runtimeHandlers: list[NodeRuntimeHandler]
    volumesAttached: list[AttachedVolume]
    volumesInUse: list[str]

class NodeSwapStatus(TypedDict, total=False):
    capacity: int

class NodeSystemInfo(TypedDict, total=False):
    architecture: str
    bootID: str
    containerRuntimeVersion: str
    kernelVersion: str
    kubeProxyVersion: str
    kubeletVersion: str
    machineID: str
    operatingSystem: str
    osImage: str
    runningInUserNamespace: bool
    swap: NodeSwapStatus
    systemUUID: str

class NonResourceAttributes(TypedDict, total=False):
    path: str
    verb: str

class NonResourceRule(TypedDict, total=False):
    nonResourceURLs: list[str]
    verbs: list[str]

class ObjectFieldSelector(TypedDict, total=False):
    apiVersion: str
    fieldPath: str

class ObjectMeta(TypedDict, total=False):
    annotations: dict[str, str]
    creationTimestamp: str
    deletionGracePeriodSeconds: int
    deletionTimestamp: str
    finalizers: list[str]
    generateName: str
    generation: int
    labels: dict[str, str]
    managedFields: list[ManagedFieldsEntry]
    name: str
    namespace: str
    ownerReferences: list[OwnerReference]
    resourceVersion: str
    selfLink: str
    uid: str

class ObjectReference(TypedDict, total=False):
    apiVersion: str
    fieldPath: str
    kind: str
    name: str
    namespace: str
    resourceVersion: str
    uid: str

class Overhead(TypedDict, total=False):
    podFixed: dict[str, str]

class OwnerReference(TypedDict, total=False):
    apiVersion: str
    blockOwnerDeletion: bool
    controller: bool
    kind: str
    name: str
    uid: str

class PersistentVolume(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: PersistentVolumeSpec
    status: PersistentVolumeStatus

class PersistentVolumeClaim(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec
    status: PersistentVolumeClaimStatus

class PersistentVolumeClaimCondition(TypedDict, total=False):
    lastProbeTime: str
    lastTransitionTime: str
    message: str
    reason: str
    status: str
    type: str

class PersistentVolumeClaimList(TypedDict, total=False):
    apiVersion: str
    items: list[PersistentVolumeClaim]
    kind: str
    metadata: ListMeta

class PersistentVolumeClaimSpec(TypedDict, total=False):
    accessModes: list[str]
    dataSource: TypedLocalObjectReference
    dataSourceRef: TypedObjectReference
    resources: VolumeResourceRequirements
    selector: LabelSelector
    storageClassName: str
    volumeAttributesClassName: str
    volumeMode: str
    volumeName: str

class PersistentVolumeClaimStatus(TypedDict, total=False):
    accessModes: list[str]
    allocatedResourceStatuses: dict[str, str]
    allocatedResources: dict[str, str]
    capacity: dict[str, str]
    conditions: list[PersistentVolumeClaimCondition]
    currentVolumeAttributesClassName: str
    healthStatus: VolumeHealthStatus
    modifyVolumeStatus: ModifyVolumeStatus
    phase: str

class PersistentVolumeClaimTemplate(TypedDict, total=False):
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec

class PersistentVolumeClaimVolumeSource(TypedDict, total=False):
    claimName: str
    readOnly: bool

class PersistentVolumeList(TypedDict, total=False):
    apiVersion: str
    items: list[PersistentVolume]
    kind: str
    metadata: ListMeta

class PersistentVolumeSpec(TypedDict, total=False):
    accessModes: list[str]
    awsElasticBlockStore: AWSElasticBlockStoreVolumeSource
    azureDisk: AzureDiskVolumeSource
    azureFile: AzureFilePersistentVolumeSource
    capacity: dict[str, str]
    cephfs: CephFSPersistentVolumeSource
    cinder: CinderPersistentVolumeSource
    claimRef: ObjectReference
    csi: CSIPersistentVolumeSource
    fc: FCVolumeSource
    flexVolume: FlexPersistentVolumeSource
    flocker: FlockerVolumeSource
    gcePersistentDisk: GCEPersistentDiskVolumeSource
    glusterfs: GlusterfsPersistentVolumeSource
    hostPath: HostPathVolumeSource
    iscsi: ISCSIPersistentVolumeSource
    local: LocalVolumeSource
    mountOptions: list[str]
    nfs: NFSVolumeSource
    nodeAffinity: VolumeNodeAffinity
    persistentVolumeReclaimPolicy: str
    photonPersistentDisk: PhotonPersistentDiskVolumeSource
    portworxVolume: PortworxVolumeSource
    quobyte: QuobyteVolumeSource
    rbd: RBDPersistentVolumeSource
    scaleIO: ScaleIOPersistentVolumeSource
    storageClassName: str
    storageos: StorageOSPersistentVolumeSource
    volumeAttributesClassName: str
    volumeMode: str
    vsphereVolume: VsphereVirtualDiskVolumeSource

class PersistentVolumeStatus(TypedDict, total=False):
    lastPhaseTransitionTime: str
    message: str
    phase: str
    reason: str

class PhotonPersistentDiskVolumeSource(TypedDict, total=False):
    fsType: str
    pdID: str

class Pod(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus

class PodAffinity(TypedDict, total=False):
    preferredDuringSchedulingIgnoredDuringExecution: list[WeightedPodAffinityTerm]
    requiredDuringSchedulingIgnoredDuringExecution: list[PodAffinityTerm]

class PodAffinityTerm(TypedDict, total=False):
    labelSelector: LabelSelector
    matchLabelKeys: list[str]
    mismatchLabelKeys: list[str]
    namespaceSelector: LabelSelector
    namespaces: list[str]
    topologyKey: str

class PodAntiAffinity(TypedDict, total=False):
    preferredDuringSchedulingIgnoredDuringExecution: list[WeightedPodAffinityTerm]
    requiredDuringSchedulingIgnoredDuringExecution: list[PodAffinityTerm]

class PodCertificateProjection(TypedDict, total=False):
    certificateChainPath: str
    credentialBundlePath: str
    keyPath: str
    keyType: str
    maxExpirationSeconds: int
    signerName: str
    user: int
    userAnnotations: dict[str, str]

class PodCondition(TypedDict, total=False):
    lastProbeTime: str
    lastTransitionTime: str
    message: str
    observedGeneration: int
    reason: str
    status: str
    type: str

class PodDNSConfig(TypedDict, total=False):
    nameservers: list[str]
    options: list[PodDNSConfigOption]
    searches: list[str]

class PodDNSConfigOption(TypedDict, total=False):
    name: str
    value: str

class PodExtendedResourceClaimStatus(TypedDict, total=False):
    requestMappings: list[ContainerExtendedResourceRequest]
    resourceClaimName: str

class PodIP(TypedDict, total=False):
    ip: str

class PodList(TypedDict, total=False):
    apiVersion: str
    items: list[Pod]
    kind: str
    metadata: ListMeta

class PodOS(TypedDict, total=False):
    name: str

class PodReadinessGate(TypedDict, total=False):
    conditionType: str

class PodResourceClaim(TypedDict, total=False):
    name: str
    resourceClaimName: str
    resourceClaimTemplateName: str

class PodResourceClaimStatus(TypedDict, total=False):
    name: str
    resourceClaimName: str

class PodSchedulingGate(TypedDict, total=False):
    name: str

class PodSchedulingGroup(TypedDict, total=False):
    podGroupName: str

class PodSecurityContext(TypedDict, total=False):
    appArmorProfile: AppArmorProfile
    fsGroup: int
    fsGroupChangePolicy: str
    runAsGroup: int
    runAsNonRoot: bool
    runAsUser: int
    seLinuxChangePolicy: str
    seLinuxOptions: SELinuxOptions
    seccompProfile: SeccompProfile
    supplementalGroups: list[int]
    supplementalGroupsPolicy: str
    sysctls: list[Sysctl]
    windowsOptions: WindowsSecurityContextOptions

class PodSpec(TypedDict, total=False):
    activeDeadlineSeconds: int
    affinity: Affinity
    automountServiceAccountToken: bool
    containers: list[Container]
    dnsConfig: PodDNSConfig
    dnsPolicy: str
    enableServiceLinks: bool
    ephemeralContainers: list[EphemeralContainer]
    evictionResponders: list[EvictionResponder]
    hostAliases: list[HostAlias]
    hostIPC: bool
    hostNetwork: bool
    hostPID: bool
    hostUsers: bool
    hostname: str
    hostnameOverride: str
    imagePullSecrets: list[LocalObjectReference]
    initContainers: list[Container]
    nodeName: str
    nodeSelector: dict[str, str]
    os: PodOS
    overhead: dict[str, str]
    preemptionPolicy: str
    priority: int
    priorityClassName: str
    readinessGates: list[PodReadinessGate]
    resourceClaims: list[PodResourceClaim]
    resources: ResourceRequirements
    restartPolicy: str
    runtimeClassName: str
    schedulerName: str
    schedulingGates: list[PodSchedulingGate]
    schedulingGroup: PodSchedulingGroup
    securityContext: PodSecurityContext
    serviceAccount: str
    serviceAccountName: str
    setHostnameAsFQDN: bool
    shareProcessNamespace: bool
    subdomain: str
    terminationGracePeriodSeconds: int
    tolerations: list[Toleration]
    topologySpreadConstraints: list[TopologySpreadConstraint]
    volumes: list[Volume]

class PodStatus(TypedDict, total=False):
    allocatedResources: dict[str, str]
    conditions: list[PodCondition]
    containerStatuses: list[ContainerStatus]
    ephemeralContainerStatuses: list[ContainerStatus]
    extendedResourceClaimStatus: PodExtendedResourceClaimStatus
    hostIP: str
    hostIPs: list[HostIP]
    initContainerStatuses: list[ContainerStatus]
    message: str
    nodeAllocatableResourceClaimStatuses: list[NodeAllocatableResourceClaimStatus]
    nominatedNodeName: str
    observedGeneration: int
    phase: str
    podIP: str
    podIPs: list[PodIP]
    qosClass: str
    reason: str
    resize: str
    resourceClaimStatuses: list[PodResourceClaimStatus]
    resources: ResourceRequirements
    startTime: str
    volumeHealth: list[PodVolumeHealth]

class PodTemplate(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    template: PodTemplateSpec

class PodTemplateList(TypedDict, total=False):
    apiVersion: str
    items: list[PodTemplate]
    kind: str
    metadata: ListMeta

class PodTemplateSpec(TypedDict, total=False):
    metadata: ObjectMeta
    spec: PodSpec

class PodVolumeHealth(TypedDict, total=False):
    healthConditions: list[VolumeHealthCondition]
    lastTransitionTime: str
    name: str

class PortStatus(TypedDict, total=False):
    error: str
    port: int
    protocol: str

class PortworxVolumeSource(TypedDict, total=False):
    fsType: str
    readOnly: bool
    volumeID: str

class PreferredSchedulingTerm(TypedDict, total=False):
    preference: NodeSelectorTerm
    weight: int

class Probe(TypedDict, total=False):
    exec: ExecAction
    failureThreshold: int
    grpc: GRPCAction
    httpGet: HTTPGetAction
    initialDelaySeconds: int
    periodSeconds: int
    successThreshold: int
    tcpSocket: TCPSocketAction
    terminationGracePeriodSeconds: int
    timeoutSeconds: int

class ProjectedVolumeSource(TypedDict, total=False):
    defaultMode: int
    defaultUser: int
    sources: list[VolumeProjection]

class QuobyteVolumeSource(TypedDict, total=False):
    group: str
    readOnly: bool
    registry: str
    tenant: str
    user: str
    volume: str

class RBDPersistentVolumeSource(TypedDict, total=False):
    fsType: str
    image: str
    keyring: str
    monitors: list[str]
    pool: str
    readOnly: bool
    secretRef: SecretReference
    user: str

class RBDVolumeSource(TypedDict, total=False):
    fsType: str
    image: str
    keyring: str
    monitors: list[str]
    pool: str
    readOnly: bool
    secretRef: LocalObjectReference
    user: str

class ReplicationController(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: ReplicationControllerSpec
    status: ReplicationControllerStatus

class ReplicationControllerCondition(TypedDict, total=False):
    lastTransitionTime: str
    message: str
    reason: str
    status: str
    type: str

class ReplicationControllerList(TypedDict, total=False):
    apiVersion: str
    items: list[ReplicationController]
    kind: str
    metadata: ListMeta

class ReplicationControllerSpec(TypedDict, total=False):
    minReadySeconds: int
    replicas: int
    selector: dict[str, str]
    template: PodTemplateSpec

class ReplicationControllerStatus(TypedDict, total=False):
    availableReplicas: int
    conditions: list[ReplicationControllerCondition]
    fullyLabeledReplicas: int
    observedGeneration: int
    readyReplicas: int
    replicas: int

class ResourceAttributes(TypedDict, total=False):
    fieldSelector: FieldSelectorAttributes
    group: str
    labelSelector: LabelSelectorAttributes
    name: str
    namespace: str
    resource: str
    subresource: str
    verb: str
    version: str

class ResourceClaim(TypedDict, total=False):
    name: str
    request: str

class ResourceFieldSelector(TypedDict, total=False):
    containerName: str
    divisor: str
    resource: str

class ResourceHealth(TypedDict, total=False):
    health: str
    message: str
    resourceID: str

class ResourceQuota(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: ResourceQuotaSpec
    status: ResourceQuotaStatus

class ResourceQuotaList(TypedDict, total=False):
    apiVersion: str
    items: list[ResourceQuota]
    kind: str
    metadata: ListMeta

class ResourceQuotaSpec(TypedDict, total=False):
    hard: dict[str, str]
    scopeSelector: ScopeSelector
    scopes: list[str]

class ResourceQuotaStatus(TypedDict, total=False):
    hard: dict[str, str]
    used: dict[str, str]

class ResourceRequirements(TypedDict, total=False):
    claims: list[ResourceClaim]
    limits: dict[str, str]
    requests: dict[str, str]

class ResourceRule(TypedDict, total=False):
    apiGroups: list[str]
    resourceNames: list[str]
    resources: list[str]
    verbs: list[str]

class ResourceStatus(TypedDict, total=False):
    name: str
    resources: list[ResourceHealth]

class RuntimeClass(TypedDict, total=False):
    apiVersion: str
    handler: str
    kind: str
    metadata: ObjectMeta
    overhead: Overhead
    scheduling: Scheduling

class RuntimeClassList(TypedDict, total=False):
    apiVersion: str
    items: list[RuntimeClass]
    kind: str
    metadata: ListMeta

class SELinuxOptions(TypedDict, total=False):
    level: str
    role: str
    type: str
    user: str

class ScaleIOPersistentVolumeSource(TypedDict, total=False):
    fsType: str
    gateway: str
    protectionDomain: str
    readOnly: bool
    secretRef: SecretReference
    sslEnabled: bool
    storageMode: str
    storagePool: str
    system: str
    volumeName: str

class ScaleIOVolumeSource(TypedDict, total=False):
    fsType: str
    gateway: str
    protectionDomain: str
    readOnly: bool
    secretRef: LocalObjectReference
    sslEnabled: bool
    storageMode: str
    storagePool: str
    system: str
    volumeName: str

class Scheduling(TypedDict, total=False):
    nodeSelector: dict[str, str]
    tolerations: list[Toleration]

class ScopeSelector(TypedDict, total=False):
    matchExpressions: list[ScopedResourceSelectorRequirement]

class ScopedResourceSelectorRequirement(TypedDict, total=False):
    operator: str
    scopeName: str
    values: list[str]

class SeccompProfile(TypedDict, total=False):
    localhostProfile: str
    type: str

class Secret(TypedDict, total=False):
    apiVersion: str
    data: dict[str, str]
    immutable: bool
    kind: str
    metadata: ObjectMeta
    stringData: dict[str, str]
    type: str

class SecretEnvSource(TypedDict, total=False):
    name: str
    optional: bool

class SecretKeySelector(TypedDict, total=False):
    key: str
    name: str
    optional: bool

class SecretList(TypedDict, total=False):
    apiVersion: str
    items: list[Secret]
    kind: str
    metadata: ListMeta

class SecretProjection(TypedDict, total=False):
    items: list[KeyToPath]
    name: str
    optional: bool

class SecretReference(TypedDict, total=False):
    name: str
    namespace: str

class SecretVolumeSource(TypedDict, total=False):
    defaultMode: int
    defaultUser: int
    items: list[KeyToPath]
    optional: bool
    secretName: str

class SecurityContext(TypedDict, total=False):
    allowPrivilegeEscalation: bool
    appArmorProfile: AppArmorProfile
    capabilities: Capabilities
    privileged: bool
    procMount: str
    readOnlyRootFilesystem: bool
    runAsGroup: int
    runAsNonRoot: bool
    runAsUser: int
    seLinuxOptions: SELinuxOptions
    seccompProfile: SeccompProfile
    windowsOptions: WindowsSecurityContextOptions

class SelfSubjectAccessReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: SelfSubjectAccessReviewSpec
    status: SubjectAccessReviewStatus

class SelfSubjectAccessReviewSpec(TypedDict, total=False):
    nonResourceAttributes: NonResourceAttributes
    resourceAttributes: ResourceAttributes

class SelfSubjectReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    status: SelfSubjectReviewStatus

class SelfSubjectReviewStatus(TypedDict, total=False):
    userInfo: UserInfo

class SelfSubjectRulesReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: SelfSubjectRulesReviewSpec
    status: SubjectRulesReviewStatus

class SelfSubjectRulesReviewSpec(TypedDict, total=False):
    namespace: str

class Service(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: ServiceSpec
    status: ServiceStatus

class ServiceAccount(TypedDict, total=False):
    apiVersion: str
    automountServiceAccountToken: bool
    imagePullSecrets: list[LocalObjectReference]
    kind: str
    metadata: ObjectMeta
    secrets: list[ObjectReference]

class ServiceAccountList(TypedDict, total=False):
    apiVersion: str
    items: list[ServiceAccount]
    kind: str
    metadata: ListMeta

class ServiceAccountTokenProjection(TypedDict, total=False):
    audience: str
    expirationSeconds: int
    path: str
    user: int

class ServiceList(TypedDict, total=False):
    apiVersion: str
    items: list[Service]
    kind: str
    metadata: ListMeta

class ServicePort(TypedDict, total=False):
    appProtocol: str
    name: str
    nodePort: int
    port: int
    protocol: str
    targetPort: int | str

class ServiceSpec(TypedDict, total=False):
    allocateLoadBalancerNodePorts: bool
    clusterIP: str
    clusterIPs: list[str]
    externalIPs: list[str]
    externalName: str
    externalTrafficPolicy: str
    healthCheckNodePort: int
    internalTrafficPolicy: str
    ipFamilies: list[str]
    ipFamilyPolicy: str
    loadBalancerClass: str
    loadBalancerIP: str
    loadBalancerSourceRanges: list[str]
    ports: list[ServicePort]
    publishNotReadyAddresses: bool
    selector: dict[str, str]
    sessionAffinity: str
    sessionAffinityConfig: SessionAffinityConfig
    trafficDistribution: str
    type: str

class ServiceStatus(TypedDict, total=False):
    conditions: list[Condition]
    loadBalancer: LoadBalancerStatus

class SessionAffinityConfig(TypedDict, total=False):
    clientIP: ClientIPConfig

class ShardInfo(TypedDict, total=False):
    selector: str

class SleepAction(TypedDict, total=False):
    seconds: int

class StorageOSPersistentVolumeSource(TypedDict, total=False):
    fsType: str
    readOnly: bool
    secretRef: ObjectReference
    volumeName: str
    volumeNamespace: str

class StorageOSVolumeSource(TypedDict, total=False):
    fsType: str
    readOnly: bool
    secretRef: LocalObjectReference
    volumeName: str
    volumeNamespace: str

class SubjectAccessReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: SubjectAccessReviewSpec
    status: SubjectAccessReviewStatus

class SubjectAccessReviewSpec(TypedDict, total=False):
    extra: dict[str, list[str]]
    groups: list[str]
    nonResourceAttributes: NonResourceAttributes
    resourceAttributes: ResourceAttributes
    uid: str
    user: str

class SubjectAccessReviewStatus(TypedDict, total=False):
    allowed: bool
    denied: bool
    evaluationError: str
    reason: str

class SubjectRulesReviewStatus(TypedDict, total=False):
    evaluationError: str
    incomplete: bool
    nonResourceRules: list[NonResourceRule]
    resourceRules: list[ResourceRule]

class Sysctl(TypedDict, total=False):
    name: str
    value: str

class TCPSocketAction(TypedDict, total=False):
    host: str
    port: int | str

class Taint(TypedDict, total=False):
    effect: str
    key: str
    timeAdded: str
    value: str

class TokenRequest(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: TokenRequestSpec
    status: TokenRequestStatus

class TokenRequestSpec(TypedDict, total=False):
    attestations: dict[str, list[str]]
    audiences: list[str]
    boundObjectRef: BoundObjectReference
    expirationSeconds: int

class TokenRequestStatus(TypedDict, total=False):
    expirationTimestamp: str
    token: str

class TokenReview(TypedDict, total=False):
    apiVersion: str
    kind: str
    metadata: ObjectMeta
    spec: TokenReviewSpec
    status: TokenReviewStatus

class TokenReviewSpec(TypedDict, total=False):
    audiences: list[str]
    token: str

class TokenReviewStatus(TypedDict, total=False):
    audiences: list[str]
    authenticated: bool
    error: str
    user: UserInfo

class Toleration(TypedDict, total=False):
    effect: str
    key: str
    operator: str
    tolerationSeconds: int
    value: str

class TopologySelectorLabelRequirement(TypedDict, total=False):
    key: str
    values: list[str]

class TopologySelectorTerm(TypedDict, total=False):
    matchLabelExpressions: list[TopologySelectorLabelRequirement]

class TopologySpreadConstraint(TypedDict, total=False):
    labelSelector: LabelSelector
    matchLabelKeys: list[str]
    maxSkew: int
    minDomains: int
    nodeAffinityPolicy: str
    nodeTaintsPolicy: str
    topologyKey: str
    whenUnsatisfiable: str

class TypedLocalObjectReference(TypedDict, total=False):
    apiGroup: str
    kind: str
    name: str

class TypedObjectReference(TypedDict, total=False):
    apiGroup: str
    kind: str
    name: str
    namespace: str

class UserInfo(TypedDict, total=False):
    extra: dict[str, list[str]]
    groups: list[str]
    uid: str
    username: str

class Volume(TypedDict, total=False):
    awsElasticBlockStore: AWSElasticBlockStoreVolumeSource
    azureDisk: AzureDiskVolumeSource
    azureFile: AzureFileVolumeSource
    cephfs: CephFSVolumeSource
    cinder: CinderVolumeSource
    configMap: ConfigMapVolumeSource
    csi: CSIVolumeSource
    downwardAPI: DownwardAPIVolumeSource
    emptyDir: EmptyDirVolumeSource
    ephemeral: EphemeralVolumeSource
    fc: FCVolumeSource
    flexVolume: FlexVolumeSource
    flocker: FlockerVolumeSource
    gcePersistentDisk: GCEPersistentDiskVolumeSource
    gitRepo: GitRepoVolumeSource
    glusterfs: GlusterfsVolumeSource
    hostPath: HostPathVolumeSource
    image: ImageVolumeSource
    iscsi: ISCSIVolumeSource
    name: str
    nfs: NFSVolumeSource
    persistentVolumeClaim: PersistentVolumeClaimVolumeSource
    photonPersistentDisk: PhotonPersistentDiskVolumeSource
    portworxVolume: PortworxVolumeSource
    projected: ProjectedVolumeSource
    quobyte: QuobyteVolumeSource
    rbd: RBDVolumeSource
    scaleIO: ScaleIOVolumeSource
    secret: SecretVolumeSource
    storageos: StorageOSVolumeSource
    vsphereVolume: VsphereVirtualDiskVolumeSource

class VolumeDevice(TypedDict, total=False):
    devicePath: str
    name: str

class VolumeHealthCondition(TypedDict, total=False):
    message: str
    reason: str
    status: str

class VolumeHealthStatus(TypedDict, total=False):
    healthConditions: list[VolumeHealthCondition]
    lastTransitionTime: str

class VolumeMount(TypedDict, total=False):
    bindMountOptions: list[str]
    mountPath: str
    mountPropagation: str
    name: str
    readOnly: bool
    recursiveReadOnly: str
    subPath: str
    subPathExpr: str

class VolumeMountStatus(TypedDict, total=False):
    mountPath: str
    name: str
    readOnly: bool
    recursiveReadOnly: str
    volumeStatus: VolumeStatus

class VolumeNodeAffinity(TypedDict, total=False):
    required: NodeSelector

class VolumeProjection(TypedDict, total=False):
    clusterTrustBundle: ClusterTrustBundleProjection
    configMap: ConfigMapProjection
    downwardAPI: DownwardAPIProjection
    podCertificate: PodCertificateProjection
    secret: SecretProjection
    serviceAccountToken: ServiceAccountTokenProjection

class VolumeResourceRequirements(TypedDict, total=False):
    limits: dict[str, str]
    requests: dict[str, str]

class VolumeStatus(TypedDict, total=False):
    image: ImageVolumeStatus

class VsphereVirtualDiskVolumeSource(TypedDict, total=False):
    fsType: str
    storagePolicyID: str
    storagePolicyName: str
    volumePath: str

class WeightedPodAffinityTerm(TypedDict, total=False):
    podAffinityTerm: PodAffinityTerm
    weight: int

class WindowsSecurityContextOptions(TypedDict, total=False):
    gmsaCredentialSpec: str
    gmsaCredentialSpecName: str
    hostProcess: bool
    runAsUserName: str
