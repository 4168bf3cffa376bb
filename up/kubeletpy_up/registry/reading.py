"""Lists and watches: pages, continue tokens, and where a watch starts.

Must never write. All pages show the objects as they were at the first page's resourceVersion. A
client that is too late for that gets a token to continue the list with the objects as of now.
"""

from __future__ import annotations

import base64
import json
import posixpath

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy_up.errors import ApiError, Cause, bad_request, invalid, removed
from kubeletpy_up.kinds import meta
from kubeletpy_up.resources import ResourceInfo
from kubeletpy_up.storage.history import Change
from kubeletpy_up.storage.selectors import Selection
from kubeletpy_up.storage.store import Store
from kubeletpy_up.storage.watch import Subscription, Watchers


class ListOptions(Struct, frozen=True):
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


def view(info: ResourceInfo, obj: JSON) -> JSON:
    """A stored object in this resource's version."""
    return meta.to_new(obj) if info.key == "events.events.k8s.io" else obj


def _item(info: ResourceInfo, obj: JSON) -> JSON:
    # Items of a typed list carry neither kind nor apiVersion, as on a real server.
    seen = view(info, obj)
    return {key: value for key, value in seen.items() if key not in ("kind", "apiVersion")}


_TOKEN = "meta.k8s.io/v1"
_NOW = -1
"""In a token: list the objects as of when it is used."""
_END = "\0"
"""Makes a key its immediate successor: the next page begins there."""
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


def _encode_continue(revision: int, start: str) -> str:
    token = json.dumps({"v": _TOKEN, "rv": revision, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def _decode_continue(text: str) -> tuple[int, str]:
    """Revision and key at which a page begins. Raises ApiError 400."""
    try:
        token = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        version, revision, start = token["v"], token["rv"], token["start"]
    except (ValueError, TypeError, KeyError):
        raise _bad_token("it can't be decoded") from None
    if version != _TOKEN:
        raise _bad_token(f"server does not recognize this encoded version {str(version)[:40]}")
    if not isinstance(revision, int) or not revision:
        raise _bad_token(f"incorrect encoded start resourceVersion (version {_TOKEN})")
    if not isinstance(start, str) or not start:
        raise _bad_token(f"encoded start key empty (version {_TOKEN})")
    if posixpath.normpath(f"/{start}") != f"/{start}":
        raise _bad_token(start[:300])
    return revision, start


def _bad_token(why: str) -> ApiError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def list_objects(
    store: Store, info: ResourceInfo, selection: Selection, options: ListOptions
) -> JSON:
    """Answer a list.

    Raises:
        ApiError: 400 for bad options, 410 for a continue token or an exact version too old.
    """
    check_list(options)
    revision = store.revision
    desired = read_revision(options.resource_version, "invalid resource version: ")
    start = ""
    if options.continue_:
        if desired:
            raise bad_request("specifying resource version is not allowed when using continue")
        requested, start = _decode_continue(options.continue_)
        if requested != _NOW and not store.knows(requested):
            raise removed(_TOO_OLD, _encode_continue(_NOW, start))
        revision = revision if requested == _NOW else requested
    elif options.match == EXACT and desired <= revision and not store.knows(desired):
        raise removed("The resourceVersion for the provided list is too old.")
    elif desired > revision:
        raise removed(f"resource version {desired} is not the one at hand ({revision})")
    elif options.match == EXACT:
        revision = desired
    of_all = selection.namespace is None
    listed = store.entries_at(revision, info.storage_key, selection.namespace)
    named = ((_place(key, of_all=of_all), obj) for key, obj in listed)
    matching = [pair for pair in named if pair[0] >= start and selection.matches(pair[1])]
    found = sorted(matching, key=lambda pair: pair[0])
    metadata: JSON = {"resourceVersion": str(revision)}
    if 0 < options.limit < len(found):
        metadata["continue"] = _encode_continue(revision, found[options.limit - 1][0] + _END)
        if not selection.labels and not selection.fields:
            metadata["remainingItemCount"] = len(found) - options.limit
        found = found[: options.limit]
    return {
        "kind": info.kind + "List",
        "apiVersion": info.group_version,
        "metadata": metadata,
        "items": [_item(info, obj) for _, obj in found],
    }


def _place(key: tuple[str, str], *, of_all: bool) -> str:
    """The sort key of a list: namespace and name, or the name if all share a namespace."""
    namespace, name = key
    return f"{namespace}/{name}" if of_all and namespace else name


class Begin(Struct, frozen=True):
    """The first part of a watch: objects, or changes since a revision.

    Attributes:
        revision: of the objects, or of the last of the changes.
        objects: what there is, selected; None if the watch begins with changes.
    """

    revision: int
    objects: tuple[tuple[JSON, str], ...] | None
    changes: tuple[Change, ...] = ()


def _wants_objects(options: ListOptions) -> bool:
    if options.send_initial_events is not None:
        return options.send_initial_events
    # without a version, a watch is a list first
    return read_revision(options.resource_version) == 0


def begin_watch(
    store: Store, info: ResourceInfo, selection: Selection, options: ListOptions
) -> Begin:
    """The first part of a watch, for :func:`start_watch`.

    Raises:
        ApiError: 400 for bad options, 410.
    """
    check_watch(options)
    if _wants_objects(options):
        revision, found = store.snapshot(info.storage_key, selection.namespace)
        found.sort(key=lambda pair: pair[0])
        chosen = (entry for _, entry in found if selection.matches(entry.object))
        return Begin(revision, tuple((entry.object, entry.text) for entry in chosen))
    start = read_revision(options.resource_version)
    if not start:
        return Begin(store.revision, None)
    changes = tuple(store.changes_since(start, info.storage_key))
    return Begin(changes[-1].revision if changes else start, None, changes)


def start_watch(
    store: Store,
    watchers: Watchers,
    info: ResourceInfo,
    selection: Selection,
    options: ListOptions,
    *,
    begin: Begin | None = None,
) -> Subscription:
    """Begin a watch; what it sends first is already queued.

    Args:
        begin: what it sends first, if that has been read already.

    Raises:
        ApiError: 400 for bad options. A version too old (410) comes as the watch's first event.
    """
    check_watch(options)
    start = read_revision(options.resource_version)
    key = info.storage_key
    converted = info.key != info.storage_key
    subscription = Subscription(
        info,
        selection,
        revision=lambda: store.revision,
        convert=(lambda obj: view(info, obj)) if converted else None,
        bookmarks=options.bookmarks,
        timeout_seconds=options.timeout_seconds,
        on_close=watchers.discard,
    )
    if start and not _wants_objects(options) and not store.knows(start):
        subscription.fail(removed(f"too old resource version: {start} ({store.revision})"))
        return subscription
    begin = begin or begin_watch(store, info, selection, options)
    since = [] if begin.revision == store.revision else store.changes_since(begin.revision, key)
    for obj, text in begin.objects or ():
        subscription.push_initial(obj, text)
    for change in (*begin.changes, *since):
        subscription.offer(change)
    if begin.objects is not None and options.bookmarks:
        subscription.push_bookmark(initial_events_end=True)
    watchers.add(subscription)
    return subscription
