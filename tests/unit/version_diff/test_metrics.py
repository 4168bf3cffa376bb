"""Metrics and flags are read from Go sources as they are registered."""

from __future__ import annotations

from tools.version_diff.metrics import flags, metrics

NAMES = """
const (
	Subsystem = "dra"
	SkipsKey = "skips_total"
	driver = "driver_name"
)
"""
METRICS = """
var (
	Skips = metrics.NewCounterVec(
		&metrics.CounterOpts{
			Subsystem:      Subsystem,
			Name:           SkipsKey,
			Help:           "Calls, of a driver: skipped.",
			StabilityLevel: metrics.ALPHA,
		},
		[]string{driver, "method"},
	)
	Pods = metrics.NewGauge(
		&metrics.GaugeOpts{
			Subsystem:      KubeletSubsystem,
			Name:           "pods",
			StabilityLevel: metrics.BETA,
		},
	)
	Odd = metrics.NewHistogram(
		&metrics.HistogramOpts{
			Name: prefix + "_odd",
		},
	)
)
"""
FLAGS = """
	fs.StringVar(&f.ConfigFile, "config", f.ConfigFile, "The \\"file\\".")
	fs.BoolVarP(&help, "help", "h", false, "")
	fs.Var(cliflag.NewMapStringString(&c.KubeReserved), "kube-reserved", "")
	register(global, local, "housekeeping_interval")
	register(global, local, flags.Interval)
	registerDeprecated(global, local, "boot_id_file", deprecated)
"""


def test_a_metric_has_type_labels_and_level() -> None:
    assert metrics([NAMES, METRICS]) == {
        "dra_skips_total": "counter driver_name|method ALPHA",
        "kubelet_pods": "gauge BETA",
        '?prefix + "_odd"': "histogram",
    }


def test_a_name_of_another_package_is_shown_as_its_expression() -> None:
    assert "?Subsystem_?SkipsKey" in metrics([METRICS])


def test_flags_are_found_however_they_are_registered() -> None:
    assert set(flags([FLAGS])) == {
        "?flags.Interval",
        "boot-id-file",
        "config",
        "help",
        "housekeeping-interval",
        "kube-reserved",
    }
