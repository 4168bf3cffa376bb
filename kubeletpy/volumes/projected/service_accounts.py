"""Service accounts of the cluster, for credential providers: read by name, tokens per pod.

Must never keep an account or show a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from kubeletpy.images.credentials import AccountSource
from kubeletpy.images.providers.accounts import AccountError
from kubeletpy.kubeapi.errors import ApiError, Forbidden
from kubeletpy.kubeapi.protocol import SERVICEACCOUNTS, KubeApi
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.projected.token_claims import TokenKey
from kubeletpy.volumes.projected.tokens import (
    DEFAULT_SECONDS,
    NEW_POD_WAITS,
    PodTokens,
    TokenError,
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
        for wait in (*NEW_POD_WAITS, None):
            try:
                account = await self._api.get(SERVICEACCOUNTS, name, namespace)
            except Forbidden as error:
                # the authorizer may learn of a new pod a few milliseconds after we do
                if wait is None:
                    raise AccountError(error.message) from error
                await asyncio.sleep(wait)
            except ApiError as error:
                raise AccountError(error.message) from error
            else:
                metadata = account.get("metadata") or {}
                annotations = metadata.get("annotations") or {}
                return str(metadata.get("uid") or ""), dict(annotations)
        raise AssertionError("the last try returns or raises")

    async def token(self, pod: Pod, account: AccountSource, audience: str) -> str:
        """A token of the account, bound to the pod. Raises AccountError."""
        key = TokenKey(account.name, audience, DEFAULT_SECONDS, account.uid)
        try:
            return await self._tokens.get(pod, key)
        except TokenError as error:
            raise AccountError(str(error)) from error
