"""A provider's view of a pod's service account: annotations and a token.

Source: KEP-4412, tokenAttributes. Must never keep or show a token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from typing import Protocol

from kubeletpy.base.structs import Hidden, HidesFields, Struct
from kubeletpy.config.credential_providers import TokenAttributes
from kubeletpy.images.credentials import AccountSource
from kubeletpy.pods.pod import Pod


class AccountError(Exception):
    """An account or its token is unavailable; the text contains the reason and may be logged."""


class ServiceAccounts(Protocol):
    """Service accounts of the cluster."""

    async def read_account(self, namespace: str, name: str) -> tuple[str, Mapping[str, str]]:
        """The uid and annotations of an account. Raises AccountError."""
        ...

    async def token(self, pod: Pod, account: AccountSource, audience: str) -> str:
        """A token of the account, bound to the pod. Raises AccountError."""
        ...


class AccountFacts(HidesFields, Struct, frozen=True):
    """The account of one pod, as one provider sees it."""

    source: AccountSource
    annotations: Mapping[str, str]
    token: Hidden[str] = ""
    """Empty until it is needed."""

    def scope(self, cache_type: str) -> Hashable:
        """The cache key for answers for this account."""
        return (self.source, tuple(sorted(self.annotations.items())), self.proof(cache_type))

    def proof(self, cache_type: str = "Token") -> str:
        """The token's hash, if answers are cached by token."""
        return hashlib.sha256(self.token.encode()).hexdigest() if cache_type == "Token" else ""


def chosen_annotations(
    attributes: TokenAttributes, annotations: Mapping[str, str]
) -> dict[str, str] | None:
    """The annotations that a provider requests; None when a required one is missing. Pure.

    An account opts its pods into this provider by its annotations. Without them the provider is
    not called.
    """
    required = attributes.required_service_account_annotation_keys
    if any(key not in annotations for key in required):
        return None
    wanted = (*required, *attributes.optional_service_account_annotation_keys)
    return {key: annotations[key] for key in wanted if key in annotations}
