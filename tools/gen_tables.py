"""Write the Python of the fact tables into folders ``generated`` of the agent.

python tools/gen_tables.py            # writes the modules
python tools/gen_tables.py --check    # exits 1 if a module is not what its table gives
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, repeat
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from kubeletpy.base.text import snake_case  # noqa: E402
from tools.rulebook.differences import allowed, listed  # noqa: E402
from tools.rulebook.tables import REFERENCE, document, rows  # noqa: E402

Rows = Sequence[dict[str, Any]]


def buckets_of(text: str) -> tuple[float, ...]:
    """The numbers of a cell ``buckets``.

    It holds the numbers, ``exp(FIRST xFACTOR n=COUNT)`` or ``exprange(FIRST..LAST n=COUNT)``.
    """
    if found := re.fullmatch(r"exp\((\S+) x(\S+) n=(\d+)\)", text):
        steps = repeat(float(found[2]), int(found[3]) - 1)
        return tuple(map(_plain, accumulate(steps, mul, initial=float(found[1]))))
    if found := re.fullmatch(r"exprange\((\S+)\.\.(\S+) n=(\d+)\)", text):
        first, last, count = float(found[1]), float(found[2]), int(found[3])
        powers = (round(first * (last / first) ** (n / (count - 1)), 6) for n in range(count))
        return tuple(map(_plain, powers))
    return tuple(_plain(float(each)) for each in text.split())


def _plain(number: float) -> float:
    return int(number) if number == int(number) else number


def _metric(row: dict[str, str], former: Rows) -> str:
    """The call that makes a metric. ``former``: rows of the names that it had before."""
    kind = "bounded_counter" if row["untrusted"] else row["type"]
    labels = [label for label in row["labels"].split("|") if label]
    last, _, change = row["earlier"].partition(": ")
    column, _, value = change.partition("=")
    new_labels = tuple(label for label in labels if label not in value.split("|"))
    terms = {
        "buckets": buckets_of(row["buckets"]),
        "level": row["stability"].replace("ALPHA", ""),
        "earlier_level": (last, value) if column == "stability" else (),
        "new_labels": (last, new_labels) if column == "labels" else (),
        "since": row["since"],
        "until": row["until"],
        "former": tuple(old[key] for old in former for key in ("name", "since", "until")),
        "gates": tuple(row["feature_gate"].split("+")) if row["feature_gate"] else (),
    }
    texts = ", ".join(map(repr, (row["name"], row["help"], *labels)))
    return f"families.{kind}({texts}" + "".join(f", {k}={v!r}" for k, v in terms.items() if v) + ")"


def _attribute(name: str, declared: Rows) -> str:
    """The statement that sets one attribute: a metric, or a dict of metrics by key."""
    if "[" not in declared[0]["here"]:
        return f"self.{name} = {_metric(declared[0], declared[1:])}"
    keys = (row["here"].partition("[")[2].rstrip("]") for row in declared)
    pairs = (f"{key!r}: {_metric(row, ())}" for key, row in zip(keys, declared, strict=True))
    return f"self.{name} = {{{', '.join(pairs)}}}"


def metrics(table: Rows) -> Iterator[str]:
    """A class for each group of metrics that column ``here`` names, as ``GROUP.ATTRIBUTE[KEY]``."""
    yield "from kubeletpy.metrics.families import Families"
    here = [row for row in table if row["here"]]
    groups = dict.fromkeys(row["here"].partition(".")[0] for row in here)
    for group in groups:
        of_group: dict[str, list[dict[str, str]]] = {}
        for row in here:
            if row["here"].startswith(f"{group}."):
                attribute = row["here"].partition(".")[2].partition("[")[0]
                of_group.setdefault(attribute, []).append(row)
        yield f"class {group.title().replace('_', '')}Families:"
        yield "    def __init__(self, families: Families) -> None:"
        for attribute, declared in of_group.items():
            yield f"        {_attribute(attribute, declared)}"


_VERSIONS = re.compile(r"\d\.(\d+)(?:-(\w+\.\d+))?")
"""Names of columns that are about one Kubernetes version, or about a pre-release of one."""
KINDS = {
    "int32": "int",
    "IP": "text",
    "list key=value:effect": "taints",
    "list pattern=N": "vmodule",
    "map bool": "gates",
    "map signal<amount": "signals",
    "multimap k:v": "headers",
    "quantity": "text",
    "repeated N:res=qty,...": "memory",
    "string": "text",
    "tristate": "version",
}
"""Type of a flag -> how its text is read, where the names differ."""


def gates(table: Rows) -> Iterator[str]:
    """A line for each gate with its stage in each version."""
    yield 'GATES = """'
    for row in table:
        stages = (cell or "-" for column, cell in row.items() if _VERSIONS.fullmatch(column))
        yield " ".join((row["gate"], *stages))
    yield '"""'
    yield '"""Name, stage in each of KNOWN; "+": on by default, "!": locked, "-": absent."""'


