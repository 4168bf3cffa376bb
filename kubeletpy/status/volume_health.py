"""The health of a pod's volumes in its status, from what drivers last reported. Pure.

Source: docs/reference/behaviour-storage.md, sr1.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.base.api import types as api


def shown_volume_health(
    old: Sequence[api.PodVolumeHealth], reported: Sequence[api.PodVolumeHealth]
) -> list[api.PodVolumeHealth]:
    """``status.volumeHealth``: what the status has, with what differs from it in the reports.

    A report counts only if its set of (status, reason) is another one: messages alone change
    nothing, and the time of the last transition is kept. Without a report an entry stays.
    """
    by_name = {entry.get("name") or "": entry for entry in old}
    for entry in reported:
        name = entry.get("name") or ""
        known = by_name.get(name, {"healthConditions": []})
        if _identities(known) != _identities(entry):
            by_name[name] = entry
    return list(by_name.values())


def _identities(entry: api.PodVolumeHealth) -> set[tuple[str, str]]:
    return {
        (each.get("status") or "", each.get("reason") or "")
        for each in entry.get("healthConditions") or ()
    }
