"""The secrets that volumes name in their sources. Read at the moment of use.

Apart from the other modules of claims, which are pure: only CSI and iSCSI volumes that name a
secret load it. Must never log a secret, or put one into an error. Source:
docs/reference/behaviour-storage.md, sk, st.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.protocol import SECRETS, KubeApi
from kubeletpy.volumes.claims.model import FailureOutcome, OperationFailed


async def read_secret(
    kube_api: KubeApi | None, reference: Any, namespace: str = ""
) -> dict[str, str]:
    """The values of the secret that a source names; empty when it names none.

    ``namespace``: the pod's, used where the reference has none of its own. Raises OperationFailed.
    """
    if not isinstance(reference, Mapping):
        return {}
    name, where = reference.get("name"), namespace or reference.get("namespace")
    if not (isinstance(name, str) and name and isinstance(where, str) and where):
        raise _failed("a secret is referred to without name or namespace", FailureOutcome.FINAL)
    reported = f'secret "{where}/{name}"'
    if kube_api is None:
        raise _failed(f"{reported}: this node has no API")
    try:
        found = await kube_api.get(SECRETS, name, where)
    except ApiError as error:
        cause = Cause(CauseKind.VOLUME_SECRET, name, where)
        raise _failed(
            f"{reported} could not be read: {error.message}",
            cause=cause if isinstance(error, NotFound) else None,
        ) from None
    return _decoded(found.get("data"), reported)


def _decoded(data: Any, reported: str) -> dict[str, str]:
    values = {}
    for key, text in data.items() if isinstance(data, dict) else ():
        try:
            values[str(key)] = base64.b64decode(text, validate=True).decode()
        except (binascii.Error, ValueError, TypeError):
            raise _failed(f"{reported}: the value of key {key!r} is no text") from None
    return values


def _failed(
    message: str,
    outcome: FailureOutcome = FailureOutcome.TRANSIENT,
    cause: Cause | None = None,
) -> OperationFailed:
    failed = OperationFailed(outcome, message)
    failed.cause = cause
    return failed
