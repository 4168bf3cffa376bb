"""Options of lists and watches, and how they may be combined. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kubeletpy_up.errors import Cause, bad_request, invalid


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Options of list and watch.

    Attributes:
        limit: objects per page; 0 for all.
        resource_version: "", "0" or a revision.
        match: resourceVersionMatch: "", Exact or NotOlderThan.
        bookmarks: allowWatchBookmarks.
        send_initial_events: None when not given.
        timeout_seconds: of a watch.
    """

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_: str = ""
    resource_version: str = ""
    match: str = ""
    bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_seconds: float | None = None


EVERYTHING = ListOptions()
EXACT, NOT_OLDER = "Exact", "NotOlderThan"


def read_revision(text: str, about: str = "") -> int:
    """A resourceVersion as a number; "" is 0. ``about`` begins the refusal.

    Raises:
        ApiError: 400.
    """
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        reported = text[:40]
        raise bad_request(
            f'{about}resourceVersion: Invalid value: "{reported}": strconv.ParseUint: '
            f'parsing "{reported}": invalid syntax'
        )
    return int(text)


def check_list(options: ListOptions) -> None:
    """Refuse options that a list can't have. Raises ApiError 422."""
    causes: list[Cause] = []
    match = options.match
    if options.send_initial_events is not None:
        _forbid(causes, "sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match and not options.resource_version:
        text = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        _forbid(causes, "resourceVersionMatch", text)
    elif match and options.continue_:
        text = "resourceVersionMatch is forbidden when continue is provided"
        _forbid(causes, "resourceVersionMatch", text)
    elif match == EXACT and options.resource_version == "0":
        text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        _forbid(causes, "resourceVersionMatch", text)
    elif match not in ("", EXACT, NOT_OLDER):
        _unsupported(causes, match, f'"{EXACT}", "{NOT_OLDER}", ""')
    _refuse(causes)


def check_watch(options: ListOptions) -> None:
    """Refuse options that a watch can't have. Raises ApiError 422."""
    causes: list[Cause] = []
    match = options.match
    if options.send_initial_events is None:
        if match:
            text = (
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
            _forbid(causes, "resourceVersionMatch", text)
    elif match != NOT_OLDER:
        text = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}"
        _forbid(causes, "resourceVersionMatch", text)
        if match:
            _unsupported(causes, match, f'"{NOT_OLDER}"')
    _refuse(causes)


def _forbid(causes: list[Cause], field: str, text: str) -> None:
    causes.append(Cause("FieldValueForbidden", field, f"Forbidden: {text}"))


def _unsupported(causes: list[Cause], match: str, supported: str) -> None:
    text = f'Unsupported value: "{match[:40]}": supported values: {supported}'
    causes.append(Cause("FieldValueNotSupported", "resourceVersionMatch", text))


def _refuse(causes: list[Cause]) -> None:
    if causes:
        raise invalid("ListOptions", "", causes, "meta.k8s.io")
