"""May a pod use an image that is on the node without showing the registry its credentials? Pure.

Source: docs/reference/behaviour.md, g2; KEP-2535. Must never do I/O: credentials and records are
arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from kubeletpy.base.structs import Struct
from kubeletpy.images.credentials import AccountSource, Credential, SecretSource
from kubeletpy.images.records.model import NOBODY, Grants, PulledRecord, grants_of
from kubeletpy.images.reference import InvalidReference, parse_reference

LEARNED_LIMIT = 100
"""With this many secrets per image and repository, no more are learned without a pull."""


class VerificationPolicy(StrEnum):
    """imagePullCredentialsVerificationPolicy."""

    NEVER = "NeverVerify"
    NEVER_PRELOADED = "NeverVerifyPreloadedImages"
    NEVER_ALLOWLISTED = "NeverVerifyAllowlistedImages"
    ALWAYS = "AlwaysVerify"


class MustPullResult(StrEnum):
    """Label ``result`` of kubelet_imagemanager_image_mustpull_checks_total."""

    POLICY_ALLOWED = "credentialPolicyAllowed"
    RECORD_FOUND = "credentialRecordFound"
    MUST_AUTHENTICATE = "mustAuthenticate"
    ERROR = "error"

    @property
    def allows(self) -> bool:
        """Whether the image may be used without a pull."""
        return self in (MustPullResult.POLICY_ALLOWED, MustPullResult.RECORD_FOUND)


class Verification(Struct, frozen=True):
    """Which images need proof of access."""

    policy: VerificationPolicy = VerificationPolicy.NEVER_PRELOADED
    allowlist: tuple[str, ...] = ()
    """Repositories, or prefixes ending in ``/*``."""

    def needed(self, image: str, *, pulled_here: bool) -> bool:
        """Whether an image needs proof.

        Args:
            image: as in the pod.
            pulled_here: whether this node pulled it, as far as is known.
        """
        if self.policy is VerificationPolicy.NEVER_PRELOADED:
            return pulled_here
        if self.policy is VerificationPolicy.NEVER_ALLOWLISTED:
            return not self._listed(image)
        return self.policy is VerificationPolicy.ALWAYS

    def _listed(self, image: str) -> bool:
        name = repository_as_given(image)
        return any(
            name.startswith(entry[:-1]) if entry.endswith("/*") else name == entry
            for entry in self.allowlist
        )


class Proof(Struct, frozen=True):
    """The proof by a pod's credentials, and the grants learned from it."""

    outcome: MustPullResult
    learned: Grants = NOBODY
    """To be recorded, so that it counts next time."""


def repository_as_given(image: str) -> str:
    """The image name as in the pod, without tag and digest; empty when it is no image name."""
    try:
        reference = parse_reference(image)
    except InvalidReference:
        return ""
    # no name ends in a bare @ or colon
    return image.removesuffix(f"@{reference.digest}").removesuffix(f":{reference.tag}")


def by_record(record: PulledRecord | None, repository: str) -> MustPullResult | Grants:
    """The outcome when the record alone decides; else the grants that credentials must match."""
    grants = record.grants.get(repository) if record is not None and repository else None
    if grants is None or grants.empty:
        return MustPullResult.MUST_AUTHENTICATE
    return MustPullResult.RECORD_FOUND if grants.everybody else grants


def by_credentials(grants: Grants, credentials: Sequence[Credential]) -> Proof:
    """Whether a pod with these credentials has proved access."""
    for credential in credentials:
        source = credential.source
        if isinstance(source, SecretSource):
            proof = _by_secret(grants, credential, source)
            if proof is not None:
                return proof
    account = next((c.source for c in credentials if isinstance(c.source, AccountSource)), None)
    if account in grants.accounts:
        return Proof(MustPullResult.RECORD_FOUND)
    return Proof(MustPullResult.MUST_AUTHENTICATE)


def _by_secret(grants: Grants, credential: Credential, source: SecretSource) -> Proof | None:
    """A match of the same credential, or of the same Secret with a credential changed since."""
    known = credential.fingerprint in grants.secrets.values()
    if not known and source not in grants.secrets:
        return None
    if grants.secrets.get(source) == credential.fingerprint:
        return Proof(MustPullResult.RECORD_FOUND)
    may_learn = len(grants.secrets) < LEARNED_LIMIT
    if may_learn:
        return Proof(MustPullResult.RECORD_FOUND, grants_of(credential))
    return Proof(MustPullResult.RECORD_FOUND) if known else None
