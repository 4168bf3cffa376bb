"""Record the discovery documents and table columns of a running API server.

    kubectl proxy --port=8001 &
    python -m tools.api_resources http://127.0.0.1:8001

Writes docs/reference/api-resources.json. The group versions are those that the file has; one is
added by writing an empty list for it first.
"""

from __future__ import annotations

import argparse
import json
import urllib.request

from kubeletpy.base.api.types import JSON
from tools.rulebook.tables import REFERENCE

FILE = REFERENCE / "api-resources.json"
_KEYS = (
    *("name", "singularName", "namespaced", "kind", "group", "version"),
    *("verbs", "shortNames", "categories"),
)
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_TIMEOUT_S = 30.0


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(prog="python -m tools.api_resources", description=__doc__)
    parser.add_argument("url", help="URL of the API server, such as that of kubectl proxy")
    url: str = parser.parse_args().url.rstrip("/")
    paths = list(json.loads(FILE.read_text())["resources"])
    resources = {path: _get(url + path)["resources"] for path in paths}
    columns = {
        f"{path}/{each['name']}": _get(f"{url}{path}/{each['name']}?limit=1", _TABLE)
        for path, listed in resources.items()
        for each in listed
        if "list" in each["verbs"]
    }
    FILE.write_text(document(_get(f"{url}/version"), resources, columns))
    return 0


def _get(url: str, accept: str = "application/json") -> JSON:
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        found: JSON = json.load(answer)
        return found


def document(version: JSON, resources: dict[str, list[JSON]], tables: dict[str, JSON]) -> str:
    """The file's text: one resource and one table a line.

    Args:
        version: the answer to /version.
        resources: the entries of each group version's APIResourceList, by its path.
        tables: the Table of each resource's list, by its path.
    """
    running = {
        "major": version["major"],
        "minor": version["minor"].rstrip("+"),
        "platform": version["platform"],
    }
    groups = ",\n".join(
        f"{json.dumps(path)}: [\n" + ",\n".join(f"  {_entry(each)}" for each in listed) + "\n ]"
        for path, listed in resources.items()
    )
    columns = ",\n".join(f" {json.dumps(path)}: {_columns(tables[path])}" for path in tables)
    return (
        f'{{"version": {json.dumps(running)},\n"resources": {{\n{groups}}},\n'
        f'"table_columns": {{\n{columns}\n}}}}\n'
    )


def _entry(resource: JSON) -> str:
    return json.dumps({key: resource[key] for key in _KEYS if key in resource})


def _columns(table: JSON) -> str:
    columns = [
        [each["name"], each["type"], each["format"], each["priority"]]
        for each in table["columnDefinitions"]
    ]
    return json.dumps(columns, separators=(",", ":"))


if __name__ == "__main__":
    raise SystemExit(main())
