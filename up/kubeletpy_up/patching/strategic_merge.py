"""Strategic merge patches of the kinds that the API serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy.base.api import json_patch as merging
from kubeletpy_up.errors import ApiError, bad_request
from kubeletpy_up.schema import definitions

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON


def strategic_merge(definition_name: str | None, original: JSON, patch: JSON) -> JSON:
    """Apply a strategic merge patch.

    Args:
        definition_name: full name of the object's definition; None merges maps and replaces lists.
        original: the object to patch.
        patch: the parsed patch.

    Raises:
        ApiError: 400 for a malformed directive, 422 for an item without its merge key.
    """
    schema = definitions.definition(definition_name)
    try:
        return merging.strategic_merge(schema, original, patch, resolve=definitions.resolve)
    except merging.NoMergeKey as error:
        raise ApiError(422, "Invalid", str(error)) from None
    except merging.MalformedPatch as error:
        raise bad_request(str(error)) from None
