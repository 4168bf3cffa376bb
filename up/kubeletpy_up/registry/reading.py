"""Lists and watches: pages, continue tokens, and where a watch starts.

Must never write. All pages show the objects as they were at the first page's resourceVersion.
"""

from __future__ import annotations

import base64
import json

from kubeletpy.api.types import JSON
from kubeletpy_up.errors import bad_request, gone
from kubeletpy_up.kinds import events
from kubeletpy_up.registry.list_options import (
    EXACT,
    ListOptions,
    check_list,
    check_watch,
    read_revision,
)
from kubeletpy_up.resources import ResourceInfo
from kubeletpy_up.storage.selectors import Selection
from kubeletpy_up.storage.store import Store
from kubeletpy_up.storage.watch import Subscription, Watchers


def view(info: ResourceInfo, obj: JSON) -> JSON:
    """A stored object as this resource's version shows it."""
    return events.to_new(obj) if info.key == "events.events.k8s.io" else obj


def _item(info: ResourceInfo, obj: JSON) -> JSON:
    # Items of a typed list carry neither kind nor apiVersion, as on a real server.
    seen = view(info, obj)
    return {key: value for key, value in seen.items() if key not in ("kind", "apiVersion")}


def _encode_continue(revision: int, after: tuple[str, str]) -> str:
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": list(after)})
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def _decode_continue(text: str) -> tuple[int, tuple[str, str]]:
    try:
        token = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        namespace, name = token["start"]
        return int(token["rv"]), (str(namespace), str(name))
    except (ValueError, TypeError, KeyError):
        raise bad_request("continue key is not valid") from None


def list_objects(
    store: Store, info: ResourceInfo, selection: Selection, options: ListOptions
) -> JSON:
    """Answer a list.

    Raises:
        ApiError: 400 for bad options, 410 for a continue token or an exact version too old.
    """
    check_list(options)
    revision = store.revision
    wanted = read_revision(options.resource_version, "invalid resource version: ")
    after: tuple[str, str] | None = None
    if options.continue_:
        if wanted:
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, after = _decode_continue(options.continue_)
        if not store.knows(revision):
            raise gone("The provided continue parameter is too old to display a consistent list")
    elif wanted > revision or (options.match == EXACT and not store.knows(wanted)):
        raise gone(f"resource version {wanted} is not the one at hand ({revision})")
    elif options.match == EXACT:
        revision = wanted
    matching = [
        (key, obj)
        for key, obj in store.entries_at(revision, info.storage_key, selection.namespace)
        if (after is None or key > after) and selection.matches(obj)
    ]
    found = sorted(matching, key=lambda pair: pair[0])
    metadata: JSON = {"resourceVersion": str(revision)}
    if 0 < options.limit < len(found):
        metadata["continue"] = _encode_continue(revision, found[options.limit - 1][0])
        if not selection.labels and not selection.fields:
            metadata["remainingItemCount"] = len(found) - options.limit
        found = found[: options.limit]
    return {
        "kind": info.kind + "List",
        "apiVersion": info.group_version,
        "metadata": metadata,
        "items": [_item(info, obj) for _, obj in found],
    }


def start_watch(
    store: Store, watchers: Watchers, info: ResourceInfo, selection: Selection, options: ListOptions
) -> Subscription:
    """Begin a watch; what it has to send first is queued already.

    Raises:
        ApiError: 400 for bad options. A version too old (410) comes as the watch's first event.
    """
    check_watch(options)
    start = read_revision(options.resource_version)
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
    initial = options.send_initial_events
    if initial is None:  # from no version, a watch is a list first
        initial = start == 0
    if initial:
        pairs = sorted(store.entries(info.storage_key, selection.namespace), key=lambda p: p[0])
        for _, entry in pairs:
            if selection.matches(entry.object):
                subscription.push_initial(entry.object, entry.text)
        if options.bookmarks:
            subscription.push_bookmark(initial_events_end=True)
    elif start and not store.knows(start):
        subscription.fail(gone(f"too old resource version: {start} ({store.revision})"))
        return subscription
    elif start:
        for change in store.changes_since(start, info.storage_key):
            subscription.offer(change)
    watchers.add(subscription)
    return subscription
