"""Lists: pages, versions, selectors and what they refuse."""

from __future__ import annotations

from tests.contract.conversation import delete, get, patch, post
from tests.contract.conversations.objects import PODS, pod

_MAPS = "/api/v1/namespaces/{ns}/configmaps"
_PAGE = {"labelSelector": "page", "limit": 2}

STEPS = [
    *(
        post(f"map {name}", _MAPS, {"metadata": {"name": name, "labels": {"page": name}}})
        for name in "abcde"
    ),
    *(post(f"pod {name}", PODS, pod(name, schedulerName="nobody")) for name in "abc"),
    get(
        "first page",
        _MAPS,
        query=_PAGE,
        keep={"next": "metadata.continue", "rv": "metadata.resourceVersion"},
    ),
    patch("the past is shown", _MAPS + "/c", {"data": {"late": "yes"}}),
    delete("removed behind the first page", _MAPS + "/e"),
    get(
        "second page",
        _MAPS,
        query={**_PAGE, "continue": "{next}"},
        keep={"last": "metadata.continue"},
    ),
    get("last page", _MAPS, query={**_PAGE, "continue": "{last}"}),
    get(
        "remaining without selectors", PODS, query={"limit": 1}, keep={"pods": "metadata.continue"}
    ),
    get("the rest", PODS, query={"limit": 5, "continue": "{pods}"}),
    get("without limit", PODS, query={"continue": "{pods}"}),
    get("exactly all", PODS, query={"limit": 3}),
    get("a limit of zero", _MAPS, query={"limit": 0, "labelSelector": "page=a"}),
    get("a negative limit", _MAPS, query={"limit": -1, "labelSelector": "page=a"}),
    get("a limit that is none", _MAPS, query={"limit": "many"}),
    get("a token that is none", _MAPS, query={"limit": 2, "continue": "rubbish"}),
    get(
        "a token of another kind of page",
        _MAPS,
        query={"limit": 2, "continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ"},
    ),
    get("a token with a version", _MAPS, query={"continue": "{next}", "resourceVersion": "{rv}"}),
    get("a token with any version", PODS, query={"continue": "{pods}", "resourceVersion": "0"}),
    get(
        "as of then",
        _MAPS,
        query={**_PAGE, "resourceVersion": "{rv}", "resourceVersionMatch": "Exact"},
    ),
    get(
        "not older than",
        _MAPS,
        query={
            "labelSelector": "page=a",
            "resourceVersion": "{rv}",
            "resourceVersionMatch": "NotOlderThan",
        },
    ),
    get("any version", _MAPS, query={"labelSelector": "page=a", "resourceVersion": "0"}),
    get("at least", _MAPS, query={"labelSelector": "page=a", "resourceVersion": "{rv}"}),
    get("exactly any", _MAPS, query={"resourceVersion": "0", "resourceVersionMatch": "Exact"}),
    get("match without a version", _MAPS, query={"resourceVersionMatch": "Exact"}),
    get("unknown match", _MAPS, query={"resourceVersion": "{rv}", "resourceVersionMatch": "About"}),
    get("a version that is none", _MAPS, query={"resourceVersion": "abc"}),
    get("initial events in a list", _MAPS, query={"sendInitialEvents": "true"}),
    get("a get with a version", _MAPS + "/a", query={"resourceVersion": "0"}),
    get("a get with a version that is none", _MAPS + "/a", query={"resourceVersion": "abc"}),
    get("in", _MAPS, query={"labelSelector": "page in (a,b)"}),
    get("not in", _MAPS, query={"labelSelector": "page,page notin (a,b)"}),
    get("not equal", _MAPS, query={"labelSelector": "page,page!=a"}),
    get("absent", _MAPS, query={"labelSelector": "!page", "fieldSelector": "metadata.name=a"}),
    get("two terms", _MAPS, query={"labelSelector": "page==a,page=a"}),
    get(
        "by namespace",
        "/api/v1/configmaps",
        query={"fieldSelector": "metadata.namespace={ns}", "labelSelector": "page=a"},
    ),
    get("by unknown field", PODS, query={"fieldSelector": "spec.image=x"}),
    get(
        "pods by several fields",
        PODS,
        query={"fieldSelector": "spec.nodeName=,status.phase!=Running,metadata.name=a"},
    ),
    get("a bad label", _MAPS, query={"labelSelector": "a b"}),
    get("a bad value", _MAPS, query={"labelSelector": "a=b c"}),
    delete("a collection of two", _MAPS, query={"labelSelector": "page in (a,b)"}),
    delete("a collection, dry run", _MAPS, query={"labelSelector": "page=c", "dryRun": "All"}),
    delete(
        "a collection with a condition",
        _MAPS,
        {"preconditions": {"uid": "0"}},
        query={"labelSelector": "page=c"},
    ),
    get("what is left", _MAPS, query={"labelSelector": "page"}),
]
