"""Every command-line flag of the kubelet: how to read it and what it sets. Data only. Pure.

Source: docs/reference/flags.csv.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kubeletpy.base.kubernetes_version import KubernetesVersion, within
from kubeletpy.base.structs import Struct

# Flag, how its text is read, the document's field; "+" marks flags that are not deprecated there.
_FIELD_FLAGS = """
address text address
allowed-unsafe-sysctls list allowedUnsafeSysctls
anonymous-auth bool authentication.anonymous.enabled
authentication-token-webhook bool authentication.webhook.enabled
authentication-token-webhook-cache-ttl text authentication.webhook.cacheTTL
authorization-mode text authorization.mode
authorization-webhook-cache-authorized-ttl text authorization.webhook.cacheAuthorizedTTL
authorization-webhook-cache-unauthorized-ttl text authorization.webhook.cacheUnauthorizedTTL
cgroup-driver text cgroupDriver
cgroup-root text cgroupRoot
cgroups-per-qos bool cgroupsPerQOS
client-ca-file text authentication.x509.clientCAFile
cluster-dns list clusterDNS
cluster-domain text clusterDomain
container-log-max-files int containerLogMaxFiles
container-log-max-size text containerLogMaxSize
container-runtime-endpoint text containerRuntimeEndpoint
contention-profiling bool enableContentionProfiling
cpu-cfs-quota bool cpuCFSQuota
cpu-cfs-quota-period text cpuCFSQuotaPeriod
cpu-manager-policy text cpuManagerPolicy
cpu-manager-policy-options map cpuManagerPolicyOptions
cpu-manager-reconcile-period text cpuManagerReconcilePeriod
enable-controller-attach-detach bool enableControllerAttachDetach
enable-debugging-handlers bool enableDebuggingHandlers
enable-server bool enableServer
enforce-node-allocatable list enforceNodeAllocatable
event-burst int eventBurst
event-qps int eventRecordQPS
eviction-hard signals evictionHard
eviction-max-pod-grace-period int evictionMaxPodGracePeriod
eviction-minimum-reclaim map evictionMinimumReclaim
eviction-pressure-transition-period text evictionPressureTransitionPeriod
eviction-soft signals evictionSoft
eviction-soft-grace-period map evictionSoftGracePeriod
fail-cgroupv1 bool failCgroupV1 +
fail-swap-on bool failSwapOn
feature-gates gates featureGates
file-check-frequency text fileCheckFrequency
hairpin-mode text hairpinMode
healthz-bind-address text healthzBindAddress
healthz-port int healthzPort
http-check-frequency text httpCheckFrequency
image-gc-high-threshold int imageGCHighThresholdPercent
image-gc-low-threshold int imageGCLowThresholdPercent
image-service-endpoint text imageServiceEndpoint
kernel-memcg-notification bool kernelMemcgNotification
kube-api-burst int kubeAPIBurst
kube-api-content-type text contentType
kube-api-qps int kubeAPIQPS
kube-reserved map kubeReserved
kube-reserved-cgroup text kubeReservedCgroup
kubelet-cgroups text kubeletCgroups
local-storage-capacity-isolation bool localStorageCapacityIsolation
log-flush-frequency text logging.flushFrequency +
log-text-info-buffer-size text logging.options.text.infoBufferSize
log-text-split-stream bool logging.options.text.splitStream
logging-format text logging.format
make-iptables-util-chains bool makeIPTablesUtilChains
manifest-url text staticPodURL
manifest-url-header headers staticPodURLHeader
max-open-files int maxOpenFiles
max-pods int maxPods
memory-manager-policy text memoryManagerPolicy
minimum-image-ttl-duration text imageMinimumGCAge
node-status-max-images int nodeStatusMaxImages
node-status-update-frequency text nodeStatusUpdateFrequency
oom-score-adj int oomScoreAdj
pod-cidr text podCIDR
pod-manifest-path text staticPodPath
pod-max-pids int podPidsLimit
pods-per-core int podsPerCore
port int port
protect-kernel-defaults bool protectKernelDefaults
provider-id text providerID +
qos-reserved map qosReserved
read-only-port int readOnlyPort
register-node bool registerNode
register-with-taints taints registerWithTaints
registry-burst int registryBurst
registry-qps int registryPullQPS
reserved-cpus text reservedSystemCPUs
reserved-memory memory reservedMemory
resolv-conf text resolvConf
rotate-certificates bool rotateCertificates
rotate-server-certificates bool serverTLSBootstrap
runonce bool runOnce
runtime-request-timeout text runtimeRequestTimeout
seccomp-default bool seccompDefault +
serialize-image-pulls bool serializeImagePulls
streaming-connection-idle-timeout text streamingConnectionIdleTimeout
sync-frequency text syncFrequency
system-cgroups text systemCgroups
system-reserved map systemReserved
system-reserved-cgroup text systemReservedCgroup
tls-cert-file text tlsCertFile
tls-cipher-suites list tlsCipherSuites
tls-min-version text tlsMinVersion
tls-private-key-file text tlsPrivateKeyFile
topology-manager-policy text topologyManagerPolicy
topology-manager-policy-options map topologyManagerPolicyOptions
topology-manager-scope text topologyManagerScope
v int logging.verbosity +
vmodule vmodule logging.vmodule +
volume-plugin-dir text volumePluginDir
volume-stats-agg-period text volumeStatsAggPeriod
"""

# Flags that set no field of the document: flag, how its text is read, what it is about, the last
# version that has it.
_NODE_FLAGS = """
bootstrap-kubeconfig text
cert-dir text
cloud-provider text
config text
config-dir text
device-plugins-dir text
exit-on-lock-contention bool
experimental-allocatable-ignore-eviction bool deprecated
experimental-mounter-path text meaningless
flight-recorder-mib int
help bool
hostname-override text
housekeeping-interval text meaningless
image-credential-provider-bin-dir text
image-credential-provider-config text
keep-kernel-settings bool
kubeconfig text
kubernetes-version text
lock-file text
maximum-dead-containers int deprecated
maximum-dead-containers-per-container int deprecated
minimum-container-ttl-duration duration deprecated
no-cluster-dns bool
node-ip text
node-labels map
root-dir text
runtime-cgroups text
version version
application-metrics-count-limit int meaningless 1.36
boot-id-file text meaningless 1.36
container-hints text meaningless 1.36
containerd text meaningless 1.36
containerd-namespace text meaningless 1.36
enable-load-reader bool meaningless 1.36
event-storage-age-limit text meaningless 1.36
event-storage-event-limit text meaningless 1.36
global-housekeeping-interval text meaningless 1.36
log-cadvisor-usage bool meaningless 1.36
machine-id-file text meaningless 1.36
storage-driver-buffer-duration text meaningless 1.36
storage-driver-db text meaningless 1.36
storage-driver-host text meaningless 1.36
storage-driver-password text meaningless 1.36
storage-driver-secure bool meaningless 1.36
storage-driver-table text meaningless 1.36
storage-driver-user text meaningless 1.36
"""

SHORT: Mapping[str, str] = MappingProxyType({"h": "help", "v": "v"})
"""One-letter forms."""


class Flag(Struct, frozen=True):
    """One flag.

    Attributes:
        name: without dashes.
        kind: how its text is read; see :mod:`kubeletpy.config.flags`.
        field: path of the document's field it sets; empty when it sets none.
        note: ``deprecated``, ``meaningless`` (accepted, does nothing here) or empty.
        until: the last Kubernetes version that has the flag, such as ``1.36``; empty: the newest.
    """

    name: str
    kind: str
    field: str
    note: str
    until: str = ""

    def removed(self, version: KubernetesVersion) -> bool:
        """Whether the kubelet of a version lacks the flag, and does not start with it."""
        return not within(version, until=self.until)


def _read_tables() -> dict[str, Flag]:
    flags = {}
    for line in _FIELD_FLAGS.strip().split("\n"):
        name, kind, field, *current = line.split()
        flags[name] = Flag(name, kind, field, "" if current else "deprecated")
    for line in _NODE_FLAGS.strip().split("\n"):
        name, kind, note, until, *_ = (*line.split(), "", "")
        flags[name] = Flag(name, kind, "", note, until)
    return flags


FLAGS: Mapping[str, Flag] = MappingProxyType(_read_tables())
