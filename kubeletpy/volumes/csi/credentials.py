"""Secrets and tokens that calls to drivers carry. Read at the moment of the call.

Must never log one, or put one into an error. Source: docs/reference/behaviour-storage.md, sk, sl,
st.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kubeletpy.base.api.times import format_time
from kubeletpy.base.tasks import run_together
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.on_disk import FailureOutcome
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.csi.driver_object import TokenRequest
from kubeletpy.volumes.projected.token_claims import TokenKey
from kubeletpy.volumes.projected.tokens import PodTokens, TokenError

TOKENS_KEY = "csi.storage.k8s.io/serviceAccount.tokens"


class Credentials:
    """The credentials passed to drivers."""

    def __init__(self, kube_api: KubeApi | None, tokens: PodTokens) -> None:
        self._api = kube_api
        self._tokens = tokens

    async def secret(self, reference: Any, namespace: str = "") -> dict[str, str]:
        """The values of the secret that a source names; empty when it names none.

        ``namespace``: the pod's, used where the reference has none of its own. Raises
        OperationFailed.
        """
        from kubeletpy.volumes.claims.secrets import read_secret

        return await read_secret(self._api, reference, namespace)

    async def tokens(self, pod: Pod, wanted: Sequence[TokenRequest]) -> dict[str, str]:
        """The pod's tokens in the form that drivers expect; empty when none is requested.

        Raises OperationFailed.
        """
        tokens = await run_together(*(self._token(pod, each) for each in wanted))
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
            message = f"token for {audience}: {error}"
            raise OperationFailed(FailureOutcome.TRANSIENT, message) from None
        return {"token": bound.token, "expirationTimestamp": format_time(bound.expires_at)}
