"""Limits of this package, defaults of fields, and fields that no log may show."""

from __future__ import annotations

import pytest

from tests.stated import is_shown, stated

STATED = {
    "volumes/projected/pod_certificates/request MAX_CHAIN_CHARACTERS": 256 * 1024,
    "volumes/projected/token_claims MAX_TOKEN_BYTES": 16384,
    "volumes/projected/token_claims SKEW_S": 60.0,
    "volumes/node/unanswered EVENT_AFTER_S": 10.0,
    "volumes/projected/pod_certificates/request CertificateRequestStatus.refresh_from": 0.0,
    "volumes/projected/pod_certificates/request CertificateRequestStatus.not_after": 0.0,
    "volumes/projected/pod_certificates/state ABANDON_S": 600.0,
    "volumes/projected/pod_certificates/state OVERDUE_S": 600.0,
    "volumes/projected/pod_certificates/state JITTER_S": 300.0,
    "volumes/projected/pod_certificates/state RETRY_S": (1.0, 600.0),
    "volumes/projected/pod_certificates/state AGAIN_S": 30.0,
    "volumes/projected/pod_certificates/state Asked.seen": False,
    "volumes/projected/pod_certificates/state SourceState.retry_at": 0.0,
    "volumes/projected/pod_certificates/state SourceState.failures": 0,
    "volumes/claims/attached RESOURCE_EXHAUSTED": 8,
    "volumes/claim_volumes/waiting ATTACH_PATIENCE_S": 10.0,
    "volumes/claim_volumes/waiting LIMIT_PATIENCE_S": 123.0,
    "volumes/csi/answers MAX_NODE_ID": 256,
    "volumes/csi/answers MAX_SEGMENTS": 64,
    "volumes/csi/answers MAX_CAPABILITIES": 256,
    "volumes/csi/answers MAX_USAGE": 16,
    "volumes/csi/answers _MAX_PREFIX": 253,
    "volumes/csi/answers _INT32_MAX": 2**31 - 1,
    "volumes/csi/driver_object TOKEN_SECONDS": 3600,
    "volumes/csi/driver_object SHORTEST_PERIOD_S": 10.0,
    "volumes/containers/env_file MAX_FILE": 64 << 10,
    "volumes/intree/fc/target MAX_LUN": 255,
    "volumes/intree/iscsi/target MAX_LUN": 255,
    "volumes/intree/iscsi/target MAX_CHAP": 255,
    "volumes/intree/iscsi/target MAX_ROUNDS": 5,
    "volumes/intree/iscsi/target ENOUGH_PATHS": 2,
    "volumes/intree/iscsi/target ENOUGH_ROUNDS": 2,
    "volumes/operations/backoff FIRST_MS": 500,
    "volumes/operations/backoff LAST_MS": 122_000,
    "volumes/operations/plan REPUBLISH_S": 60.0,
    "volumes/files/paths MAX_FILE_NAME": 255,
    "volumes/files/paths MAX_PATH": 4096,
    "volumes/pod_volumes/payload DEFAULT_MODE": 0o644,
    "volumes/pod_volumes/payload TOKEN_MODE_WITH_OWNER": 0o600,
    "volumes/pod_volumes/payload MAX_MODE": 0o777,
    "volumes/pod_volumes/payload MAX_POD_BYTES": 64 << 20,
    "volumes/node/node_volumes OUTCOMES_A_TURN": 500,
    "volumes/pod_volumes/plan MAX_REFERENCES": 1000,
    "volumes/claims/model VolumeSpec.attachable": False,
    "volumes/claims/model VolumeSpec.device_mountable": False,
    "volumes/claims/model VolumeSpec.inline": False,
    "volumes/claims/model VolumeSpec.migrated": False,
    "volumes/csi/driver_object DriverObject.attach_required": True,
    "volumes/csi/driver_object DriverObject.pod_info": False,
    "volumes/csi/driver_object DriverObject.tokens_in_secrets": False,
    "volumes/csi/driver_object DriverObject.republish": False,
    "volumes/csi/driver_object DriverObject.selinux_mount": False,
    "volumes/csi/requests VolumeAccess.block": False,
    "volumes/csi/requests CsiVolume.migrated": False,
    "volumes/intree/fc/target FcDisk.lun": 0,
    "volumes/claims/on_disk Published.selinux_relabel": False,
    "volumes/claims/on_disk Published.give_to_group": False,
    "volumes/claims/operation PodUse.alone": True,
    "volumes/operations/model PodDemand.ending": False,
    "volumes/operations/model PodMount.found": False,
    "volumes/operations/model PodMount.at": 0.0,
    "volumes/operations/model Volume.device_found": False,
    "volumes/operations/model Volume.attachable": False,
    "volumes/operations/model Volume.size": 0,
    "volumes/operations/model Volume.expansion_held": False,
    "volumes/operations/model Operation.size": 0,
    "volumes/operations/model Operation.whole": True,
    "volumes/operations/model Failure.at": 0.0,
    "volumes/operations/model Facts.leftovers_judged": False,
    "volumes/operations/outcome OperationDone.size": 0,
    "volumes/pod_volumes/plan PlannedVolume.propagated": False,
    "volumes/claims/selinux SELinux.all_modes": False,
}
UNSHOWN = (
    "volumes/claims/model VolumeSource.source",
    "volumes/claims/model VolumeSpec.source",
    "volumes/claims/model VolumeSpec.pv",
    "volumes/claims/model VolumeSpec.claim",
    "volumes/claims/resolve ClaimVolume.source",
    "volumes/csi/requests CsiVolume.publish_context",
    "volumes/csi/requests CsiVolume.context",
    "volumes/csi/requests CsiVolume.secrets",
    "volumes/containers/env_file EnvFile.values",
    "volumes/operations/model PodMount.published",
    "volumes/files/content FileContent.data",
    "volumes/files/content TokenInput.token",
    "volumes/pod_volumes/payload DownwardInput.pod",
    "volumes/pod_volumes/payload DownwardInput.spec",
    "volumes/pod_volumes/payload DownwardInput.labels",
    "volumes/pod_volumes/payload DownwardInput.annotations",
)


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: object) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("place", UNSHOWN)
def test_not_shown(place: str) -> None:
    assert not is_shown(place)
