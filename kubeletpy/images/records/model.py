"""Pull records: what they hold, how they grow, and how they are written. Pure.

An ImagePullIntent records that an image is being pulled, an ImagePulledRecord whose credentials
have pulled it; both are the kubelet's own kinds (kubelet.config.k8s.io/v1beta1), so that a node may
switch agents. Records hold hashes, never credentials. Must never do I/O or read a clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import structs

from kubeletpy.base.api.times import format_time, parse_time
from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.images.credentials import AccountSource, Credential, SecretSource

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
