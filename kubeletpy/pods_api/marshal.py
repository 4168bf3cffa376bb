"""Pods in the API's protobuf. The table of its messages is read with the first pod."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from kubeletpy.wire.api_messages import ApiMessages


def marshal(pod: Mapping[str, Any]) -> bytes:
    """A pod as the message ``k8s.io.api.core.v1.Pod``.

    Raises:
        Unfit: a field has a value of another type.
    """
    return _messages().encode("core/Pod", pod)


@cache
def _messages() -> ApiMessages:
    return ApiMessages(json.loads(Path(__file__).with_name("pod-wire.json").read_text()))
