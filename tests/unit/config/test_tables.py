"""The tables of fields, flags and gates agree with the fact tables row by row."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy import config
from kubeletpy.base.kubernetes_version import KNOWN, KubernetesVersion
from kubeletpy.config.fields import FIELDS, known_fields
from kubeletpy.config.flags import FLAGS
from tools.rulebook.tables import rows

OTHER_DOCUMENTS = ("CredentialProviderConfig.", "ImagePulledRecord.", "ImagePullIntent.")
FIELD_ROWS = [
    row
    for row in rows("config.csv")
    if row["path"] not in ("apiVersion", "kind")
    and not row["path"].startswith(("(", *OTHER_DOCUMENTS))
]


def in_document(document: dict[str, Any], path: str) -> object:
    value: Any = document
    for part in path.split("."):
        value = value.get(part)
        if value is None:
            return None
    return value


@pytest.mark.parametrize("version", KNOWN, ids=str)
def test_fields_and_defaults_of_a_version(version: KubernetesVersion) -> None:
    column = KNOWN.index(version)
    having = ["", *(str(each) for each in KNOWN[: column + 1])]
    desired = {
        row["path"].split("[]")[0]: dict(
            pair.split(": ") for pair in row["earlier_defaults"].split("; ") if pair
        )
        for row in FIELD_ROWS
        if row["since"] in having
    }
    assert set(known_fields(version)) == set(desired)
    document = config.document(config.default_settings(version))
    assert not [path for path in FIELDS if path not in desired and in_document(document, path)]
    for path, earlier in desired.items():
        if default := earlier.get(str(version)):
            assert in_document(document, path) == float(default)


@pytest.mark.parametrize("table", ["declared-features.csv", "features.csv", "versions.csv"])
def test_a_table_has_a_column_for_each_version_and_no_other(table: str) -> None:
    columns = [column for column in rows(table)[0] if column[0].isdigit()]
    releases = [version.release.removeprefix("v").replace(".0", "", 1) for version in KNOWN]
    assert columns == releases


@pytest.mark.parametrize("table", ["events.csv", "flags.csv", "metrics.csv", "reasons.csv"])
def test_columns_of_versions_name_supported_ones(table: str) -> None:
    names = {str(each) for each in KNOWN}
    for row in rows(table):
        assert {row["since"] or "", row["until"] or ""} <= {"", *names}, row


def test_flags_set_fields_that_exist() -> None:
    assert {flag.field for flag in FLAGS.values() if flag.field} <= set(FIELDS)


EXAMPLE = {
    "bool": "true",
    "int": "1",
    "int32": "1",
    "duration": "1m0s",
    "map": "memory=1",
    "map bool": "EventedPLEG=true",
    "map signal<amount": "memory.available<1",
    "list pattern=N": "a=1",
    "IP": "1.2.3.4",
    "list key=value:effect": "a=b:NoSchedule",
    "multimap k:v": "a:b",
    "repeated N:res=qty,...": "0:memory=1Gi",
    "tristate": "true",
}


@pytest.mark.parametrize("row", rows("flags.csv"), ids=lambda row: row["flag"])
def test_every_flag_is_accepted(row: dict[str, str]) -> None:
    text = EXAMPLE.get(row["type"], "x")
    checked = {"node-ip": "1.2.3.4", "kubernetes-version": "1.37", "offline-start": "Always"}
    text = checked.get(row["flag"], text)
    supplied = [f"--{row['flag']}={text}"]
    if row["flag"] == "exit-on-lock-contention":
        supplied.append("--lock-file=/run/lock/kubelet")
    values = config.parse_flags(supplied)
    flag = FLAGS[row["flag"]]
    if flag.field:
        assert values.fields[flag.field].flag == f"--{row['flag']}"
    notified = row["deprecated"] == "yes" and flag.note != "meaningless"
    assert bool(values.warnings or values.ignored) == (notified or flag.name in values.ignored)