def constant_gates(table: Rows) -> Iterator[str]:
    """The gates whose value is fixed here, with the value and the first part of the reason."""
    values = {"always on": True, "always off": False}
    yield "HERE = {"
    for row in table:
        if row["table"] == "features.csv":
            yield f"{row['row']!r}: {(values[row['here']], row['why'].split(';')[0])!r},"
    yield "}"
    yield '"""Gates that no code checks: the value in effect, and what that means."""'


def flags(table: Rows) -> Iterator[str]:
    """A line for each flag; those that set a field come first."""
    yield 'FLAGS = """'
    for row in sorted(table, key=lambda row: (not row["config_field"], row["until"])):
        name, field = row["flag"], row["config_field"].split(" ")[0]
        note = "deprecated" if row["deprecated"] else ""
        if allowed("flags.csv", name, "no effect"):
            note = "meaningless"
        kind = KINDS.get(row["type"], row["type"])
        if kind == "duration" and (field or note == "meaningless"):
            kind = "text"
        cells = (name, kind, field, note, row["until"], row["short"])
        yield " ".join(cell or "-" for cell in cells)
    yield '"""'
    yield '"""Name, how its text is read, field, note, last version, short form; "-": none."""'


CLASSES = {
    "authentication.x509": "X509Authentication",
    "authentication.webhook": "WebhookAuthentication",
    "authentication.anonymous": "AnonymousAuthentication",
    "authentication": "Authentication",
    "authorization.webhook": "WebhookAuthorization",
    "authorization": "Authorization",
    "memorySwap": "MemorySwap",
    "logging.options.text": "LogStreamOptions",
    "logging.options.json": "LogStreamOptions",
    "logging.options": "LoggingOptions",
    "logging.vmodule[]": "VModule",
    "logging": "Logging",
    "crashLoopBackOff": "CrashLoopBackOff",
    "shutdownGracePeriodByPodPriority[]": "ShutdownPriority",
    "reservedMemory[]": "MemoryReservation",
    "registerWithTaints[]": "Taint",
    "tracing": "Tracing",
    "userNamespaces": "UserNamespaces",
    "": "KubeletFields",
}
"""Objects of the configuration, innermost first, with the class of their settings."""
TYPES = {
    "bool": "bool",
    "string": "str",
    "int32": "int",
    "int64": "int",
    "uint32": "int",
    "float64": "float",
    "duration": "float",
    "duration or int ns": "float",
    "quantity": "int",
    "[]string": "tuple[str, ...]",
    "[]int32": "tuple[int, ...]",
    "map[string]string": "Mapping[str, str]",
    "map[string]duration": "Mapping[str, float]",
    "map[string][]string": "Mapping[str, tuple[str, ...]]",
    "map[resource]quantity": "Mapping[str, str]",
}
"""Type of a field -> type of the setting."""
UNITS = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}


def of_kubelet(table: Rows) -> list[dict[str, str]]:
    """The rows of KubeletConfiguration."""
    others = ("CredentialProviderConfig.", "ImagePull", "(", "apiVersion", "kind")
    return [row for row in table if not row["path"].startswith(others) and row["type"] != "time"]


