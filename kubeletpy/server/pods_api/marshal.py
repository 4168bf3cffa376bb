"""Pods in the API's protobuf. The table of its messages is read with the first pod."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from kubeletpy.base.wire.api_messages import ApiMessages, consisting_of
from kubeletpy.base.wire.api_table import load_table

_POD = "core/Pod"


def marshal(pod: Mapping[str, Any]) -> bytes:
    """A pod as the message ``k8s.io.api.core.v1.Pod``.

    Raises:
        Unfit: a field has a value of another type.
    """
    return _messages().encode(_POD, pod)


@cache
def _messages() -> ApiMessages:
    return ApiMessages(consisting_of(load_table(), (_POD,)))
