"""Write the field numbers of the API's protobuf encoding into docs/reference/api-wire.json.

    python tools/gen_api_wire.py K8S_IO_DIRECTORY
    python tools/gen_api_wire.py --check    # exits 1 if it has not the fields of api-schema.json

The directory holds Kubernetes' Go API packages (api/core/v1/types.go, apimachinery/…). Only the
facts of the wire are taken: field numbers, JSON names and types of each message. A type is written
as ``[]T``, ``map T`` (keys are strings) or ``*T`` (pointer: an explicit zero counts). ``^T`` means
that the fields are the parent's own. ``!T`` is a text, number or boolean that JSON has even if it
is empty. Messages of another version than v1 have it in their name: ``group/version/Kind``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
OUT = REFERENCE / "api-wire.json"
PACKAGES = {
    "apimachinery/pkg/apis/meta/v1": "meta",
    "api/core/v1": "core",
    "api/authentication/v1": "authentication.k8s.io",
    "api/authorization/v1": "authorization.k8s.io",
    "api/certificates/v1": "certificates.k8s.io",
    "api/certificates/v1beta1": "certificates.k8s.io/v1beta1",
    "api/coordination/v1": "coordination.k8s.io",
    "api/events/v1": "events.k8s.io",
    "api/node/v1": "node.k8s.io",
    "api/policy/v1": "policy",
    "api/resource/v1": "resource.k8s.io",
    "api/scheduling/v1": "scheduling.k8s.io",
    "api/storage/v1": "storage.k8s.io",
}
ROOTS_TEXT = """
 meta/DeleteOptions meta/ListMeta meta/Status core/Binding core/ConfigMap core/Endpoints core/Event