def settings(table: Rows) -> Iterator[str]:
    """A class for each object of the configuration, and GROUPS."""
    yield "from collections.abc import Mapping"
    yield "from kubeletpy.base.structs import Struct"
    fields = [row for row in of_kubelet(table) if row["type"] in TYPES or row["type"][1:] in TYPES]
    written = set()
    for group, name in CLASSES.items():
        if name in written:
            continue
        written.add(name)
        yield f"class {name}(Struct, frozen=True):"
        members: dict[str, str] = {}
        for row in fields:
            if not row["path"].startswith(f"{group}." if group else ""):
                continue
            member, _, rest = row["path"].removeprefix(f"{group}.").partition(".")
            path = f"{group}.{member}".lstrip(".")
            kind = CLASSES[path] if rest else TYPES[row["type"].lstrip("*")]
            if path.endswith("[]"):
                kind = f"tuple[{kind}, ...]"
            elif row["type"].startswith("*") and row["default"].startswith("null") and not rest:
                kind += " | None"
            members.setdefault(member.removesuffix("[]"), kind)
        yield from (f"    {snake_case(member)}: {kind}" for member, kind in members.items())
    yield "GROUPS: Mapping[str, type] = {"
    groups = (group for group in CLASSES if group and not group.endswith("[]"))
    yield from (f"{group!r}: {CLASSES[group]}," for group in groups)
    yield "}"
    yield '"""The nested objects of the document, innermost first."""'


def number(text: str) -> float:
    """A number, a duration such as ``1m30s`` in seconds, or a size such as ``10Mi`` in bytes."""
    if text.endswith("Mi"):
        return int(text.removesuffix("Mi")) << 20
    parts = re.findall(r"(\d+)(h|ms|m|s)", text)
    return sum(int(amount) * UNITS[unit] for amount, unit in parts) if parts else float(text)


def _default(row: dict[str, str]) -> object:
    for each in listed("config.csv"):
        found = re.fullmatch(r"the default is (\S+)", each.here)
        if found and each.covers(row["path"]):
            return found[1]
    kind, text = row["type"].lstrip("*"), row["default"].split(" (")[0]
    if text.startswith("["):
        return tuple(text.strip("[]").split())
    if "[]" in row["path"] or kind.startswith("[]"):
        return ()
    if kind.startswith("map"):
        pairs = text.split() if text != "null" else ()
        return tuple(tuple(pair.split("=")) for pair in pairs)
    if kind == "string":
        return None if text == "null" else text.strip('"')
    if kind == "bool" or text == "null":
        return {"true": True, "false": False, "null": None}[text]
    return float(number(text)) if kind.startswith("duration") else _plain(number(text))


def _rule(row: dict[str, str]) -> tuple[object, ...]:
    """The rule of a cell that begins with A..B, >=A, >A, IP or A|B: a name and its arguments."""
    text, kind = row["allowed"].split(";")[0], row["type"].lstrip("*")
    seconds = "seconds_" if kind == "duration" else ""
    amount = r"-?\d[\dhms]*"
    if found := re.fullmatch(rf"({amount})\.\.({amount})", text):
        return f"{seconds}between", _plain(number(found[1])), _plain(number(found[2]))
    if found := re.fullmatch(rf">=({amount})", text):
        return f"{seconds}at_least", _plain(number(found[1]))
    if (found := re.fullmatch(rf">({amount})", text)) and not seconds:
        return "above", _plain(number(found[1]))
    if text == "IP":
        return ("ip_address",)
    if re.fullmatch(r'[\w"-]+(\|[\w-]+)+', text) and not kind.startswith("[]"):
        names = (name.strip('"') for name in text.split("|"))
        return "option_names" if kind.startswith("map") else "one_of", *names
    return ()


