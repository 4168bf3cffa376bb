"""Service accounts of the cluster, for credential providers: read by name, tokens per pod.

Must never keep an account or show a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kubeletpy.images.credentials import AccountSource
from kubeletpy.images.providers.provider import AccountError
from kubeletpy.kubeapi.errors import ApiError, Forbidden
from kubeletpy.kubeapi.protocol import SERVICEACCOUNTS, KubeApi
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.projected.token_claims import TokenKey
from kubeletpy.volumes.projected.tokens import (
    DEFAULT_SECONDS,
    PodTokens,
    TokenError,
    call_for_new_pod,
)


class ClusterAccounts:
    """Implements images.providers.accounts.ServiceAccounts on the API."""

    def __init__(self, api: KubeApi | None, tokens: PodTokens) -> None:
        """``api`` None: standalone, no accounts."""
        self._api = api
        self._tokens = tokens

    async def read_account(self, namespace: str, name: str) -> tuple[str, Mapping[str, str]]:
        """Uid and annotations of an account. Raises AccountError."""
        if self._api is None:
            raise AccountError("this node has no API")
        get = partial(self._api.get, SERVICEACCOUNTS, name, namespace)
        try:
            account = await call_for_new_pod(get, Forbidden)
        except ApiError as error:
            raise AccountError(error.message) from error
        metadata = account.get("metadata") or {}
        return str(metadata.get("uid") or ""), dict(metadata.get("annotations") or {})

    async def token(self, pod: Pod, account: AccountSource, audience: str) -> str:
        """A token of the account, bound to the pod. Raises AccountError."""
        key = TokenKey(account.name, audience, DEFAULT_SECONDS, account.uid)
        try:
            return await self._tokens.get(pod, key)
        except TokenError as error:
            raise AccountError(str(error)) from error
