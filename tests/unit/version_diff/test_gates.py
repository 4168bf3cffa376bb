"""Gates are read from Go sources as the registry of that version holds them."""

from __future__ import annotations

from tools.version_diff.gates import differences, gates

CONSTANTS = """
const (
	// owner: someone
	AFeature featuregate.Feature = "AFeature"
	bFeature Feature = "RenamedFeature"
	testFeature featuregate.Feature = "TestFeature"
)
"""
MAP = """
var all = map[featuregate.Feature]featuregate.VersionedSpecs{
	AFeature: {
		{Version: version.MustParse("1.35"), Default: false, PreRelease: featuregate.Alpha},
		// why
		{Version: version.MustParse("1.36"), Default: true, PreRelease: featuregate.Beta},
		{Version: version.MustParse("1.37"), Default: true, PreRelease: featuregate.GA, LockToDefault: true}, // 1.40
	},

	bFeature: {
		{Version: version.MustParse("1.9"), Default: false, LockToDefault: true, PreRelease: Deprecated},
	},

	other.CFeature: {
		{Version: version.MustParse("1.37"), Default: false, PreRelease: featuregate.Beta},
		{Version: version.MustParse("1.37"), Default: true, PreRelease: featuregate.Beta, MinCompatibilityVersion: version.MustParse("1.37")},
	},
}
"""  # noqa: E501
EVERYWHERE = {"AllAlpha": "Alpha", "AllBeta": "Beta"}


def test_a_version_has_the_last_spec_that_is_not_newer() -> None:
    sources = [CONSTANTS, MAP]
    assert gates(sources, 35) == {"AFeature": "Alpha", "RenamedFeature": "Deprecated!"} | EVERYWHERE
    assert gates(sources, 36)["AFeature"] == "Beta+"
    assert gates(sources, 37)["AFeature"] == "GA+!"


def test_a_gate_has_the_name_of_its_constants_value() -> None:
    assert "bFeature" not in gates([CONSTANTS, MAP], 36)


def test_a_spec_for_a_newer_cluster_does_not_apply() -> None:
    assert gates([MAP], 37)["CFeature"] == "Beta"
    assert gates([MAP], 38)["CFeature"] == "Beta+"


def test_rows_name_new_removed_and_changed_gates() -> None:
    old, new = {"A": "Alpha", "B": "Beta+", "C": "GA+!"}, {"A": "Beta+", "B": "Beta+", "D": "Alpha"}
    assert differences(old, new) == [("A", "Alpha", "Beta+"), ("C", "GA+!", ""), ("D", "", "Alpha")]
