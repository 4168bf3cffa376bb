"""Differences of a new version become rows and cells; a person decides those with "?"."""

from __future__ import annotations

from tools.version_diff.tables import with_column, with_fields, with_flags, with_gates, with_metrics

GATES = [
    {"gate": "AllAlpha", "1.1": "Alpha", "main_parts": "all"},
    {"gate": "Stays", "1.1": "Beta+", "main_parts": "kubelet"},
]
FIELDS = [
    {"path": "period", "type": "duration", "default": "1s", "notes": "", "since": ""},
    {
        "path": "CredentialProviderConfig.x",
        "type": "string",
        "default": "",
        "notes": "",
        "since": "",
    },
]
FLAG = {"flag": "old", "type": "bool", "default": "false", "since": "", "until": ""}
METRIC = {
    "name": "requests",
    "type": "counter",
    "labels": "code",
    "buckets": "",
    "stability": "ALPHA",
    "endpoint": "/metrics",
    "meaning": "requests",
    "since": "",
    "until": "",
    "earlier": "",
}


def test_gates_get_a_column_and_the_kubelets_new_ones_are_undecided() -> None:
    changes = [("New", "", "Alpha"), ("Other", "", "Beta"), ("AllAlpha", "Alpha", "")]
    rows = with_gates(GATES, "1.1", "1.2", changes, {"New"})
    assert [list(row.values()) for row in rows] == [
        ["AllAlpha", "Alpha", "", "all"],
        ["New", "", "Alpha", "?"],
        ["Other", "", "Beta", "other components"],
        ["Stays", "Beta+", "Beta+", "kubelet"],
    ]


def test_fields_stand_before_the_other_documents() -> None:
    changes = [
        ("KubeletConfiguration.wait", "", "*metav1.Duration"),
        ("KubeletConfiguration.period", "metav1.Duration", ""),
        ("Other.kind", "", "Kind"),
    ]
    first, wait, kind, last = with_fields(FIELDS, "1.2", changes)
    assert first["notes"] == "? absent in 1.2. "
    assert list(wait.values()) == ["wait", "*duration", "?", "", "1.2"]
    assert list(kind.values()) == ["?Other.kind", "?Kind", "?", "", "1.2"]
    assert last == FIELDS[1]


def test_removed_flags_have_a_last_version() -> None:
    new, old = with_flags([FLAG], "1.1", "1.2", [("old", "flag", ""), ("new", "", "flag")])
    assert list(new.values()) == ["new", "?", "?", "1.2", ""]
    assert old == {**FLAG, "until": "1.1"}


def test_metrics_keep_what_they_were() -> None:
    rows = {
        value: with_metrics([METRIC], "1.1", "1.2", [("requests", "counter code ALPHA", value)])[0]
        for value in ("", "counter code BETA", "counter code|host ALPHA")
    }
    assert rows[""] == {**METRIC, "until": "1.1"}
    assert rows["counter code BETA"]["earlier"] == "1.1: stability=ALPHA"
    assert rows["counter code|host ALPHA"]["earlier"] == "1.1: labels=code"
    *_, added = with_metrics([METRIC], "1.1", "1.2", [("seconds", "", "histogram BETA")])
    assert (added["buckets"], added["meaning"], added["since"]) == ("?", "?", "1.2")


def test_a_release_takes_the_column_of_its_pre_release() -> None:
    before = [{"fact": "a", "1.37": "no", "meaning": "m"}]
    preview = with_column(before, "1.37", "1.38-beta.0")
    assert preview == [{"fact": "a", "1.37": "no", "1.38-beta.0": "no", "meaning": "m"}]
    preview[0]["1.38-beta.0"] = "yes"
    (release,) = with_column(preview, "1.37", "1.38")
    assert " ".join(release) == "fact 1.37 1.38 meaning"
    assert release["1.38"] == "yes"
