"""The numbers of docs/reference/constants.csv are those of the code, row by row.

Every row is here once: held against a number of the code, or named with what holds it instead.
"""

from __future__ import annotations

import re

import pytest

from tools.rulebook.differences import allowed
from tools.rulebook.product import number
from tools.rulebook.tables import rows

UNITS = {
    "": 1,
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "h": 3600,
    "%": 0.01,
    "Mi": 1 << 20,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
}
NUMBER = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?) ?(ms|s|m|h|%|Mi|KiB|MiB|)(?![\w])")
ROWS = {f"{row['area']}: {row['name']}": row["value"] for row in rows("constants.csv")}

# row = the numbers of its value in order, as package/module NAME (or NAME of the module before);
# "-" is one that no single constant of the code contains
NUMBERS = """
sync: housekeeping period = syncloop/loop HOUSEKEEPING_PERIOD
sync: runtime error loop sleep = syncloop/loop FIRST_WAIT | syncloop/loop LAST_WAIT
sync: runtime up check = node/runtime PERIOD_S
sync: runtime down threshold = node/build RUNTIME_DOWN_AFTER_S
sync: killPodNow wait = podworkers/workers MIN_KILL_WAIT | -
backoff: crash loop base/max = runtime_manager/crash_loop BASE_SECONDS | MAX_SECONDS
backoff: reduced crash loop base/max = runtime_manager/crash_loop REDUCED_BASE_SECONDS | -
backoff: crash loop reset = runtime_manager/crash_loop QUIET_SECONDS
backoff: image pull base/max = images/policy BASE | images/policy MAXIMUM
cri: default request timeout = remote/errors DEFAULT_REQUEST_TIMEOUT
cri: max receive message = remote/connection MAX_RECEIVE
cri: RuntimeConfig tries = remote/client TRIES | remote/client PAUSE
termination: minimum grace to runtime = runtime_manager/plan/grace MINIMUM
termination: minimum pod worker grace = podworkers/state_machine MIN_GRACE
termination: orphan runtime pod grace = podworkers/syncer ORPHAN_GRACE
termination: hard eviction grace = node/eviction/decide GRACE_S
termination: cgroup pid kill attempts = resources/cgroups/filesystem KILL_ATTEMPTS
status: per-container termination message = runtime_manager/read/status_source MAX_FILE_BYTES
status: per-pod messages = status/store MESSAGE_BYTES_PER_POD
status: message from logs = runtime_manager/read/status_source MAX_LOG_BYTES | MAX_LOG_LINES
node: status update = - | node/node_manager JITTER
node: lease renew = node/lease RENEW_SHARE | - | node/lease JITTER
node: images reported = - | node/build MAX_NAMES_PER_IMAGE
node: image list cache = node/node_manager IMAGES_FRESH_S
plugins: dial / notify timeout = resources/plugins/plugin_manager CONNECT_S | NOTIFY_S
plugins: device endpoint stop grace = resources/devices/model FORGOTTEN_AFTER_S
plugins: PreStart RPC = resources/devices/plugin PRE_START_S
plugins: DRA call = resources/dra/model CALL_S
plugins: DRA reconcile / slice wipe delay = claim_manager CHECK_S | drivers REMOVED_S
probe: tries per run = probes/prober TRIES
probe: body kept = probes/handlers/outcome KEPT_OUTPUT
probe: exec output kept = probes/handlers/outcome KEPT_OUTPUT
probe: redirect max = probes/handlers/actions MAX_REDIRECTS
probe: next address of a name = probes/handlers/actions NEXT_ADDRESS_S
probe: restart detection slack = probes/schedule RESTART_SLACK_S
images: GC period = agent/eviction IMAGES_PERIOD_S
images: detect period = agent/eviction IMAGES_PERIOD_S
images: record write limit while matching = images/records/model LEARNED_LIMIT
images: pull record caches = images/records/ledger _INTENTS_PER_POD | - | _RECORDS_PER_POD
containerGC: period = agent/eviction CONTAINERS_PERIOD_S
containerGC: kept by deletor = syncloop/housekeeping KEEP
eviction: monitor period = node/eviction/decide PERIOD_S
eviction: pod cleanup wait = node/eviction/endings CLEANUP_S | -
eviction: threshold notifier refresh = node/eviction/machine REARM_S
resources: cpu shares = pods/resources MIN_SHARES | MAX_SHARES | - | - | - | MIN_SHARES
resources: cpu quota = - | pods/resources MIN_QUOTA_US | -
resources: min status limits = status/container_status MIN_MILLI_LIMIT | MIN_MILLI_REQUEST
resources: oom_score_adj = runtime_manager/resources GUARANTEED_OOM_SCORE | - | - | - | - | -
resources: kubelet oom_score_adj = node/guards/at_start DEFAULT_OOM_SCORE_ADJ
resources: memory.high (MemoryQoS) = -
resources: QoS cgroup update = resources/cgroups/pod_cgroups REFRESH_S
resources: resize retry = resources/allocation/allocation_manager FIRST_RETRY_S | RETRY_S
volumes: CSI call timeout = volumes/csi/client OPERATION_S
volumes: fsGroup progress events = volumes/operations/acts FIRST_NOTICE_S | NOTICE_S
volumes: path limits = volumes/files/paths MAX_FILE_NAME | volumes/files/paths MAX_PATH
token: jitter = -
server: podresources/pods gRPC = server/pods_api/server PER_SECOND | server/pods_api/server BURST
server: stream creation timeout = server/streaming/link CONNECT_S
static: manifest max = syncloop/sources/manifest MAX_MANIFEST
static: http timeout = syncloop/sources/http TIMEOUT
dns: nameservers max = runtime_manager/config/sandbox_config MAX_NAMESERVERS
dns: search paths max = runtime_manager/config/sandbox_config MAX_SEARCHES
dns: search chars max = runtime_manager/config/sandbox_config MAX_SEARCH_CHARS
dns: search item max = runtime_manager/config/sandbox_config MAX_SEARCH_ITEM
hostname: hostname max = pods/pod MAX_HOSTNAME
hostname: fqdn max = pods/pod MAX_FQDN
certs: CSR wait = node/certificates/certificate_manager WAIT_S
certs: client exit after expiry = node/certificates/request CLIENT_LOST_S
events: aggregate = kubeapi/events/correlate SIMILAR_MAX | kubeapi/events/correlate WINDOW
events: spam filter = kubeapi/events/correlate SPAM_BURST | - | kubeapi/events/correlate SPAM_REFILL
events: queue = kubeapi/events/writer QUEUE_SIZE
events: retry = kubeapi/events/writer TRIES | kubeapi/events/writer RETRY_SECONDS
plugins: dial / notify timeout = resources/plugins/plugin_manager CONNECT_S | NOTIFY_S
objects: configmap/secret watch idle stop = kubeapi/objects IDLE_S
objects: configmap/secret watch lasts = kubeapi/objects SHORTEST_WATCH_S | LONGEST_WATCH_S
objects: watch first sync wait = kubeapi/objects FIRST_ANSWER_S | -
objects: Cache TTL default = kubeapi/objects_on_request DEFAULT_TTL_S
shutdown: dbus reconnect = node/shutdown/shutdown_manager RECONNECT_S
shutdown: critical split = - | node/shutdown/plan CRITICAL_PRIORITY
shutdown: critical priority = pods/resources CRITICAL_PRIORITY
userns: ids per pod = runtime_manager/act/user_namespaces IDS_PER_POD
exitcodes: lost container = status/container_status LOST_EXIT_CODE
"""
CONFIGURED = """
status: full sync
node: status report
node: lease duration
images: pull QPS/burst
images: GC high/low
images: min age
containerGC: min age
containerGC: per pod-container
containerGC: global
eviction: transition period
eviction: defaults
resources: default period
volumes: stats period
logs: rotate size/files/workers/interval
server: ports
events: client qps/burst
"""
"""Defaults of settings, which are compared with config.csv."""
RULES = """
sync: per-pod resync
sync: error requeue
sync: network-not-ready requeue
sync: phase transition requeue
sync: sync loop health limit
sync: housekeeping warn
pleg: relist period
pleg: unhealthy after
backoff: crash loop key
backoff: static file watch retry
backoff: node register retry
cri: RunPodSandbox
cri: StopContainer
cri: ExecSync
cri: PullImage
cri: CheckpointContainer
cri: connect timeout
cri: reconnect backoff
cri: API version asked
cri: authority
termination: base grace order
termination: sidecar turn wait
status: time precision
node: status retry
node: lease update retries
node: lease create backoff
node: heartbeat client timeout
probe: defaults
probe: start jitter
images: serial queue
images: usage formula
images: to free
resources: shares to milli
resources: pod/QoS cgroup v2 cpu.weight
resources: weight to shares
resources: quota to milli
resources: limited swap
resources: memory.oom.group
resources: QoS hugepage limit
resources: allocatable
volumes: emptyDir mode
volumes: token mode with fsUser/fsGroup
token: refresh
logs: rotated kept
dns: cluster options
dns: resolv.conf max
certs: rotation point
shutdown: logind recheck
stats: cpu usage cache
objects: reflector backoff
objects: reflector watch timeout
userns: first host id
"""
"""Formulas and sentences, which the tests of the decisions check."""
HELD = dict(line.split(" = ") for line in NUMBERS.strip().splitlines())
COLUMNS = [(row, HELD[row]) for row in HELD]


def numbers(value: str) -> list[float]:
    """The numbers of a value, in seconds, bytes or shares."""
    return [float(found[1]) * UNITS[found[2]] for found in NUMBER.finditer(value)]


@pytest.mark.parametrize(("row", "places"), COLUMNS, ids=list(HELD))
def test_number(row: str, places: str) -> None:
    desired = numbers(ROWS[row].replace("10m limit, 2m request", "10 limit, 2 request"))
    held = places.split(" | ")
    assert len(held) == len(desired)
    module = ""
    for place, value in zip(held, desired, strict=True):
        if place == "-":
            continue
        named, _, name = place.rpartition(" ")
        module = named or module
        assert number(f"{module} {name}") == pytest.approx(value), place


def test_every_row_is_held_or_different() -> None:
    different = {row for row in ROWS if allowed("constants.csv", row)}
    named = [*HELD, *CONFIGURED.strip().splitlines(), *RULES.strip().splitlines(), *different]
    assert sorted(named) == sorted(ROWS)
