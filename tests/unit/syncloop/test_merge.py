"""The merge of the sources: a single event has the same effect as a full set."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletpy.pods.pod import CONFIG_MIRROR, CONFIG_SEEN, CONFIG_SOURCE, Pod
from kubeletpy.syncloop.merge import Merge, MergedDelivery, Op, change
from tests.kit.pods import pod_object

NOW = 1_700_000_000.5


def ops(merged: MergedDelivery) -> list[tuple[Op, list[str]]]:
    return [(o.op, [pod.uid for pod in o.pods]) for o in merged.operations]


def test_each_kind_of_change() -> None:
    merge = Merge()
    web = pod_object("web")
    assert ops(merge.set_pods("api", [web], NOW)) == [(Op.ADD, ["uid-web"])]
    newer: Any = {**web, "metadata": {**web["metadata"], "resourceVersion": "7"}}
    assert ops(merge.set_pods("api", [newer], NOW)) == []
    assert merge.pods("api")["uid-web"].metadata["resourceVersion"] == "7"
    running: Any = {**web, "status": {"phase": "Running"}}
    assert ops(merge.set_pods("api", [running], NOW)) == [(Op.RECONCILE, ["uid-web"])]
    changed = pod_object("web", labels={"a": "b"})
    assert ops(merge.set_pods("api", [changed], NOW)) == [(Op.UPDATE, ["uid-web"])]
    going = pod_object("web", labels={"a": "b"}, deleting=30)
    assert ops(merge.set_pods("api", [going], NOW)) == [(Op.DELETE, ["uid-web"])]
    assert ops(merge.set_pods("api", [], NOW)) == [(Op.REMOVE, ["uid-web"])]


@pytest.mark.parametrize(
    ("metadata", "op"),
    [
        ({"labels": {"a": "b"}}, Op.UPDATE),
        ({"labels": {}}, None),
        ({"annotations": {"mine": "1"}}, Op.UPDATE),
        ({"annotations": {CONFIG_SEEN: "x", CONFIG_SOURCE: "file", CONFIG_MIRROR: "h"}}, None),
        ({"generation": 3}, Op.UPDATE),
        ({"deletionTimestamp": "2026-01-01T00:00:30Z"}, Op.DELETE),
        ({"deletionGracePeriodSeconds": 5}, Op.UPDATE),
        ({"resourceVersion": "7", "managedFields": []}, None),
    ],
)
def test_metadata_that_counts(metadata: Any, op: Op | None) -> None:
    other = pod_object("web")
    other["metadata"].update(metadata)
    assert change(Pod(pod_object("web")), Pod(other)) is op


@pytest.mark.parametrize("whole", [True, False])
def test_an_equal_spec_is_kept_as_the_same_object(whole: bool) -> None:
    """The old object is kept, so that later steps need not check or compare a large spec again."""
    merge = Merge()
    first = pod_object("web")
    merge.set_pods("api", [first], NOW)
    second: Any = copy.deepcopy(pod_object("web", labels={"a": "b"}))
    if whole:
        merge.set_pods("api", [second], NOW)
    else:
        merge.apply_event("api", "MODIFIED", second, NOW)
    assert merge.pods("api")["uid-web"].spec is first["spec"]
    assert merge.pods("api")["uid-web"].object["metadata"]["labels"] == {"a": "b"}


def test_a_problem_beside_what_is_equal_is_found() -> None:
    merge = Merge()
    merge.set_pods("api", [pod_object("web")], NOW)
    broken: Any = copy.deepcopy(pod_object("web"))
    broken["status"] = {"phase": 5}
    (refused,) = merge.set_pods("api", [broken], NOW).refused
    assert "status.phase: is not a string" in refused.message


def test_equal_fields_of_a_status_stay_the_same_objects_and_others_are_checked() -> None:
    merge = Merge()
    first: Any = pod_object("web")
    first["status"] = {"phase": "Pending", "initContainerStatuses": [{"name": "i"}], "x": {}}
    merge.set_pods("api", [first], NOW)
    second = copy.deepcopy(first)
    second["status"] |= {"phase": "Running", "containerStatuses": [{"name": "c"}]}
    merge.apply_event("api", "MODIFIED", second, NOW)
    kept = merge.pods("api")["uid-web"].status
    assert kept == second["status"]
    assert kept["initContainerStatuses"] is first["status"]["initContainerStatuses"]
    broken = copy.deepcopy(second)
    broken["status"]["containerStatuses"][0]["name"] = 5
    (refused,) = merge.set_pods("api", [broken], NOW).refused
    assert "status.containerStatuses[0].name: is not a string" in refused.message


def test_the_first_delivery_counts_even_when_empty() -> None:
    merge = Merge()
    assert not merge.has_delivered("file")
    assert merge.pods("file") == merge.delivered("file") == {}
    assert ops(merge.set_pods("file", [], NOW)) == [(Op.ADD, [])]
    assert merge.has_delivered("file")
    assert ops(merge.set_pods("file", [], NOW)) == []
    merge.apply_event("api", "ADDED", pod_object("web"), NOW)
    assert not merge.has_delivered("api"), "an event is no full set"


def test_annotations_of_origin_and_no_change_in_place() -> None:
    merge = Merge()
    web = pod_object("web")
    web["metadata"]["annotations"] = {CONFIG_SOURCE: "file", "mine": "1"}
    before = copy.deepcopy(web)
    (operation,) = merge.set_pods("api", [web], NOW).operations
    annotations = operation.pods[0].annotations
    assert annotations[CONFIG_SOURCE] == "api"
    assert annotations[CONFIG_SEEN] == "2023-11-14T22:13:20.500000000Z"
    assert annotations["mine"] == "1"
    assert web == before
    again = pod_object("web", labels={"a": "b"})
    (operation,) = merge.set_pods("api", [again], NOW + 60).operations
    assert operation.pods[0].annotations[CONFIG_SEEN] == "2023-11-14T22:13:20.500000000Z"


def test_a_mirror_stays_a_mirror() -> None:
    merge = Merge()
    mirror = pod_object("web")
    mirror["metadata"]["annotations"] = {CONFIG_MIRROR: "hash"}
    merge.set_pods("api", [mirror], NOW)
    (operation,) = merge.set_pods("api", [pod_object("web", labels={"x": "y"})], NOW).operations
    assert operation.pods[0].is_mirror


def test_the_same_full_name_twice() -> None:
    merge = Merge()
    both = [pod_object("web", "one"), pod_object("web", "two")]
    merged = merge.set_pods("file", both, NOW)
    assert ops(merged) == [(Op.ADD, ["one"])]
    assert [d.pod.uid for d in merged.refused] == ["two"]
    assert merged.refused[0].message == (
        'Error validating pod web_default(two) from file due to duplicate pod name "web", ignoring'
    )
    assert merge.set_pods("file", both, NOW).refused == ()
    assert ops(merge.set_pods("file", both[1:], NOW)) == [(Op.REMOVE, ["one"]), (Op.ADD, ["two"])]


def test_the_same_uid_twice_is_one_pod_as_it_came_last() -> None:
    merge = Merge()
    later = pod_object("web", labels={"a": "b"})
    merged = merge.set_pods("file", [pod_object("web"), later], NOW)
    assert ops(merged) == [(Op.ADD, ["uid-web"])]
    assert merged.refused == ()
    assert merge.delivered("file") == {"uid-web": later}


def test_a_malformed_object_does_not_affect_others() -> None:
    merge = Merge()
    broken: list[Any] = [
        {},
        None,
        {"metadata": {"uid": ["x"]}},
        {"metadata": {"name": "x", "namespace": "y", "uid": "z"}},
        {"metadata": {"name": "x", "namespace": "y", "uid": "z"}, "spec": {"containers": 7}},
        {**pod_object("a"), "status": {"containerStatuses": "none"}},
        {**pod_object("b"), "metadata": {**pod_object("b")["metadata"], "annotations": "none"}},
    ]
    merged = merge.set_pods("api", [*broken, pod_object("web")], NOW)
    assert ops(merged) == [(Op.ADD, ["uid-web"])]
    assert len(merged.malformed) == 7
    assert "y/x" in merged.malformed[3]


def broken(deleting: Any = None) -> Any:
    bad = pod_object("web", deleting=deleting)
    bad["spec"] = {"containers": []}
    return bad


def by_event(merge: Merge, obj: Any) -> MergedDelivery:
    return merge.apply_event("api", "MODIFIED", obj, NOW)


def by_set(merge: Merge, obj: Any) -> MergedDelivery:
    return merge.set_pods("api", [obj], NOW)


@pytest.mark.parametrize("deliver", [by_event, by_set])
def test_a_pod_that_becomes_malformed_is_kept_and_reported_once(deliver: Any) -> None:
    merge = Merge()
    web = pod_object("web")
    merge.set_pods("api", [web], NOW)
    merged = deliver(merge, broken())
    assert ops(merged) == []
    assert merge.pods("api")["uid-web"].spec == web["spec"]
    (notified,) = merged.refused
    assert notified.pod.uid == "uid-web"
    assert notified.message.startswith("Error validating pod web_default(uid-web) from api: ")
    assert notified.message.endswith("; the pod goes on as it was")
    assert deliver(merge, broken()) == MergedDelivery()
    # accepted as soon as it can be read again, and reported again the next time
    assert ops(deliver(merge, pod_object("web", labels={"a": "b"}))) == [(Op.UPDATE, ["uid-web"])]
    assert deliver(merge, broken()).refused


@pytest.mark.parametrize("deliver", [by_event, by_set])
def test_the_deletion_of_a_pod_that_became_malformed_is_taken_over(deliver: Any) -> None:
    merge = Merge()
    merge.set_pods("api", [pod_object("web")], NOW)
    deliver(merge, broken())
    assert ops(deliver(merge, broken(deleting=5))) == [(Op.DELETE, ["uid-web"])]
    assert merge.pods("api")["uid-web"].deletion_grace_period == 5
    nonsense = broken(deleting=5)
    nonsense["metadata"]["deletionTimestamp"] = "soon"
    assert ops(deliver(merge, nonsense)) == []
    assert ops(merge.apply_event("api", "DELETED", broken(), NOW)) == [(Op.REMOVE, ["uid-web"])]


objects = st.builds(
    lambda name, uid, label, deleting, phase, broken: (
        {"metadata": {"uid": uid, "name": name, "namespace": "default"}}
        if broken
        else pod_object(name, uid, labels={"l": label}, deleting=deleting, phase=phase)
    ),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["1", "2", "3", "4"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from([None, None, 5]),
    st.sampled_from(["", "Running"]),
    st.sampled_from([False, False, False, False, True]),
)
changes = st.lists(
    st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), objects), max_size=25
)


@settings(max_examples=400)
@given(changes)
def test_events_and_full_sets_have_the_same_effect(sequence: list[tuple[str, Any]]) -> None:
    by_event, by_set = Merge(), Merge()
    by_event.set_pods("api", [], NOW)
    by_set.set_pods("api", [], NOW)
    everything: dict[str, Any] = {}
    for kind, obj in sequence:
        uid = obj["metadata"]["uid"]
        if kind == "DELETED":
            everything.pop(uid, None)
        elif "spec" in obj or uid in everything:
            # a pod that was never readable would only change the order of the set
            everything[uid] = obj
        one = by_event.apply_event("api", kind, obj, NOW)
        whole = by_set.set_pods("api", list(everything.values()), NOW)
        assert one.operations == whole.operations
        assert one.refused == whole.refused
        assert by_event.pods("api") == by_set.pods("api")


def test_an_undecodable_new_pod_is_remembered_until_it_is_removed() -> None:
    merge = Merge()
    nonsense: Any = {**pod_object("web"), "spec": {"containers": 7}}
    merge.set_pods("api", [nonsense, pod_object("db")], NOW)
    assert merge.unknown == {"uid-web"}
    merge.set_pods("file", [], NOW)
    merge.apply_event("api", "MODIFIED", nonsense, NOW)
    assert merge.unknown == {"uid-web"}
    assert ops(merge.apply_event("api", "MODIFIED", pod_object("web"), NOW)) == [
        (Op.ADD, ["uid-web"])
    ]
    assert merge.unknown == set()
    merge.apply_event("api", "MODIFIED", nonsense, NOW)
    assert merge.unknown == set(), "it is known now"

    other: Any = {**pod_object("x"), "spec": None}
    merge.apply_event("api", "ADDED", other, NOW)
    assert merge.unknown == {"uid-x"}
    merge.apply_event("api", "DELETED", other, NOW)
    assert merge.unknown == set()
    merge.apply_event("api", "ADDED", other, NOW)
    merge.set_pods("api", [pod_object("db")], NOW)
    assert merge.unknown == set()
