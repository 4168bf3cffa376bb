"""Every field, flag and gate works, is refused, or is named with its consequence."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kubeletpy
from kubeletpy import config
from kubeletpy.base.kubernetes_version import KNOWN, NEWEST, SUPPORTED, KubernetesVersion
from kubeletpy.base.text import snake_case
from kubeletpy.config import effects
from kubeletpy.config.fields import FIELDS
from kubeletpy.config.flags import FLAGS, NodeFlags
from kubeletpy.config.gates import known_gates, resolve
from kubeletpy.config.generated.tables import HERE
from kubeletpy.config.problems import show
from kubeletpy.config.settings import value_at
from tests.unit.config.test_tables import FIELD_ROWS
from tools.rulebook.differences import listed
from tools.rulebook.tables import rows

PACKAGE = Path(kubeletpy.__file__).parent
LOADING = {
    "imageServiceEndpoint": "KubeletSettings.image_endpoint",
    "mergeDefaultEvictionSettings": "changes evictionHard (decode.derive)",
    "logging.flushFrequency": "cli/logs.py writes lines as they come: sooner than any period",
    "showHiddenMetricsForVersion": "no supported version hides a metric of the kubelet",
    "logging.options.text.splitStream": "cli/logs.py",
    "logging.options.json.splitStream": "cli/logs.py",
    "runOnce": "refused when true",
}
"""Fields that no other package reads, with the code that applies them."""
PLAIN_FLAGS = {"config": "config/files.py", "config-dir": "config/files.py"}
"""Flags read where the configuration is loaded."""
SWITCHES = {
    "AllAlpha": "config/gates.py",
    "AllBeta": "config/gates.py",
    "LoggingAlphaOptions": "config/load.py refuses logging.options",
    "LoggingBetaOptions": "config/load.py refuses logging.format json",
    "CustomCPUCFSQuotaPeriod": "config/load.py refuses cpuCFSQuotaPeriod",
    "GracefulNodeShutdown": "config/load.py refuses shutdownGracePeriod",
    "GracefulNodeShutdownBasedOnPodPriority": "config/load.py refuses the field",
    "KubeletCrashLoopBackOffMax": "config/load.py refuses crashLoopBackOff",
    "KubeletServiceAccountTokenForCredentialProviders": "images/providers/provider.py",
}
"""Gates read while the configuration is loaded."""


@cache
def names_read() -> tuple[frozenset[str], frozenset[str]]:
    """Attributes and string constants in the code of all other packages."""
    attributes, texts = set(), set()
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE).parts
        if parts[:1] == ("config",) and parts[-1] != "rules.py":
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute):
                attributes.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
    return frozenset(attributes), frozenset(texts)


@pytest.mark.parametrize("row", FIELD_ROWS, ids=lambda row: row["path"])
def test_a_field_works_or_is_named(row: dict[str, str]) -> None:
    path = row["path"].split("[]")[0]
    read = all(snake_case(part) in names_read()[0] for part in path.split("."))
    works = path in LOADING or read
    assert works is not (path in effects.FIELDS), f"{path}: named though it works, or neither"


OTHER_VALUES: dict[str, Any] = {
    "kernelMemcgNotification": False,
    "volumePluginDir": "/x",
    "hairpinMode": "none",
    "iptablesMasqueradeBit": 3,
    "iptablesDropBit": 3,
    "tlsCurvePreferences": [23],
    "enableContentionProfiling": True,
    "logging.options.text.infoBufferSize": "1Ki",
    "logging.options.json.infoBufferSize": "1Ki",
}


def document_with(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        value = {part: value}
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "featureGates": {"LoggingAlphaOptions": True},
        **value,
    }


@pytest.mark.parametrize("path", effects.FIELDS)
def test_a_field_without_effect_is_named(path: str) -> None:
    loaded = config.load_document(document_with(path, OTHER_VALUES[path]))
    assert [notice.name for notice in loaded.notices] == [path]
    consequence = effects.FIELDS[path].consequence
    assert [text for text in loaded.warnings if path in text and consequence in text]
    reported = value_at(config.in_effect(loaded.settings), path)
    assert reported == effects.FIELDS[path].value


IN_PLACE_OF_THE_DEFAULT = {"kernelMemcgNotification": True}


@pytest.mark.parametrize("path", effects.FIELDS)
def test_the_applied_value_is_the_kubelets_default_with_one_exception(path: str) -> None:
    value = IN_PLACE_OF_THE_DEFAULT.get(path, FIELDS[path].default)
    assert effects.FIELDS[path].value == value


@pytest.mark.parametrize(
    ("endpoint", "rate", "text"),
    [
        ("localhost:4317", 0, "no spans are sent: tracing.samplingRatePerMillion is 0"),
        ("localhost:4317", 5, None),
        ("unix:///run/otel.sock", 5, None),
        ("dns:///collector:4317", 5, None),
        ("dns://10.0.0.10/collector:4317", 5, "the machine's own name servers are used"),
    ],
)
def test_tracing_endpoints_without_effect(endpoint: str, rate: int, text: str | None) -> None:
    requested = {"endpoint": endpoint, "samplingRatePerMillion": rate}
    loaded = config.load_document(document_with("tracing", requested))
    assert [each.consequence for each in loaded.notices] == ([text] if text else [])


@pytest.mark.parametrize(
    ("requested", "used", "named"),
    [
        (None, "application/json", []),
        ("", "application/json", []),
        ("application/json", "application/json", []),
        ("application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf", []),
        ("application/cbor", "application/json", ["contentType"]),
        ("application/vnd.kubernetes.protobuf;x=1", "application/json", ["contentType"]),
    ],
)
def test_the_content_type_of_requests(requested: str | None, used: str, named: list[str]) -> None:
    loaded = config.load_document(document_with("contentType", requested))
    assert [each.name for each in loaded.notices] == named
    assert config.in_effect(loaded.settings).content_type == used


def test_an_empty_flag_selects_json_as_in_the_kubelet() -> None:
    loaded = config.load(None, (), config.parse_flags(["--kube-api-content-type="]))
    assert config.in_effect(loaded.settings).content_type == "application/json"


def test_reserved_memory_is_named_where_no_memory_manager_reads_it() -> None:
    requested = [{"numaNode": 0, "limits": {"memory": "1100Mi"}}]

    def notices(policy: str) -> tuple[effects.Notice, ...]:
        supplied = document_with("reservedMemory", requested) | {"memoryManagerPolicy": policy}
        return config.load_document(supplied).notices

    assert notices("Static") == ()
    (notice,) = notices("None")
    assert (notice.name, json.loads(notice.value)[0]["numaNode"]) == ("reservedMemory", 0)
    assert "memoryManagerPolicy None" in notice.consequence


def test_defaults_are_not_named() -> None:
    assert config.default_settings().feature_gates.requested == {}
    assert config.load(None).notices == ()


def test_run_once_is_refused() -> None:
    with pytest.raises(config.ConfigError, match="runOnce"):
        config.default_settings(runOnce=True)


@pytest.mark.parametrize("row", rows("flags.csv"), ids=lambda row: row["flag"])
def test_a_flag_works_or_is_named(row: dict[str, str]) -> None:
    name = row["flag"]
    if FLAGS[name].field:
        assert name not in effects.FLAGS  # the field's own test
        return
    works = name in PLAIN_FLAGS or name.replace("-", "_") in names_read()[0]
    assert works is not (name in effects.FLAGS), f"--{name}: named though it works, or neither"


@pytest.mark.parametrize("name", effects.FLAGS)
def test_a_flag_without_effect_is_named(name: str) -> None:
    text = {"bool": "true", "int": "1"}.get(FLAGS[name].kind, "hunter2")
    loaded = config.load(None, (), config.parse_flags([f"--{name}={text}"]))
    assert [notice.name for notice in loaded.notices] == [f"--{name}"]
    secret = "password" in name
    assert [notice.value for notice in loaded.notices] == ["<masked>" if secret else show("", text)]
    if secret:
        assert "hunter2" not in str(loaded)


@pytest.mark.parametrize("version", SUPPORTED, ids=str)
@pytest.mark.parametrize("name", [each for each in effects.FLAGS if FLAGS[each].until])
def test_a_removed_flag_is_accepted_and_named(name: str, version: KubernetesVersion) -> None:
    text = {"bool": "true", "int": "1"}.get(FLAGS[name].kind, "x")
    loaded = config.load(None, (), config.parse_flags([f"--{name}={text}"]), version=version)
    (notice,) = loaded.notices
    removed = f"Kubernetes {version} does not have the flag" in notice.consequence
    assert removed is (version == NEWEST)
    assert removed is notice.consequence.endswith("remove it")


def test_another_cloud_than_external_is_named() -> None:
    def names(cloud: str) -> list[str]:
        flags = config.parse_flags([f"--cloud-provider={cloud}"])
        return [notice.name for notice in config.load(None, (), flags).notices]

    assert names("aws") == ["--cloud-provider"]
    assert names("external") == names("") == []


@pytest.mark.parametrize("row", rows("features.csv"), ids=lambda row: row["gate"])
def test_a_gate_works_or_is_named_or_does_not_apply(row: dict[str, str]) -> None:
    name = row["gate"]
    columns = [known_gates(version).get(name) for version in KNOWN]
    changeable = [gate for gate in columns if gate is not None and not gate.locked]
    ways = (
        name not in HERE and (name in SWITCHES or name in names_read()[1]),
        name in HERE,
        changeable == [] and name not in names_read()[1],
        row["main_parts"] in ("other components", "metrics"),
    )
    assert any(ways), f"{name} is neither read nor named"
    assert not (name in HERE and not changeable), f"{name} is locked: no other value can be set"


@pytest.mark.parametrize("name", HERE)
def test_a_fixed_gate_is_named_when_set_to_the_other_value(name: str) -> None:
    value, consequence = HERE[name]
    version = next(
        each
        for each in reversed(KNOWN)
        if (gate := known_gates(each).get(name)) is not None and not gate.locked
    )
    other = config.default_settings(version, featureGates={name: not value})
    assert [each.consequence for each in effects.gate_notices(other.feature_gates)] == [consequence]
    assert other.feature_gates.enabled(name) is value
    assert config.document(config.in_effect(other))["featureGates"] == {name: value}
    same = config.default_settings(version, featureGates={name: value})
    assert effects.gate_notices(same.feature_gates) == ()


def test_all_alpha_names_what_it_does_not_move() -> None:
    named = {each.name for each in effects.gate_notices(resolve({"AllAlpha": True}))}
    assert "feature gate WindowsCPUAndMemoryAffinity" in named
    assert "feature gate CSIVolumeHealth" not in named


def test_gates_together_are_one_line_for_each_consequence() -> None:
    gates = resolve({"WatchListClient": False, "AtomicFIFO": False, "ImageVolumeWithDigest": True})
    assert len(effects.lines(effects.gate_notices(gates))) == 2


def test_the_list_of_differences_agrees() -> None:
    paths = {each.row for each in listed("config.csv") if each.here == "no effect"}
    have = {path for path in FIELDS if {path, path.split(".")[0]} & paths}
    assert have == set(effects.FIELDS)


SHARED = {
    "--cert-dir": "below the root directory unless it is set",
    "resolvConf": "only read",
    "volumePluginDir": "without effect",
}
"""Paths that two agents on one machine may share, and why."""


def test_the_page_names_all_that_two_agents_must_not_share() -> None:
    page = (PACKAGE.parent / "docs/operations.md").read_text()
    section = page.partition("### Two agents on one machine")[2].partition("\n## ")[0]
    flags = NodeFlags()
    defaults = {name: each.default for name, each in FIELDS.items() if name != "contentType"}
    defaults |= {
        f"--{name.replace('_', '-')}": getattr(flags, name) for name in flags.__struct_fields__
    }
    own = {
        name
        for name, value in defaults.items()
        if (isinstance(value, str) and "/" in value) or name.lower().endswith("port")
    }
    named = set(re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (.*?) \|", section, re.M))))
    assert own - SHARED.keys() <= named
    assert named <= defaults.keys()
