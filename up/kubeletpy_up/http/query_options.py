"""Query options of a request: which objects, from which version on, and how to write.

Must never guess at a value that it can't read: such a request is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from aiohttp import web

from kubeletpy_up import errors
from kubeletpy_up.http import bodies
from kubeletpy_up.registry.reading import ListOptions
from kubeletpy_up.registry.writing import APPLY
from kubeletpy_up.requests import WriteOptions, is_dry_run

_FALSE = frozenset({"false", "0"})
_MAX_MANAGER = 128
_OPTIONS = {"PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_VALIDATIONS = frozenset({"", "Strict", "Warn", "Ignore"})


def flag(query: Mapping[str, str], name: str) -> bool:
    """A boolean; every value but those for false means true."""
    return name in query and query[name].lower() not in _FALSE


def number(text: str | None) -> int:
    """A count; 0 if not given. Raises ApiError 400."""
    if not text:
        return 0
    if not _NUMBER.fullmatch(text):
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text[:40]}": invalid syntax')
    return int(text)


def chosen(query: Mapping[str, str]) -> ListOptions:
    """Which objects a list, watch or deletion of many selects."""
    return ListOptions(
        label_selector=query.get("labelSelector", ""), field_selector=query.get("fieldSelector", "")
    )


def of_list(query: Mapping[str, str]) -> ListOptions:
    """Which objects, which page, and as of when. Raises ApiError 400."""
    return ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=number(query.get("limit")),
        continue_=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        send_initial_events=_initial(query),
    )


def _initial(query: Mapping[str, str]) -> bool | None:
    return flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None


def of_watch(query: Mapping[str, str], name: str) -> ListOptions:
    """Which objects (of one ``name`` unless empty), from which version on. Raises ApiError 400."""
    selector = query.get("fieldSelector", "")
    if name:
        named = f"metadata.name={name}"
        selector = f"{selector},{named}" if selector else named
    seconds = number(query.get("timeoutSeconds"))
    if seconds < 0:
        raise errors.bad_request(f"timeoutSeconds: {seconds} is negative")
    return ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=selector,
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        bookmarks=flag(query, "allowWatchBookmarks"),
        send_initial_events=_initial(query),
        timeout_seconds=float(seconds) if seconds else None,
    )


def of_write(request: web.Request) -> WriteOptions:
    """How to create or change an object. Raises ApiError 422."""
    query = request.query
    options = _OPTIONS.get(request.method, "CreateOptions")
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        text = (
            f'Unsupported value: "{validation[:40]}": supported values: "", "Ignore", "Strict", '
            '"Warn"'
        )
        raise errors.invalid_options(options, "fieldValidation", "FieldValueNotSupported", text)
    _check_manager(query.get("fieldManager", ""), options)
    agent = request.headers.get("User-Agent", "").partition("/")[0]
    is_apply = bodies.media_type(request.headers.get("Content-Type", "")) == APPLY
    if request.method == "PATCH" and "force" in query and not is_apply:
        text = "Forbidden: may not be specified for non-apply patch"
        raise errors.invalid_options(options, "force", "FieldValueForbidden", text)
    return WriteOptions(
        dry_run=is_dry_run(query.get("dryRun"), options),
        field_manager=query.get("fieldManager", "") or ("" if is_apply else agent),
        field_validation=validation or "Warn",
        force=flag(query, "force"),
        is_patch=request.method == "PATCH" and not is_apply,
    )


def _check_manager(name: str, options: str) -> None:
    if len(name.encode()) > _MAX_MANAGER:
        text = f"Too long: may not be more than {_MAX_MANAGER} bytes"
        raise errors.invalid_options(options, "fieldManager", "FieldValueTooLong", text)
    for position, char in enumerate(name):
        if not char.isprintable():
            text = (
                f"Invalid value: {json.dumps(name)}: invalid character U+{ord(char):04X} "
                f"(at position {position})"
            )
            raise errors.invalid_options(options, "fieldManager", "FieldValueInvalid", text)
