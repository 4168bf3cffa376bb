"""Kubernetes' protobuf: what clients send is read into JSON, and answers are written in it.

kubectl's typed commands (``create configmap``, ``create token``, ``drain``, …) send nothing else;
nodes' agents request it. Field numbers come from ``data/api-wire.json``. Empty fields are left out,
as a client that writes JSON would: :mod:`.zero_values` fills in what the API always writes.
"""

from __future__ import annotations

from functools import cache

from kubeletpy.base.api.types import JSON
from kubeletpy.base.wire.api_messages import Unfit
from kubeletpy.base.wire.api_objects import MEDIA_TYPE, ApiObjects, Malformed, message_name
from kubeletpy_up.data import load_json
from kubeletpy_up.errors import bad_request

__all__ = ["MEDIA_TYPE", "WATCH", "decode", "encode", "event", "writes"]

WATCH = f"{MEDIA_TYPE};stream=watch"
"""The content type of a watch; before each event stands its length, in four bytes."""


@cache
def _objects() -> ApiObjects:
    return ApiObjects(load_json("api-wire.json"), zeros=False)


def decode(body: bytes) -> JSON:
    """Read a body of media type ``application/vnd.kubernetes.protobuf``.

    Raises:
        ApiError: 400, malformed, or of a kind that this server can't read as protobuf.
    """
    try:
        api_version, kind, raw = _objects().open(body)
        message = message_name(api_version, kind)
        if not _objects().has_message(message):
            raise bad_request(f"{kind or 'this kind'} in {api_version} can't be read as protobuf")
        return {"kind": kind, "apiVersion": api_version, **_objects().to_json(message, raw)}
    except Malformed:
        raise bad_request("couldn't read the request as Kubernetes protobuf") from None


def writes(api_version: str, kind: str) -> bool:
    """Whether objects of a kind can be written."""
    return _objects().has_message(message_name(api_version, kind))


def encode(obj: JSON) -> bytes | None:
    """An object or a list; None if a field would be lost."""
    try:
        return _objects().enclose(obj["apiVersion"], obj["kind"], obj)
    except (KeyError, Unfit):
        return None


def event(kind: str, obj: JSON) -> bytes:
    """An event of a watch. A watch has one form: fields without a number are left out.

    Raises:
        Unfit: a value of another type than its field.
    """
    whole = _objects().messages.message("WatchEvent")(type=kind)
    whole.object.raw = _objects().enclose(obj["apiVersion"], obj["kind"], obj, whole=False)
    data: bytes = whole.SerializeToString()
    return len(data).to_bytes(4, "big") + data
