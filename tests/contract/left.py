"""Intended differences of the embedded API; docs/embedded-api.md gives the reasons."""

from __future__ import annotations

from tests.contract.client import JSON
from tests.contract.conversation import differences

_WAITING_PODS = ("p-none", "p-missing", "p-later", "p-first", "p-far", "p-late", "p-second", "own")
"""Pods whose scheduler message also names the effect of preemption; there is none here."""

WORDS = frozenset(
    {
        # A decoder's, or a dump of the server's own types.
        *(("binding", f"{pod} was looked at") for pod in _WAITING_PODS),
        *(("binding", f"{pod} waits") for pod in _WAITING_PODS),
        ("access_reviews", "can I, with a name"),
        ("applying", "client side: a field that is unknown"),
        ("applying", "no object"),
        ("binding", "unbound pod deleted"),
        ("binding", "pod with its own volume deleted"),
        ("changing_pods", "patch that is no json"),
        ("changing_pods", "unknown patch type"),
        ("changing_pods", "unknown field, strict"),
        ("changing_pods", "wrong type"),
        ("changing_pods", "two controllers"),
        ("changing_pods", "apply a conflict"),
        ("claims", "another mode"),
        ("creating_pods", "no json"),
        ("creating_pods", "empty body"),
        ("creating_pods", "a list for an object"),
        ("creating_pods", "privileged without escalation"),
        ("deleting_pods", "bad body"),
        ("editing", "a label that is a number"),
        ("editing", "kind"),
        ("editing", "version"),
        ("nodes", "lease by patch"),
        ("nodes", "lease's bad time"),
        ("nodes", "same taint twice"),
        ("persistent_volumes", "another node"),
        ("storage_objects", "driver changed"),
        ("storage_objects", "driver's keys"),
        ("what_a_node_reads", "token, admin, another uid"),
        ("pages", "a bad label"),
        ("pages", "a bad value"),
        ("pages", "a token that is none"),
        ("parts_of_pods", "no quantity"),
        ("watching", "a bad label selector"),
        # These messages list media types, of which the embedded API has fewer.
        ("forms", "another form"),
        ("forms", "another type"),
        ("what_a_node_reads_of_storage", "phase by the node"),
        ("what_a_node_reads_of_storage", "labels by the node"),
    }
)
"""Steps in which only messages differ: code, reason and the causes' fields are the same."""

OTHERWISE = frozenset(
    {
        # A wrong patch is the client's fault, no broken server.
        ("applying", "a number for a text"),
        ("applying", "unknown field, strict"),
        ("applying", "unknown field, warned"),
        ("applying", "the same container twice"),
        ("editing", "a list without its key"),
        ("changing_pods", "bad version"),
        ("changing_pods", "bad directive"),
        ("pages", "a get with a version that is none"),
        ("parts_of_pods", "to nothing"),
        ("parts_of_pods", "to a pod"),
        ("watching", "a version that is none"),
        # A version that nobody has written yet: this server has lost writes, so list again.
        ("too_old", "a version to come"),
        ("watching", "a version to come"),
        # One cause for each field.
        ("events", "other group without controller"),
        ("persistent_volumes", "refused, nfs without a path"),
        ("pod_status", "ip that is none"),
        # Nothing here reads the devices of slices, so only their names are checked.
        ("device_claims", "slice refused, no value"),
        ("device_claims", "slice refused, no version"),
        ("device_claims", "slice refused, bad attribute"),
        ("device_claims", "slice refused, bad taint"),
        # Names are checked before permissions.
        ("nodes", "create without a name"),
        # Nobody is anonymous here: a client without credentials is refused with 401.
        ("access_reviews", "can I, nobody"),
        ("access_reviews", "subject, nobody asks"),
        ("access_reviews", "whose token, nobody asks"),
        ("access_reviews", "who am I, nobody"),
        # No path is open to everybody, so none is in a review.
        ("access_reviews", "can I, a path, account"),
        ("access_reviews", "subject, anonymous, a public path"),
        # Nobody but administrators has rules that could be listed.
        ("access_reviews", "my rules, no namespace"),
        # Managers are recorded from the first apply on, and without the maps around their fields.
        ("applying", "an empty map"),
        ("applying", "taken over from the client's side"),
        ("applying", "changed after that"),
        # There is no RBAC that could allow it.
        ("what_a_node_reads", "token of an audience that no volume has"),
        ("what_a_node_reads", "token of a pod that is gone"),
        # A node may list a claim or volume of its own by name and watch it from there, so that it
        # need not poll it.
        ("what_a_node_reads_of_storage", "claim in a list"),
        ("what_a_node_reads_of_storage", "volume in a list"),
        # A token is never sent back, and its number is left out.
        ("access_reviews", "whose token"),
        ("access_reviews", "whose token, for us"),
        ("what_a_node_reads", "review"),
        ("what_a_node_reads", "review of rubbish"),
        ("what_a_node_reads", "review, other audience"),
    }
)
"""Steps whose answers differ in more."""


def unexpected(conversation: str, step: str, expected: JSON, got: JSON) -> list[str]:
    """Unexpected differences in an answer of the embedded API."""
    lines = differences(expected, got)
    if (conversation, step) in OTHERWISE:
        return [] if lines else [f"{conversation}, {step}: is listed, and does not differ any more"]
    if (conversation, step) in WORDS:
        same = differences(_without_words(expected), _without_words(got))
        return same if lines else [f"{conversation}, {step}: is listed, and does not differ"]
    return lines


def _without_words(answer: JSON) -> JSON:
    body = answer["body"]
    causes = (body.get("details") or {}).get("causes") or ()
    return {
        "code": answer["code"],
        "reason": body.get("reason"),
        "causes": [(cause.get("reason"), cause.get("field")) for cause in causes],
    }