def fields(table: Rows) -> Iterator[str]:
    """A row for each field, without dicts: so all is one constant, which costs least to load."""
    yield "from typing import Any"
    yield "Row = tuple[str, str, Any, tuple[Any, ...], str, tuple[tuple[str, Any], ...]]"
    yield "FIELDS: tuple[Row, ...] = ("
    paths = set()
    for row in of_kubelet(table):
        path = row["path"].split("[]")[0]
        if path not in paths:
            paths.add(path)
            pairs = (pair.split(": ") for pair in row["earlier_defaults"].split("; ") if pair)
            earlier = tuple((version, number(value)) for version, value in pairs)
            is_list = "[]" in row["path"]
            rule = () if is_list else _rule(row)
            kind = "[]" if is_list else row["type"]
            yield f"{(path, kind, _default(row), rule, row['since'], earlier)!r},"
    yield ")"
    yield '"""Path, type, default, rule, first version, defaults of earlier versions."""'


SPELLED = {
    "SandBox": "Sandbox",
    "UnMount": "Unmount",
    "IPs": "Ips",
    "OutOf": "OutOf_",
    "AppArmor": "Apparmor",
}
"""Parts of reasons, as the names of members divide them."""


def _members(values: Iterable[str]) -> Iterator[str]:
    for value in sorted(set(values)):
        name = re.sub("|".join(SPELLED), lambda found: SPELLED[found[0]], value)
        yield f"    {snake_case(name).upper().replace('-', '_')} = {value!r}"


def event_reasons(table: Rows) -> Iterator[str]:
    """The reasons of events, but those that are described or not emitted."""
    yield "from enum import StrEnum"
    yield "class Reason(StrEnum):"
    yield '    """The ``reason`` of an event."""'
    names = [row["reason"] for row in table if row["reason"].isalnum()]
    yield from _members(name for name in names if not allowed("events.csv", name, "not emitted"))


_OPEN = """
    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str) or not value.startswith({prefix!r}):
            return None
        other = str.__new__(cls, value)
        other._name_, other._value_ = value, value
        return other
"""


def admission_reasons(table: Rows) -> Iterator[str]:
    """The reasons for rejecting a pod; a name with a placeholder is one for each text."""
    names = [name for row in table if row["kind"] == "admission" for name in row["name"].split()]
    (prefix,) = (name.partition("{")[0] for name in names if "{" in name)
    yield "from typing import Self"
    yield "class AdmissionReason(StrEnum):"
    yield '    """Why a pod was rejected: the reason of its status and of the event."""'
    yield from _members(name for name in names if "{" not in name)
    yield _OPEN.format(prefix=prefix)


def counted_rejections(table: Rows) -> Iterator[str]:
    """The reasons that the metric of rejections has as a label."""
    (row,) = (row for row in table if row["name"] == "kubelet_admission_rejections_total")
    values = re.sub(r"\(.*?\)", "", row["label_values"]).removeprefix("reason=").split()
    yield f"COUNTED = frozenset({values!r})"
    yield '"""Reasons that are labels of kubelet_admission_rejections_total."""'


def operations(table: Rows) -> Iterator[str]:
    """The name of each call of the CRI in metrics."""
    named = {row["name"]: row["operation"] for row in table if "operation" in row}
    yield f"OPERATIONS = {named!r}"
    yield '"""The kubelet\'s operation_type of each call. Streams count as lists."""'


def supported(table: Rows) -> Iterator[str]:
    """The minor versions that the tables have columns for."""
    columns = [found for found in map(_VERSIONS.fullmatch, table[0]) if found]
    yield f"MINORS = {tuple(int(found[1]) for found in columns)}"
    previews = {int(found[1]): found[2] for found in columns if found[2]}
    yield f"PREVIEWS: dict[int, str] = {previews}"
    yield '"""Minor versions of which only a pre-release is known, and which one."""'


def version_facts(table: Rows) -> Iterator[str]:
    """A class of the facts in which versions differ, and their values."""
    yield "from kubeletpy.base.structs import Struct"
    yield "class VersionFacts(Struct, frozen=True):"
    yield '    """The facts of one version: a row of versions.csv each."""'
    yield from (f"    {row['fact']}: bool" for row in table)
    yield "FACTS = ("
    for name in filter(_VERSIONS.fullmatch, table[0]):
        values = ", ".join(f"{row['fact']}={row[name] == 'yes'}" for row in table)
        yield f"VersionFacts({values}),"
    yield ")"


