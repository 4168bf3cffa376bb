"""What the query of a request asks for: which objects, from when on, and how to write.

Must never guess at a value that it can't read: that is a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from kubeletpy_up import errors
from kubeletpy_up.http import bodies
from kubeletpy_up.registry.reading import ListOptions
from kubeletpy_up.registry.writing import APPLY
from kubeletpy_up.requests import WriteOptions, is_dry_run

_TRUE = frozenset({"true", "1", "True", ""})
_OPTIONS = {"PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_VALIDATIONS = frozenset({"", "Strict", "Warn", "Ignore"})


def is_watch(query: Mapping[str, str]) -> bool:
    """Whether changes are asked for."""
    return "watch" in query and query["watch"] in _TRUE


def number(text: str | None, name: str) -> int:
    """A count; 0 where it is not given. Raises ApiError 400."""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise errors.bad_request(f'{name}: Invalid value: "{text[:40]}"')
    return int(text)


def chosen(query: Mapping[str, str]) -> ListOptions:
    """Which objects."""
    return ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
    )


def of_list(query: Mapping[str, str]) -> ListOptions:
    """Which objects, which page, and as of when. Raises ApiError 400."""
    return ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        limit=number(query.get("limit"), "limit"),
        continue_=query.get("continue", ""),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
    )


def of_watch(query: Mapping[str, str], name: str) -> ListOptions:
    """Which objects (of one ``name``, if it is not empty), from when on. Raises ApiError 400."""
    initial = query.get("sendInitialEvents")
    selector = query.get("fieldSelector", "")
    if name:
        named = f"metadata.name={name}"
        selector = f"{selector},{named}" if selector else named
    seconds = number(query.get("timeoutSeconds"), "timeoutSeconds")
    return ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=selector,
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        bookmarks=query.get("allowWatchBookmarks", "false") in _TRUE,
        send_initial_events=None if initial is None else initial in _TRUE,
        timeout_seconds=float(seconds) if seconds else None,
    )


def of_write(request: web.Request) -> WriteOptions:
    """How to create or change. Raises ApiError 422."""
    query = request.query
    options = _OPTIONS.get(request.method, "CreateOptions")
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        text = (
            f'Unsupported value: "{validation[:40]}": supported values: "", "Ignore", "Strict", '
            '"Warn"'
        )
        raise errors.invalid_options(options, "fieldValidation", "FieldValueNotSupported", text)
    agent = request.headers.get("User-Agent", "").partition("/")[0]
    is_apply = bodies.media_type(request.headers.get("Content-Type", "")) == APPLY
    if request.method == "PATCH" and "force" in query and not is_apply:
        text = "Forbidden: may not be specified for non-apply patch"
        raise errors.invalid_options(options, "force", "FieldValueForbidden", text)
    return WriteOptions(
        dry_run=is_dry_run(query.get("dryRun"), options),
        field_manager=query.get("fieldManager", "") or ("" if is_apply else agent),
        field_validation=validation or "Warn",
        force=query.get("force", "false") in _TRUE,
        is_patch=request.method == "PATCH" and not is_apply,
    )
