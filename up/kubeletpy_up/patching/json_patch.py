"""JSON patches (RFC 6902) as the API refuses them."""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api import json_patch as patching
from kubeletpy.base.api.json_patch import MalformedPatch
from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import ApiError, bad_request
from kubeletpy_up.schema.json_types import json_type


def json_patch(original: JSON, operations: Any) -> JSON:
    """Apply an RFC 6902 patch.

    Raises:
        ApiError: 400 if it is not such a patch, 413 if it is too large or copies too much, 422 if
            it does not fit the object.
    """
    if not isinstance(operations, list):
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal {json_type(operations)} into Go value "
            "of type []handlers.jsonPatchOp"
        )
    try:
        return patching.json_patch(original, operations)
    except patching.TooLarge as error:
        raise ApiError(413, "RequestEntityTooLarge", str(error)) from None
    except patching.DoesNotFit:
        raise ApiError(
            422, "Invalid", "the server rejected our request due to an error in our request"
        ) from None
    except MalformedPatch as error:
        raise bad_request(str(error)) from None


def merge_patch(original: Any, patch: Any) -> Any:
    """Apply an RFC 7396 patch; null removes. Raises ApiError (400) if it is nested too deep."""
    try:
        return patching.merge_patch(original, patch)
    except MalformedPatch as error:
        raise bad_request(str(error)) from None