def declared_features(table: Rows) -> Iterator[str]:
    """A line for each feature that a node declares, with its condition in each version."""
    yield 'DECLARED_FEATURES = """'
    for row in table:
        yield " ".join((row["feature"], *(row[name] for name in filter(_VERSIONS.fullmatch, row))))
    yield '"""'


class Module(NamedTuple):
    """A module, and the fact tables that it is written from, each with the function that does."""

    path: str
    docstring: str
    tables: tuple[tuple[str, Callable[[Rows], Iterator[str]]], ...]


MODULES = (
    Module(
        "kubeletpy/base/generated/versions.py",
        "The supported Kubernetes versions, and how they differ. Pure.",
        (
            ("features.csv", supported),
            ("versions.csv", version_facts),
            ("declared-features.csv", declared_features),
        ),
    ),
    Module(
        "kubeletpy/remote/generated/operations.py",
        "The calls of the CRI in metrics. Pure.",
        (("cri-v1.json", operations),),
    ),
    Module(
        "kubeletpy/kubeapi/events/generated/reasons.py",
        "The reasons of events and of rejections. Pure.",
        (
            ("events.csv", event_reasons),
            ("reasons.csv", admission_reasons),
            ("metrics.csv", counted_rejections),
        ),
    ),
    Module(
        "kubeletpy/config/generated/settings.py",
        "The objects of the KubeletConfiguration. Pure.",
        (("config.csv", settings),),
    ),
    Module(
        "kubeletpy/config/generated/tables.py",
        "Fields of the KubeletConfiguration, feature gates and flags. Pure.",
        (
            ("config.csv", fields),
            ("features.csv", gates),
            ("differences.csv", constant_gates),
            ("flags.csv", flags),
        ),
    ),
    Module(
        "kubeletpy/metrics/generated/declared.py",
        "Metrics by subject, as attributes of classes.",
        (("metrics.csv", metrics),),
    ),
)


def is_undecided(row: dict[str, Any]) -> bool:
    """Whether a cell is left for a person to decide (tools/version_diff)."""
    return any(str(cell).startswith("?") for cell in row.values())


def _methods(name: str) -> Rows:
    """The calls of a protocol."""
    return [method for service in document(name)["services"] for method in service["methods"]]


def generated(module: Module) -> str:
    """The text of a module."""
    names = "; ".join(f"{REFERENCE.relative_to(ROOT)}/{name}" for name, _ in module.tables)
    source = f"Written by tools/gen_tables.py. Source: {names}."
    head = f'"""{module.docstring}\n\n{source}\n"""\n\nfrom __future__ import annotations\n'
    body: list[str] = []
    for name, lines in module.tables:
        table = rows(name) if name.endswith(".csv") else _methods(name)
        complete = [{key: cell or "" for key, cell in row.items()} for row in table]
        body += lines([row for row in complete if not is_undecided(row)])
    imports = [line for line in body if line.startswith("from ")]
    text = "\n".join((head, *imports, *(line for line in body if line not in imports)))
    for command in (["check", "--fix-only", "--select", "I"], ["format"]):
        done = subprocess.run(
            ["ruff", *command, "--quiet", "--stdin-filename", "generated.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for module in MODULES:
        path, text = ROOT / module.path, generated(module)
        if not path.exists() or path.read_text() != text:
            stale.append(module.path)
            if not check:
                path.write_text(text)
    names = {name for module in MODULES for name, _ in module.tables if name.endswith(".csv")}
    undecided = [
        f"undecided row of {name}: {next(iter(row.values()))}"
        for name in sorted(names)
        for row in rows(name)
        if is_undecided(row)
    ]
    for line in undecided:
        print(line, file=sys.stderr)
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run tools/gen_tables.py", file=sys.stderr)
    return 1 if check and (stale or undecided) else 0


if __name__ == "__main__":
    raise SystemExit(main())
