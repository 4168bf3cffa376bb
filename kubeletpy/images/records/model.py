"""Pull records: their contents and files, and which pods they let use an image. Pure.

An ImagePullIntent records that an image is being pulled, an ImagePulledRecord whose credentials
have pulled it; both are the kubelet's own kinds (kubelet.config.k8s.io/v1beta1), so that a node may
switch agents. Records hold hashes, never credentials. Must never do I/O or read a clock.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import structs

from kubeletpy.base.api.times import format_time, parse_time
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.images.credentials import AccountSource, Credential, SecretSource
from kubeletpy.images.reference import DEFAULT_TAG, InvalidReference, parse_reference
from kubeletpy.remote.generated import api_pb2 as cri

API_VERSION = "kubelet.config.k8s.io/v1beta1"
READ_VERSIONS = (API_VERSION, "kubelet.config.k8s.io/v1alpha1")
INTENT_KIND = "ImagePullIntent"
RECORD_KIND = "ImagePulledRecord"
FILE_PREFIX = "sha256-"

_ORDER = attrgetter("namespace", "name", "uid")

Part = TypeVar("Part", SecretSource, AccountSource)


class MalformedRecord(ValueError):
    """A file that is not a record; it proves only that something was pulled."""


class Grants(Struct, frozen=True):
    """The identities that have proved to a registry that they may pull from one repository."""

    everybody: bool = False
    """Every pod of the node (nodePodsAccessible): the pull needed no pod's credentials."""
    secrets: Mapping[SecretSource, str] = field(default_factory=dict)
    """Secret -> fingerprint of its credential."""
    accounts: frozenset[AccountSource] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether nobody has proved it."""
        return not (self.everybody or self.secrets or self.accounts)


EVERYBODY = Grants(everybody=True)
NOBODY = Grants()


class PulledRecord(Struct, frozen=True):
    """The record of one image that was pulled here."""

    image_ref: str
    """The runtime's id of the image."""
    updated_at: float
    """Unix seconds."""
    grants: Mapping[str, Grants] = field(default_factory=dict)
    """Image name as in pods, without tag and digest -> who may use it under that name."""


def file_name(key: str) -> str:
    """The file of an intent (``key``: image as in the pod) or record (image ref)."""
    return FILE_PREFIX + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def grants_of(credential: Credential | None) -> Grants:
    """The grants that a successful pull proves; None: an anonymous one."""
    if credential is None or credential.source is None:
        return EVERYBODY
    if isinstance(credential.source, SecretSource):
        return Grants(secrets={credential.source: credential.fingerprint})
    return Grants(accounts=frozenset((credential.source,)))


def merged(old: Grants, new: Grants) -> Grants:
    """Both combined; equal to ``old`` when nothing is new.

    Once everybody may use an image, everybody always may. A secret's newer credential replaces the
    older one.
    """
    if old.everybody or new.empty:
        return old
    if new.everybody:
        return EVERYBODY
    secrets = {**old.secrets, **new.secrets}
    return Grants(False, secrets, old.accounts | new.accounts)


def with_grants(
    record: PulledRecord | None, image_ref: str, repository: str, new: Grants, now: float
) -> PulledRecord:
    """The record with one more pull; the same object when nothing is new."""
    if record is None:
        grants = {} if new.empty else {repository: new}
        return PulledRecord(image_ref, now, grants)
    old = record.grants.get(repository, NOBODY)
    both = merged(old, new)
    if both == old:
        return record
    return replace(record, updated_at=now, grants={**record.grants, repository: both})


def write_intent(image: str) -> bytes:
    """The file of an intent."""
    return _document(INTENT_KIND, image=image)


def write_record(record: PulledRecord) -> bytes:
    """The file of a record."""
    mapping = {name: _write_grants(grants) for name, grants in sorted(record.grants.items())}
    more = {"credentialMapping": mapping} if mapping else {}
    return _document(
        RECORD_KIND,
        lastUpdatedTime=format_time(record.updated_at),
        imageRef=record.image_ref,
        **more,
    )