core/Namespace core/Node core/PersistentVolume core/PersistentVolumeClaim core/Pod core/Secret
core/Service core/ServiceAccount authentication.k8s.io/TokenRequest
authentication.k8s.io/TokenReview authentication.k8s.io/SelfSubjectReview
authorization.k8s.io/SubjectAccessReview authorization.k8s.io/SelfSubjectAccessReview
authorization.k8s.io/LocalSubjectAccessReview certificates.k8s.io/CertificateSigningRequest
certificates.k8s.io/ClusterTrustBundle certificates.k8s.io/PodCertificateRequest
certificates.k8s.io/v1beta1/ClusterTrustBundle certificates.k8s.io/v1beta1/PodCertificateRequest
coordination.k8s.io/Lease events.k8s.io/Event node.k8s.io/RuntimeClass policy/Eviction
scheduling.k8s.io/PriorityClass storage.k8s.io/CSIDriver storage.k8s.io/CSINode
storage.k8s.io/CSIStorageCapacity storage.k8s.io/StorageClass storage.k8s.io/VolumeAttachment
resource.k8s.io/DeviceClass resource.k8s.io/ResourceClaim resource.k8s.io/ResourceClaimTemplate
resource.k8s.io/ResourceSlice
"""
ROOTS = ROOTS_TEXT.split()
ALIASES = {
    "v1": "core",
    "apiv1": "core",
    "corev1": "core",
    "metav1": "meta",
    "resource": "",
    "intstr": "",
    "types": "",
}
SCALARS = {
    "string": "string",
    "bool": "bool",
    "int32": "int",
    "int64": "int",
    "int": "int",
    "[]byte": "bytes",
}
PLAIN = ("string", "bool", "int")
SPECIAL = {
    "Quantity",
    "Time",
    "MicroTime",
    "IntOrString",
    "Duration",
    "FieldsV1",
    "ExtraValue",
    "RawExtension",
}
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
NAMED = re.compile(r"^type (\w+) =? ?([\w\[\].]+)$|^\t(\w+) +(string)$", re.M)
FIELD = re.compile(r"^\t(?:(\w+)\s+)?([*\[\]\w.]+)\s+`([^`]*)`", re.M)


class Sources:
    """The parsed packages."""

    def __init__(self, directory: Path) -> None:
        self.structs: dict[str, str] = {}
        self.named: dict[str, str] = {}
        for path, package in PACKAGES.items():
            text = (directory / path / "types.go").read_text()
            for name, body in STRUCT.findall(text):
                self.structs[f"{package}/{name}"] = body
            for name, target, *_ in NAMED.findall(text):
                if name:
                    self.named[f"{package}/{name}"] = target

    def wire_type(self, go: str, package: str) -> str:
        """The type as written in the table."""
        if go in SCALARS:
            return SCALARS[go]
        if go.startswith("*"):
            return "*" + self.wire_type(go[1:], package)
        if go.startswith("[]"):
            return "[]" + self.wire_type(go[2:], package)
        if go.startswith("map["):
            return "map " + self.wire_type(go.partition("]")[2], package)
        qualifier, _, name = go.rpartition(".")
        if name == "AttestationValue":
            return "ExtraValue"  # a list of strings as well
        if name in SPECIAL:
            return name
        if qualifier == "types":
            return "string"
        full = f"{ALIASES[qualifier] if qualifier else package}/{name}"
        if full in self.structs:
            return full
        if full in self.named:
            return self.wire_type(self.named[full], full.rpartition("/")[0])
        raise SystemExit(f"unknown type {go} in {package}")

    def message(self, name: str) -> dict[str, list[str]]:
        """One message: number -> [JSON name, type]."""
        package = name.rpartition("/")[0]
        fields: dict[str, list[str]] = {}
        for field, go, tags in FIELD.findall(self.structs[name]):
            number = re.search(r'protobuf:"\w+,(\d+)', tags)
            json_name = re.search(r'json:"([^",]*)([^"]*)"', tags)
            if number is None or json_name is None:
                continue
            kind = self.wire_type(go, package)
            if "inline" in json_name[2] or not (field or json_name[1]):  # embedded
                kind = f"^{kind}"
            elif kind in PLAIN and "omit" not in json_name[2]:
                kind = f"!{kind}"
            fields[number[1]] = [json_name[1], kind]
        return fields


Table = dict[str, dict[str, list[str]]]
TYPE_META = {"apiVersion", "kind"}
"""Fields of whole objects that are not on the wire."""


def read_sources(directory: Path) -> Table:
    """The messages that the root objects need."""
    sources = Sources(directory)
    found: Table = {}
    pending = list(ROOTS)
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found[name] = sources.message(name)
        for _, kind in found[name].values():
            inner = kind.removeprefix("map ").lstrip("*[]^")
            if "/" in inner:
                pending.append(inner)
    return found


def json_fields(table: Table, name: str) -> set[str]:
    """The JSON names of a message's fields, including those of inlined messages."""
    fields: set[str] = set()
    for written, kind in table[name].values():
        fields |= json_fields(table, kind[1:]) if kind.startswith("^") else {written}
    return fields


def differing(table: Table, definitions: dict[str, Any]) -> list[str]:
    """Messages whose fields differ from their OpenAPI definition."""
    by_name = {tuple(key.split(".")[-3:]): value for key, value in definitions.items()}
    found = []
    for name in table:
        package, *version, message = name.split("/")
        key = (package.partition(".")[0], *(version or ["v1"]), message)
        definition = by_name.get(key, {})
        desired = set(definition.get("properties", ()))
        odd = (desired ^ json_fields(table, name)) - TYPE_META
        if desired and odd:  # a message that is only inlined has no definition
            found.append(f"{name}: {', '.join(sorted(odd))}")
    return found


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if args.check:
        schema: dict[str, Any] = {}
        for name in ("api-schema.json", "api-schema-more.json"):
            schema |= json.loads((REFERENCE / name).read_text())
        wrong = differing(json.loads(OUT.read_text()), schema)
        for each in wrong:
            print(f"{OUT.name} and the schema differ in {each}", file=sys.stderr)
        return 1 if wrong else 0
    if args.directory is None:
        parser.error("name the directory of Kubernetes' Go packages, or --check")
    found = read_sources(args.directory)
    lines = (f'"{name}":{json.dumps(found[name], separators=(",", ":"))}' for name in sorted(found))
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
