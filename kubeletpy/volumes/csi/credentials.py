"""Secrets and tokens that calls to drivers carry. Asked for at the moment of the call.

Must never log one, or put one into an error. Source: docs/reference/behaviour-storage.md, sk, sl,
st.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any

from kubeletpy.api.times import format_time
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import SECRETS, KubeApi
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.csi.driver_object import TokenRequest
from kubeletpy.volumes.on_disk import Outcome
from kubeletpy.volumes.operation import OperationFailed
from kubeletpy.volumes.tokens import PodTokens, TokenError, TokenKey

TOKENS_KEY = "csi.storage.k8s.io/serviceAccount.tokens"


class Credentials:
    """What drivers are given."""

    def __init__(self, kube_api: KubeApi | None, tokens: PodTokens) -> None:
        self._api = kube_api
        self._tokens = tokens

    async def secret(self, reference: Any, namespace: str = "") -> dict[str, str]:
        """The values of the secret that a source names, nothing when it names none.

        ``namespace``: of the pod, where the reference has none of its own. Raises OperationFailed.
        """
        if not isinstance(reference, Mapping):
            return {}
        name, where = reference.get("name"), namespace or reference.get("namespace")
        if not (isinstance(name, str) and name and isinstance(where, str) and where):
            raise _failed("a secret is referred to without name or namespace", Outcome.FINAL)
        shown = f'secret "{where}/{name}"'
        if self._api is None:
            raise _failed(f"{shown}: this node has no API")
        try:
            found = await self._api.get(SECRETS, name, where)
        except ApiError as error:
            raise _failed(f"{shown} could not be read: {error.message}") from None
        return _decoded(found.get("data"), shown)

    async def tokens(self, pod: Pod, wanted: Sequence[TokenRequest]) -> dict[str, str]:
        """The pod's tokens as drivers take them; nothing when none is wanted.

        Raises OperationFailed.
        """
        tokens = await asyncio.gather(*(self._token(pod, each) for each in wanted))
        made = {each.audience: token for each, token in zip(wanted, tokens, strict=True)}
        return {TOKENS_KEY: json.dumps(made, separators=(",", ":"))} if made else {}

    async def _token(self, pod: Pod, wanted: TokenRequest) -> dict[str, str]:
        account = pod.spec.get("serviceAccountName") or "default"
        try:
            bound = await self._tokens.bound(
                pod, TokenKey(account, wanted.audience, wanted.seconds)
            )
        except TokenError as error:
            audience = wanted.audience or "the API server"
            raise _failed(f"token for {audience}: {error}") from None
        return {"token": bound.token, "expirationTimestamp": format_time(bound.expires_at)}


def _decoded(data: Any, shown: str) -> dict[str, str]:
    values = {}
    for key, text in data.items() if isinstance(data, dict) else ():
        try:
            values[str(key)] = base64.b64decode(text, validate=True).decode()
        except (binascii.Error, ValueError, TypeError):
            raise _failed(f"{shown}: the value of key {key!r} is no text") from None
    return values


def _failed(message: str, outcome: Outcome = Outcome.TRANSIENT) -> OperationFailed:
    return OperationFailed(outcome, message)