def read_intent(data: bytes) -> str:
    """The image that an intent names.

    Raises:
        MalformedRecord: it is not an intent.
    """
    return _text(_parse(data, INTENT_KIND), "image")


def read_record(data: bytes) -> PulledRecord:
    """A record from its file.

    Raises:
        MalformedRecord: it is not a record.
    """
    document = _parse(data, RECORD_KIND)
    try:
        updated_at = parse_time(_text(document, "lastUpdatedTime"))
    except ValueError:
        raise MalformedRecord("lastUpdatedTime is no time") from None
    mapping = document.get("credentialMapping") or {}
    if not isinstance(mapping, dict):
        raise MalformedRecord("credentialMapping is not an object")
    grants = {name: _read_grants(value) for name, value in mapping.items()}
    return PulledRecord(_text(document, "imageRef"), updated_at, grants)


def _document(kind: str, **fields: Any) -> bytes:
    return json.dumps({"apiVersion": API_VERSION, "kind": kind, **fields}).encode() + b"\n"


def _parse(data: bytes, kind: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise MalformedRecord("not JSON") from None
    if not isinstance(document, dict):
        raise MalformedRecord("not an object")
    if document.get("kind") != kind or document.get("apiVersion") not in READ_VERSIONS:
        raise MalformedRecord(f"not an {kind} of {API_VERSION}")
    return document


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise MalformedRecord(f"{name} is missing")
    return value


def _write_grants(grants: Grants) -> dict[str, Any]:
    if grants.everybody:
        return {"nodePodsAccessible": True}
    written: dict[str, Any] = {}
    if grants.secrets:
        written["kubernetesSecrets"] = [
            {**structs.asdict(secret), "credentialHash": grants.secrets[secret]}
            for secret in sorted(grants.secrets, key=_ORDER)
        ]
    if grants.accounts:
        written["kubernetesServiceAccounts"] = [
            structs.asdict(account) for account in sorted(grants.accounts, key=_ORDER)
        ]
    return written


def _read_grants(value: object) -> Grants:
    if not isinstance(value, dict):
        raise MalformedRecord("credentialMapping holds what is not an object")
    if value.get("nodePodsAccessible") is True:
        return EVERYBODY
    secrets = {
        _read_part(SecretSource, entry): str(entry.get("credentialHash") or "")
        for entry in _entries(value, "kubernetesSecrets")
    }
    accounts = _entries(value, "kubernetesServiceAccounts")
    return Grants(False, secrets, frozenset(_read_part(AccountSource, each) for each in accounts))


def _entries(value: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    entries = value.get(name) or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise MalformedRecord(f"{name} is not a list of objects")
    return entries


def _read_part(kind: type[Part], entry: Mapping[str, Any]) -> Part:
    uid, namespace, name = (entry.get(key) for key in ("uid", "namespace", "name"))
    if not isinstance(uid, str) or not isinstance(namespace, str) or not isinstance(name, str):
        raise MalformedRecord("coordinates are not complete")
    return kind(uid, namespace, name)


# Records and intents in memory


class RecordIndex(Component):
    """The pulled records by image ref, read on a container start instead of the files.

    Beyond its limit the least recently used records live on disk only, and what is not found here
    is looked up there.
    """

    limit: int

    def __post_init__(self) -> None:
        self._records: OrderedDict[str, PulledRecord] = OrderedDict()
        self.unreadable: set[str] = set()
        """Names of files that are not records."""
        self.complete = False
        """Whether a record that is not here does not exist."""

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[PulledRecord]:
        return iter(tuple(self._records.values()))

    def fill(self, records: Iterable[PulledRecord], unreadable: Iterable[str]) -> None:
        """Load what the disk holds, oldest first."""
        self._records.clear()
        self.unreadable = set(unreadable)
        self.complete = True
        for record in records:
            self.put(record)

    def get(self, image_ref: str) -> PulledRecord | None:
        """The record, if it is here."""
        record = self._records.get(image_ref)
        if record is not None:
            self._records.move_to_end(image_ref)
        return record

    def put(self, record: PulledRecord) -> None:
        """Keep a record that is on disk."""
        self._records[record.image_ref] = record
        self._records.move_to_end(record.image_ref)
        self.unreadable.discard(file_name(record.image_ref))
        while len(self._records) > self.limit:
            self._records.popitem(last=False)
            self.complete = False

    def remove(self, image_ref: str) -> None:
        """Forget a record that has been removed."""
        self._records.pop(image_ref, None)


class Intent(Struct):
    """The pulls of one image that are under way, or whose outcome is unknown.

    An intent outlives its pull when the image may have arrived without a record: the agent was
    killed, the pod deleted, or the runtime lost meanwhile. While it remains, the image counts as
    pulled here.
    """

    names: set[str] = field(default_factory=set)
    """The image's names in pods: each has a file."""
    pulls: int = 0
    """Pulls running now."""
    uncertain: bool = False
    """A pull may have brought the image without leaving a record."""

    @property
    def over(self) -> bool:
        """Whether there is no reason to keep it."""
        return not self.pulls and not self.uncertain


class Intents:
    """The intents of all images, by full name."""

    def __init__(self) -> None:
        self._intents: dict[str, Intent] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._intents

    def __len__(self) -> int:
        return sum(len(intent.names) for intent in self._intents.values())

    def get_or_create(self, name: str) -> Intent:
        """The intent of an image, created if there is none."""
        return self._intents.setdefault(name, Intent())

    def drop(self, name: str, intent: Intent) -> None:
        """Drop an intent that is over, unless there is a newer one with that name."""
        if self._intents.get(name) is intent:
            del self._intents[name]

    def uncertain(self) -> Iterator[tuple[str, Intent]]:
        """Those that no pull is responsible for any longer, oldest first."""
        for name, intent in list(self._intents.items()):
            if intent.uncertain and not intent.pulls:
                yield name, intent

    def excess(self, limit: int, arrived: Collection[str]) -> list[tuple[str, Intent]]:
        """The oldest uncertain ones beyond a limit whose images have not arrived."""
        waiting = [each for each in self.uncertain() if each[0] not in arrived]
        return waiting[: max(0, len(waiting) - limit)]


def full_name(image: str) -> str:
    """Return the name by which all aliases of an image are recognized; by digest if there is one.

    It is ``docker.io/library/busybox:latest`` for ``busybox``. Anything that is not an image name
    is returned unchanged.
    """
    try:
        reference = parse_reference(image)
    except InvalidReference:
        return image
    if reference.digest:
        return f"{reference.repository}@{reference.digest}"
    return f"{reference.repository}:{reference.tag or DEFAULT_TAG}"


def ids_by_name(images: Iterable[cri.Image]) -> dict[str, str]:
    """Full name -> the runtime's id, for all tags and digests on the node."""
    return {
        full_name(name): image.id
        for image in images
        for name in (*image.repo_tags, *image.repo_digests)
        if image.id
    }


# Access to an image on the node for a pod that does not show the registry its credentials.
# Source: docs/reference/behaviour.md, g2; KEP-2535.

LEARNED_LIMIT = 100
"""With this many secrets per image and repository, no more are learned without a pull."""


class VerificationPolicy(StrEnum):
    """The values of imagePullCredentialsVerificationPolicy."""

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
        name = repository_as_supplied(image)
        return any(
            name.startswith(entry[:-1]) if entry.endswith("/*") else name == entry
            for entry in self.allowlist
        )


class Proof(Struct, frozen=True):
    """The proof by a pod's credentials, and the grants learned from it."""

    outcome: MustPullResult
    learned: Grants = NOBODY
    """To be recorded, so that it counts next time."""


def repository_as_supplied(image: str) -> str:
    """The image name as in the pod, without tag and digest; empty when it is no image name."""
    try:
        reference = parse_reference(image)
    except InvalidReference:
        return ""
    # no name ends in a bare @ or colon
    return image.removesuffix(f"@{reference.digest}").removesuffix(f":{reference.tag}")


def by_record(record: PulledRecord | None, repository: str) -> MustPullResult | Grants:
    """Return the outcome if the record alone decides, else the grants for credentials to match."""
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
